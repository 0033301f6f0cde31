# SPDX-License-Identifier: Apache-2.0
"""Quotas of classes."""

import unittest

from attachd import exception
from attachd.api.quotas import classes
from attachd.tests import asking


class ClassesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)

    def update(self, name, **body):
        return classes.update(name, {"quota_class_set": body})["quota_class_set"]

    def show(self, name):
        return classes.show(name)["quota_class_set"]

    def test_what_is_set_is_shown(self):
        asking.add_type("gold")
        shown = self.update("default", volumes=5, gigabytes_gold="9")
        self.assertEqual((5, 9, -1), tuple(shown[name] for name in
                         ("volumes", "gigabytes_gold", "gigabytes")))  # fmt: skip
        self.assertNotIn("id", shown)
        self.assertEqual({**shown, "id": "default"}, self.show("default"))

    def test_what_a_class_does_not_set_is_what_holds_by_default(self):
        self.update("default", volumes=5)
        self.update("big", gigabytes=7)
        shown = self.show("big")
        self.assertEqual((5, 7, "big"), (shown["volumes"], shown["gigabytes"], shown["id"]))
        self.assertEqual(-1, self.show("default")["gigabytes"])

    def test_what_is_not_limited_is_named(self):
        with self.assertRaisesRegex(exception.BadRequest, "quota class set: 'id', 'volumes_x'$"):
            self.update("default", id=1, volumes_x=2)
