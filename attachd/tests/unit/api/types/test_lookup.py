# SPDX-License-Identifier: Apache-2.0
"""Which type is meant."""

import unittest

from attachd import exception
from attachd.api.types import lookup
from attachd.db.types import default_types
from attachd.db.types import store as types
from attachd.tests import asking, rows
from attachd.tests.backends import override


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.gold = asking.add_type("gold")
        self.hidden = asking.add_type("hidden", is_public=False)
        self.member, self.admin = asking.context(), asking.context(*asking.ADMIN)


class LookupTest(Case):
    def test_by_id_only(self):
        self.assertEqual("gold", lookup.get(self.member, self.gold["id"])["name"])
        with self.assertRaises(exception.VolumeTypeNotFound):
            lookup.get(self.member, "gold")

    def test_by_id_or_name(self):
        for wanted in (self.gold["id"], "gold"):
            self.assertEqual("gold", lookup.get_by_id_or_name(self.member, wanted)["name"])

    def test_a_name_that_looks_like_an_id_yields_to_it(self):
        asking.add_type(self.gold["id"])
        self.assertEqual("gold", lookup.get_by_id_or_name(self.member, self.gold["id"])["name"])

    def test_a_name_may_look_like_an_id(self):
        name = asking.new_id()
        kind = asking.add_type(name)
        self.assertEqual(kind["id"], lookup.get_by_id_or_name(self.member, name)["id"])

    def test_private_ones_are_for_administrators(self):
        for wanted in (self.hidden["id"], "hidden"):
            with self.assertRaisesRegex(exception.VolumeTypeNotFound, wanted):
                lookup.get_by_id_or_name(self.member, wanted)
            self.assertEqual("hidden", lookup.get_by_id_or_name(self.admin, wanted)["name"])

    def test_private_ones_are_for_projects_that_have_access(self):
        types.add_access(self.hidden["id"], rows.PROJECT)
        stranger = asking.context(project=asking.OTHER_PROJECT)
        for wanted in (self.hidden["id"], "hidden"):
            self.assertEqual("hidden", lookup.get_by_id_or_name(self.member, wanted)["name"])
            with self.assertRaises(exception.VolumeTypeNotFound):
                lookup.get_by_id_or_name(stranger, wanted)

    def test_who_has_no_project_knows_public_ones(self):
        nobody = asking.context(project=None)
        self.assertEqual("gold", lookup.get_by_id_or_name(nobody, "gold")["name"])
        with self.assertRaises(exception.VolumeTypeNotFound):
            lookup.get(nobody, self.hidden["id"])


class DefaultTest(Case):
    def default(self):
        found = lookup.default(self.member)
        return found and found["name"]

    def test_there_may_be_none(self):
        self.assertIsNone(self.default())

    def test_the_configured_one(self):
        override(self, "default_volume_type", "gold")
        self.assertEqual("gold", self.default())

    def test_that_of_the_project_counts_first(self):
        override(self, "default_volume_type", "gold")
        silver = asking.add_type("silver")["id"]
        default_types.set_default(asking.OTHER_PROJECT, self.gold["id"])
        default_types.set_default(rows.PROJECT, silver)
        self.assertEqual("silver", self.default())

    def test_a_private_one_is_meant_for_the_project(self):
        default_types.set_default(rows.PROJECT, self.hidden["id"])
        self.assertEqual("hidden", self.default())

    def test_one_that_is_not_there_is_the_operators_mistake(self):
        override(self, "default_volume_type", "silver")
        with self.assertRaisesRegex(exception.DefaultTypeMissing, "silver.*operator"):
            self.default()

    def test_the_operator_is_told_at_the_start(self):
        override(self, "default_volume_type", "silver")
        with self.assertLogs("attachd.api.types.lookup", "WARNING") as logs:
            lookup.check_default()
        self.assertIn("silver, does not exist", logs.output[0])
        override(self, "default_volume_type", "gold")
        with self.assertNoLogs("attachd.api.types.lookup"):
            lookup.check_default()
