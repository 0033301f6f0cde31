# SPDX-License-Identifier: Apache-2.0
"""Volume types and their extra specs."""

import unittest

from attachd import exception
from attachd.db import types
from attachd.db.paging import Page
from attachd.tests import databases, rows


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

    def test_columns_can_be_changed(self):
        types.update(self.fast["id"], {"description": "quick", "is_public": False})
        row = types.get(self.fast["id"])
        self.assertEqual(("quick", False), (row["description"], row["is_public"]))
        self.assertIsNotNone(row["updated_at"])

    def test_a_type_that_volumes_have_stays(self):
        volume = rows.add_volume(volume_type_id=self.fast["id"])
        self.assertRaises(exception.TypeInUse, types.delete, self.fast["id"])
        rows.change_volume(volume["id"], volume_type_id=None)
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

    def test_a_type_that_is_gone_is_said_to_be(self):
        calls = [
            (types.update, {"name": "x"}),
            (types.merge_specs, {"a": "b"}),
            (types.delete_spec, "a"),
        ]
        for function, argument in calls:
            self.assertRaises(exception.VolumeTypeNotFound, function, "gone", argument)
        self.assertRaises(exception.VolumeTypeNotFound, types.delete, "gone")
