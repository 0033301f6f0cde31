# SPDX-License-Identifier: Apache-2.0
"""Volume types, their extra specs and access lists."""

from attachd import exception
from attachd.db.engine import session
from attachd.db.engine.paging import Page
from attachd.db.types import type_store
from attachd.tests.fixtures import databases, db_rows


class TypesTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.fast = type_store.create({"name": "fast", "extra_specs": {"a": "1"}})

    def test_get_by_id_and_by_name_returns_type(self):
        self.assertEqual(self.fast, type_store.get(self.fast["id"]))
        self.assertEqual(self.fast, type_store.get_by_name("fast"))
        self.assertRaises(exception.VolumeTypeNotFound, type_store.get, "fast")
        self.assertRaises(exception.VolumeTypeNotFound, type_store.get_by_name, "FAST")

    def test_create_with_used_name_is_refused(self):
        self.assertRaises(exception.TypeExists, type_store.create, {"name": "fast"})
        other = type_store.create({"name": "Fast"})
        self.assertRaises(exception.TypeExists, type_store.update, other["id"], {"name": "fast"})
        self.assertEqual("Fast", type_store.get(other["id"])["name"])

    def test_page_filters_and_sorts(self):
        slow = type_store.create({"name": "slow", "is_public": False, "description": "d"})
        cases = [
            ({}, [slow["id"], self.fast["id"]]),
            ({"is_public": True}, [self.fast["id"]]),
            ({"is_public": False}, [slow["id"]]),
            ({"name": "slow"}, [slow["id"]]),
        ]
        for filters, expected in cases:
            with self.subTest(filters):
                found = type_store.page(filters, Page(limit=9))
                self.assertEqual(expected, [row["id"] for row in found])
        after = type_store.page({}, Page(limit=9, marker=self.fast["id"], sort=(("name", "asc"),)))
        self.assertEqual([slow], after)

    def test_page_contains_public_and_accessible_types(self):
        hidden = type_store.create({"name": "hidden", "is_public": False})
        other = type_store.create({"name": "other", "is_public": False})
        type_store.add_access(hidden["id"], "a")
        for project, expected in (("a", {"fast", "hidden"}), ("b", {"fast"}), (None, {"fast"})):
            found = type_store.page({"known_to": project}, Page(limit=9))
            self.assertEqual(expected, {row["name"] for row in found}, project)
        self.assertEqual(hidden, type_store.get(hidden["id"], "a"))
        self.assertEqual(hidden, type_store.get_by_name("hidden", "a"))
        for project, kind in (("b", hidden), ("a", other)):
            with self.assertRaises(exception.VolumeTypeNotFound):
                type_store.get(kind["id"], project)
            with self.assertRaises(exception.VolumeTypeNotFound):
                type_store.get_by_name(kind["name"], project)

    def test_page_with_invisible_marker_is_refused(self):
        hidden = type_store.create({"name": "hidden", "is_public": False})
        with self.assertRaisesRegex(exception.MarkerNotFound, "Marker"):
            type_store.page({"known_to": "a"}, Page(limit=9, marker=hidden["id"]))

    def test_page_filters_by_extra_specs_before_paging(self):
        for name in ("one", "two", "three"):
            type_store.create({"name": name, "extra_specs": {"a": "1", "b": name}})
        type_store.create({"name": "another", "extra_specs": {"a": "11"}})
        filters = {"extra_specs": {"a": "1"}}
        sort = (("name", "asc"),)
        found = type_store.page(filters, Page(limit=3, sort=sort))
        self.assertEqual(["fast", "one", "three"], [row["name"] for row in found])
        rest = type_store.page(filters, Page(limit=3, sort=sort, marker=found[-1]["id"]))
        self.assertEqual(["two"], [row["name"] for row in rest])
        found = type_store.page({"extra_specs": {"a": "1", "b": "two"}}, Page(limit=3))
        self.assertEqual(["two"], [row["name"] for row in found])

    def test_page_matches_part_of_zones(self):
        type_store.create(
            {"name": "zoned", "extra_specs": {type_store.AVAILABILITY_ZONES: "west,east"}}
        )
        for zone, expected in (("east", ["zoned"]), ("north", [])):
            found = type_store.page(
                {"extra_specs": {type_store.AVAILABILITY_ZONES: zone}}, Page(limit=9)
            )
            self.assertEqual(expected, [row["name"] for row in found])

    def test_update_changes_columns(self):
        type_store.update(self.fast["id"], {"description": "quick", "is_public": False})
        row = type_store.get(self.fast["id"])
        self.assertEqual(("quick", False), (row["description"], row["is_public"]))
        self.assertIsNotNone(row["updated_at"])

    def test_delete_of_type_in_use_is_refused(self):
        volume = db_rows.add_volume(volume_type_id=self.fast["id"])
        self.assertRaises(exception.TypeInUse, type_store.delete, self.fast["id"])
        db_rows.change_volume(volume["id"], volume_type_id=None)
        snapshot = db_rows.add_snapshot(volume["id"], volume_type_id=self.fast["id"])
        self.assertRaises(exception.TypeInUse, type_store.delete, self.fast["id"])
        db_rows.change_snapshot(snapshot["id"], volume_type_id=None)
        type_store.delete(self.fast["id"])
        self.assertRaises(exception.VolumeTypeNotFound, type_store.get, self.fast["id"])

    def test_merge_specs_and_delete_spec_change_specs(self):
        after = type_store.merge_specs(self.fast["id"], {"b": "2", "multiattach": "<is> True"})
        self.assertEqual({"a": "1", "b": "2", "multiattach": "<is> True"}, after)
        type_store.delete_spec(self.fast["id"], "b")
        self.assertEqual(
            {"a": "1", "multiattach": "<is> True"}, type_store.get(self.fast["id"])["extra_specs"]
        )
        with self.assertRaisesRegex(exception.NotFound, "key b"):
            type_store.delete_spec(self.fast["id"], "b")

    def test_specs_of_type_in_use_are_unchangeable(self):
        volume = db_rows.add_volume(volume_type_id=self.fast["id"])
        for function, argument in (
            (type_store.merge_specs, {"b": "2"}),
            (type_store.delete_spec, "a"),
        ):
            with self.assertRaisesRegex(exception.BadRequest, "currently in use"):
                function(self.fast["id"], argument)
        self.assertEqual({"a": "1"}, type_store.get(self.fast["id"])["extra_specs"])
        db_rows.change_volume(volume["id"], volume_type_id=None)
        type_store.delete_spec(self.fast["id"], "a")

    def test_lock_unchanged_with_other_specs_is_refused(self):
        with session.writer() as connection:
            type_store.lock_unchanged(connection, self.fast["id"], {"a": "1"})
            for judged in ({}, {"a": "2"}, {"a": "1", "b": None}):
                with self.assertRaisesRegex(exception.Conflict, "changed meanwhile. Try again"):
                    type_store.lock_unchanged(connection, self.fast["id"], judged)
            with self.assertRaises(exception.VolumeTypeNotFound):
                type_store.lock_unchanged(connection, "gone", {})

    def test_calls_on_deleted_type_raise_not_found(self):
        calls = [
            (type_store.update, {"name": "x"}),
            (type_store.merge_specs, {"a": "b"}),
            (type_store.delete_spec, "a"),
        ]
        for function, argument in calls:
            self.assertRaises(exception.VolumeTypeNotFound, function, "gone", argument)
        self.assertRaises(exception.VolumeTypeNotFound, type_store.delete, "gone")


class AccessTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.hidden = type_store.create({"name": "hidden", "is_public": False})["id"]

    def test_add_and_remove_access_change_list(self):
        self.assertEqual([], type_store.list_access(self.hidden))
        type_store.add_access(self.hidden, "b")
        type_store.add_access(self.hidden, "a")
        self.assertEqual(["a", "b"], type_store.list_access(self.hidden))
        type_store.remove_access(self.hidden, "a")
        self.assertEqual(["b"], type_store.list_access(self.hidden))

    def test_add_access_twice_is_refused(self):
        type_store.add_access(self.hidden, "a")
        self.assertRaises(exception.TypeAccessExists, type_store.add_access, self.hidden, "a")

    def test_remove_missing_access_is_refused(self):
        self.assertRaises(exception.TypeAccessNotFound, type_store.remove_access, self.hidden, "a")

    def test_add_access_to_deleted_type_raises_not_found(self):
        self.assertRaises(exception.VolumeTypeNotFound, type_store.add_access, "gone", "a")

    def test_delete_type_deletes_access(self):
        type_store.add_access(self.hidden, "a")
        type_store.delete(self.hidden)
        self.assertEqual([], type_store.list_access(self.hidden))
