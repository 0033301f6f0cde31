# SPDX-License-Identifier: Apache-2.0
"""What a project's volumes are that name no type."""

import unittest
from unittest import mock

from attachd import exception
from attachd.db.types import default_types
from attachd.db.types import store as types
from attachd.tests.fixtures import databases


class DefaultTypesTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        self.fast = types.create({"name": "fast"})
        self.slow = types.create({"name": "slow"})

    def test_a_project_has_none_or_one(self):
        self.assertIsNone(default_types.get_type("a"))
        self.assertRaises(exception.DefaultTypeNotFound, default_types.get, "a")
        default_types.set_default("a", self.fast["id"])
        self.assertEqual(self.fast, default_types.get_type("a"))
        default_types.set_default("a", self.slow["id"])
        self.assertEqual(self.slow, default_types.get_type("a"))
        self.assertEqual(
            {"project_id": "a", "volume_type_id": self.slow["id"]}, default_types.get("a")
        )
        self.assertIsNone(default_types.get_type("b"))
        self.assertIsNone(default_types.get_type(None))

    def test_all_are_sorted_by_project(self):
        for project in "bca":
            default_types.set_default(project, self.fast["id"])
        self.assertEqual(list("abc"), [row["project_id"] for row in default_types.list_all()])

    def test_a_project_can_be_without_again(self):
        default_types.set_default("a", self.fast["id"])
        default_types.delete("a")
        default_types.delete("a")
        self.assertIsNone(default_types.get_type("a"))

    def test_a_type_that_is_gone_is_no_default(self):
        self.assertRaises(exception.VolumeTypeNotFound, default_types.set_default, "a", "gone")

    def test_who_comes_second_by_a_moment_overwrites(self):
        default_types.set_default("a", self.slow["id"])
        real, answers = default_types._update, [False]

        def late(*arguments):
            return answers.pop() if answers else real(*arguments)

        with mock.patch.object(default_types, "_update", late):
            default_types.set_default("a", self.fast["id"])
        self.assertEqual(self.fast, default_types.get_type("a"))

    def test_a_default_type_stays(self):
        default_types.set_default("a", self.fast["id"])
        self.assertRaises(exception.TypeIsDefault, types.delete, self.fast["id"])
        default_types.delete("a")
        types.delete(self.fast["id"])
