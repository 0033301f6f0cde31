# SPDX-License-Identifier: Apache-2.0
"""Default types of projects."""

from unittest import mock

from attachd import exception
from attachd.db.types import default_types, type_store
from attachd.tests.fixtures import databases


class DefaultTypesTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.fast = type_store.create({"name": "fast"})
        self.slow = type_store.create({"name": "slow"})

    def test_get_returns_default_type_of_project(self):
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

    def test_list_all_sorts_by_project(self):
        for project in "bca":
            default_types.set_default(project, self.fast["id"])
        self.assertEqual(list("abc"), [row["project_id"] for row in default_types.list_all()])

    def test_delete_removes_default(self):
        default_types.set_default("a", self.fast["id"])
        default_types.delete("a")
        default_types.delete("a")
        self.assertIsNone(default_types.get_type("a"))

    def test_set_default_with_deleted_type_raises_not_found(self):
        self.assertRaises(exception.VolumeTypeNotFound, default_types.set_default, "a", "gone")

    def test_set_default_concurrently_keeps_last(self):
        default_types.set_default("a", self.slow["id"])
        real, answers = default_types._update, [False]

        def late(*arguments):
            return answers.pop() if answers else real(*arguments)

        with mock.patch.object(default_types, "_update", late):
            default_types.set_default("a", self.fast["id"])
        self.assertEqual(self.fast, default_types.get_type("a"))

    def test_delete_of_default_type_is_refused(self):
        default_types.set_default("a", self.fast["id"])
        self.assertRaises(exception.TypeIsDefault, type_store.delete, self.fast["id"])
        default_types.delete("a")
        type_store.delete(self.fast["id"])
