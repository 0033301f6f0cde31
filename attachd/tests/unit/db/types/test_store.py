# SPDX-License-Identifier: Apache-2.0
"""Volume types and their extra specs."""

import unittest

from attachd import exception
from attachd.db.engine import session
from attachd.db.engine.paging import Page
from attachd.db.types import store as types
from attachd.tests.fixtures import databases, db_rows


class TypesTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        self.fast = types.create({"name": "fast", "extra_specs": {"a": "1"}})

    def test_a_type_is_found_by_id_and_by_name(self):
        self.assertEqual(self.fast, types.get(self.fast["id"]))
        self.assertEqual(self.fast, types.get_by_name("fast"))
        self.assertRaises(exception.VolumeTypeNotFound, types.get, "fast")
        self.assertRaises(exception.VolumeTypeNotFound, types.get_by_name, "FAST")

    def test_a_name_is_given_once(self):
        self.assertRaises(exception.TypeExists, types.create, {"name": "fast"})
        other = types.create({"name": "Fast"})
        self.assertRaises(exception.TypeExists, types.update, other["id"], {"name": "fast"})
        self.assertEqual("Fast", types.get(other["id"])["name"])

    def test_a_page_of_types_is_filtered_and_sorted(self):
        slow = types.create({"name": "slow", "is_public": False, "description": "d"})
        cases = [
            ({}, [slow["id"], self.fast["id"]]),
            ({"is_public": True}, [self.fast["id"]]),
            ({"is_public": False}, [slow["id"]]),
            ({"name": "slow"}, [slow["id"]]),
        ]
        for filters, expected in cases:
            with self.subTest(filters):
                found = types.page(filters, Page(limit=9))
                self.assertEqual(expected, [row["id"] for row in found])
        after = types.page({}, Page(limit=9, marker=self.fast["id"], sort=(("name", "asc"),)))
        self.assertEqual([slow], after)

    def test_a_project_knows_public_types_and_those_it_has_access_to(self):
        hidden = types.create({"name": "hidden", "is_public": False})
        other = types.create({"name": "other", "is_public": False})
        types.add_access(hidden["id"], "a")
        for project, expected in (("a", {"fast", "hidden"}), ("b", {"fast"}), (None, {"fast"})):
            found = types.page({"known_to": project}, Page(limit=9))
            self.assertEqual(expected, {row["name"] for row in found}, project)
        self.assertEqual(hidden, types.get(hidden["id"], "a"))
        self.assertEqual(hidden, types.get_by_name("hidden", "a"))
        for project, kind in (("b", hidden), ("a", other)):
            with self.assertRaises(exception.VolumeTypeNotFound):
                types.get(kind["id"], project)
            with self.assertRaises(exception.VolumeTypeNotFound):
                types.get_by_name(kind["name"], project)

    def test_a_marker_is_one_that_the_project_knows(self):
        hidden = types.create({"name": "hidden", "is_public": False})
        with self.assertRaisesRegex(exception.MarkerNotFound, "Marker"):
            types.page({"known_to": "a"}, Page(limit=9, marker=hidden["id"]))

    def test_extra_specs_filter_before_pages_are_cut(self):
        for name in ("one", "two", "three"):
            types.create({"name": name, "extra_specs": {"a": "1", "b": name}})
        types.create({"name": "another", "extra_specs": {"a": "11"}})
        filters = {"extra_specs": {"a": "1"}}
        sort = (("name", "asc"),)
        found = types.page(filters, Page(limit=3, sort=sort))
        self.assertEqual(["fast", "one", "three"], [row["name"] for row in found])
        rest = types.page(filters, Page(limit=3, sort=sort, marker=found[-1]["id"]))
        self.assertEqual(["two"], [row["name"] for row in rest])
        found = types.page({"extra_specs": {"a": "1", "b": "two"}}, Page(limit=3))
        self.assertEqual(["two"], [row["name"] for row in found])

    def test_of_zones_a_part_matches(self):
        types.create({"name": "zoned", "extra_specs": {types.AVAILABILITY_ZONES: "west,east"}})
        for zone, expected in (("east", ["zoned"]), ("north", [])):
            found = types.page({"extra_specs": {types.AVAILABILITY_ZONES: zone}}, Page(limit=9))
            self.assertEqual(expected, [row["name"] for row in found])

    def test_columns_can_be_changed(self):
        types.update(self.fast["id"], {"description": "quick", "is_public": False})
        row = types.get(self.fast["id"])
        self.assertEqual(("quick", False), (row["description"], row["is_public"]))
        self.assertIsNotNone(row["updated_at"])

    def test_a_type_that_volumes_have_stays(self):
        volume = db_rows.add_volume(volume_type_id=self.fast["id"])
        self.assertRaises(exception.TypeInUse, types.delete, self.fast["id"])
        db_rows.change_volume(volume["id"], volume_type_id=None)
        types.delete(self.fast["id"])
        self.assertRaises(exception.VolumeTypeNotFound, types.get, self.fast["id"])

    def test_extra_specs_are_set_and_removed_one_by_one(self):
        after = types.merge_specs(self.fast["id"], {"b": "2", "multiattach": "<is> True"})
        self.assertEqual({"a": "1", "b": "2", "multiattach": "<is> True"}, after)
        types.delete_spec(self.fast["id"], "b")
        self.assertEqual(
            {"a": "1", "multiattach": "<is> True"}, types.get(self.fast["id"])["extra_specs"]
        )
        with self.assertRaisesRegex(exception.NotFound, "key b"):
            types.delete_spec(self.fast["id"], "b")

    def test_extra_specs_stay_while_a_volume_has_the_type(self):
        volume = db_rows.add_volume(volume_type_id=self.fast["id"])
        for function, argument in ((types.merge_specs, {"b": "2"}), (types.delete_spec, "a")):
            with self.assertRaisesRegex(exception.BadRequest, "currently in use"):
                function(self.fast["id"], argument)
        self.assertEqual({"a": "1"}, types.get(self.fast["id"])["extra_specs"])
        db_rows.change_volume(volume["id"], volume_type_id=None)
        types.delete_spec(self.fast["id"], "a")

    def test_a_type_is_kept_as_it_was_judged_or_not_at_all(self):
        with session.writer() as connection:
            types.lock_unchanged(connection, self.fast["id"], {"a": "1"})
            for judged in ({}, {"a": "2"}, {"a": "1", "b": None}):
                with self.assertRaisesRegex(exception.Conflict, "changed meanwhile. Try again"):
                    types.lock_unchanged(connection, self.fast["id"], judged)
            with self.assertRaises(exception.VolumeTypeNotFound):
                types.lock_unchanged(connection, "gone", {})

    def test_a_type_that_is_gone_is_said_to_be(self):
        calls = [
            (types.update, {"name": "x"}),
            (types.merge_specs, {"a": "b"}),
            (types.delete_spec, "a"),
        ]
        for function, argument in calls:
            self.assertRaises(exception.VolumeTypeNotFound, function, "gone", argument)
        self.assertRaises(exception.VolumeTypeNotFound, types.delete, "gone")


class AccessTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        self.hidden = types.create({"name": "hidden", "is_public": False})["id"]

    def test_projects_get_and_lose_access(self):
        self.assertEqual([], types.list_access(self.hidden))
        types.add_access(self.hidden, "b")
        types.add_access(self.hidden, "a")
        self.assertEqual(["a", "b"], types.list_access(self.hidden))
        types.remove_access(self.hidden, "a")
        self.assertEqual(["b"], types.list_access(self.hidden))

    def test_access_is_given_once(self):
        types.add_access(self.hidden, "a")
        self.assertRaises(exception.TypeAccessExists, types.add_access, self.hidden, "a")

    def test_access_that_nobody_has_is_not_taken_away(self):
        self.assertRaises(exception.TypeAccessNotFound, types.remove_access, self.hidden, "a")

    def test_a_type_that_is_gone_gives_no_access(self):
        self.assertRaises(exception.VolumeTypeNotFound, types.add_access, "gone", "a")

    def test_access_goes_with_its_type(self):
        types.add_access(self.hidden, "a")
        types.delete(self.hidden)
        self.assertEqual([], types.list_access(self.hidden))
