# SPDX-License-Identifier: Apache-2.0
"""Which projects may use a private volume type."""

import unittest

from attachd import exception
from attachd.db import type_access, types
from attachd.tests import databases


class AccessTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        self.hidden = types.create({"name": "hidden", "is_public": False})["id"]

    def test_projects_get_and_lose_access(self):
        self.assertEqual([], type_access.projects(self.hidden))
        type_access.add(self.hidden, "b")
        type_access.add(self.hidden, "a")
        self.assertEqual(["a", "b"], type_access.projects(self.hidden))
        type_access.remove(self.hidden, "a")
        self.assertEqual(["b"], type_access.projects(self.hidden))

    def test_access_is_given_once(self):
        type_access.add(self.hidden, "a")
        self.assertRaises(exception.TypeAccessExists, type_access.add, self.hidden, "a")

    def test_access_that_nobody_has_is_not_taken_away(self):
        self.assertRaises(exception.TypeAccessNotFound, type_access.remove, self.hidden, "a")

    def test_a_type_that_is_gone_gives_no_access(self):
        self.assertRaises(exception.VolumeTypeNotFound, type_access.add, "gone", "a")

    def test_access_goes_with_its_type(self):
        type_access.add(self.hidden, "a")
        types.delete(self.hidden)
        self.assertEqual([], type_access.projects(self.hidden))
