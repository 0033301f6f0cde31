# SPDX-License-Identifier: Apache-2.0
"""Which type is meant."""

import unittest

from attachd import exception
from attachd.api.types import lookup
from attachd.tests import asking
from attachd.tests.backends import override


class LookupTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.gold = asking.add_type("gold")
        self.hidden = asking.add_type("hidden", is_public=False)
        self.member, self.admin = asking.context(), asking.context(*asking.ADMIN)

    def test_by_id_only(self):
        self.assertEqual("gold", lookup.by_id(self.member, self.gold["id"])["name"])
        with self.assertRaises(exception.VolumeTypeNotFound):
            lookup.by_id(self.member, "gold")

    def test_by_id_or_name(self):
        for wanted in (self.gold["id"], "gold"):
            self.assertEqual("gold", lookup.by_id_or_name(self.member, wanted)["name"])

    def test_a_name_that_looks_like_an_id_yields_to_it(self):
        asking.add_type(self.gold["id"])
        self.assertEqual("gold", lookup.by_id_or_name(self.member, self.gold["id"])["name"])

    def test_private_ones_are_for_administrators(self):
        for wanted in (self.hidden["id"], "hidden"):
            with self.assertRaisesRegex(exception.VolumeTypeNotFound, wanted):
                lookup.by_id_or_name(self.member, wanted)
            self.assertEqual("hidden", lookup.by_id_or_name(self.admin, wanted)["name"])

    def test_the_default_one(self):
        self.assertIsNone(lookup.default())
        override(self, "default_volume_type", "gold")
        self.assertEqual(self.gold["id"], lookup.default()["id"])

    def test_a_default_that_is_not_there_is_the_operators_mistake(self):
        override(self, "default_volume_type", "silver")
        with self.assertRaisesRegex(exception.ConfigurationError, "'silver'"):
            lookup.default()
