# SPDX-License-Identifier: Apache-2.0
"""Default types of projects."""

import unittest

from attachd import exception
from attachd.api.default_types import handlers
from attachd.tests import asking


class DefaultTypesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.admin = asking.context(*asking.ADMIN)
        self.gold = asking.add_type("gold")["id"]
        self.hidden = asking.add_type("hidden", is_public=False)["id"]

    def put(self, project, kind):
        body = {"default_type": {"volume_type": kind}}
        return handlers.put(self.admin, project, body)["default_type"]

    def test_one_is_set_by_id_or_name_and_shown(self):
        for wanted in ("gold", self.gold):
            expected = {"project_id": "p", "volume_type_id": self.gold}
            self.assertEqual(expected, self.put("p", wanted))
            self.assertEqual({"default_type": expected}, handlers.show("p"))

    def test_it_may_be_private(self):
        self.assertEqual(self.hidden, self.put("p", "hidden")["volume_type_id"])

    def test_all_are_listed(self):
        self.assertEqual({"default_types": []}, handlers.index())
        self.put("b", "gold")
        self.put("a", "hidden")
        self.assertEqual(
            [("a", self.hidden), ("b", self.gold)],
            [(each["project_id"], each["volume_type_id"])
             for each in handlers.index()["default_types"]],
        )  # fmt: skip

    def test_it_is_unset_whether_there_was_one_or_not(self):
        self.put("p", "gold")
        for _ in range(2):
            handlers.delete("p")
        with self.assertRaises(exception.DefaultTypeNotFound):
            handlers.show("p")

    def test_an_unknown_type_is_a_mistake_in_the_body(self):
        for wanted in ("silver", asking.new_id()):
            with self.assertRaisesRegex(exception.BadRequest, wanted):
                self.put("p", wanted)

    def test_no_project_has_such_a_long_id(self):
        with self.assertRaises(exception.NotFound):
            self.put("p" * 65, "gold")
