# SPDX-License-Identifier: Apache-2.0
"""Tests of the lookup of volume types and default types."""

from attachd import exception
from attachd.api.types import lookup
from attachd.db.types import default_types, type_store
from attachd.tests.fixtures import api_context, db_rows
from attachd.tests.fixtures.conf_fixture import override


class Case(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.gold = api_context.add_type("gold")
        self.hidden = api_context.add_type("hidden", is_public=False)
        self.member, self.admin = (
            api_context.make_context(),
            api_context.make_context(*api_context.ADMIN),
        )


class LookupTest(Case):
    def test_get_takes_id_only(self):
        self.assertEqual("gold", lookup.get(self.member, self.gold["id"])["name"])
        with self.assertRaises(exception.VolumeTypeNotFound):
            lookup.get(self.member, "gold")

    def test_get_by_id_or_name_takes_both(self):
        for wanted in (self.gold["id"], "gold"):
            self.assertEqual("gold", lookup.get_by_id_or_name(self.member, wanted)["name"])

    def test_get_by_id_or_name_prefers_id(self):
        api_context.add_type(self.gold["id"])
        self.assertEqual("gold", lookup.get_by_id_or_name(self.member, self.gold["id"])["name"])

    def test_get_by_id_or_name_takes_name_in_form_of_id(self):
        name = api_context.new_id()
        volume_type = api_context.add_type(name)
        self.assertEqual(volume_type["id"], lookup.get_by_id_or_name(self.member, name)["id"])

    def test_private_type_is_visible_to_admins(self):
        for wanted in (self.hidden["id"], "hidden"):
            with self.assertRaisesRegex(exception.VolumeTypeNotFound, wanted):
                lookup.get_by_id_or_name(self.member, wanted)
            self.assertEqual("hidden", lookup.get_by_id_or_name(self.admin, wanted)["name"])

    def test_private_type_is_visible_to_projects_with_access(self):
        type_store.add_access(self.hidden["id"], db_rows.PROJECT)
        stranger = api_context.make_context(project=api_context.OTHER_PROJECT)
        for wanted in (self.hidden["id"], "hidden"):
            self.assertEqual("hidden", lookup.get_by_id_or_name(self.member, wanted)["name"])
            with self.assertRaises(exception.VolumeTypeNotFound):
                lookup.get_by_id_or_name(stranger, wanted)

    def test_caller_without_project_sees_public_types(self):
        no_role = api_context.make_context(project=None)
        self.assertEqual("gold", lookup.get_by_id_or_name(no_role, "gold")["name"])
        with self.assertRaises(exception.VolumeTypeNotFound):
            lookup.get(no_role, self.hidden["id"])


class DefaultTest(Case):
    def default(self):
        default = lookup.default(self.member)
        return default and default["name"]

    def test_default_without_configuration_is_none(self):
        self.assertIsNone(self.default())

    def test_default_is_configured_type(self):
        override(self, "default_volume_type", "gold")
        self.assertEqual("gold", self.default())

    def test_default_of_project_wins_over_configured_one(self):
        override(self, "default_volume_type", "gold")
        silver = api_context.add_type("silver")["id"]
        default_types.set_default(api_context.OTHER_PROJECT, self.gold["id"])
        default_types.set_default(db_rows.PROJECT, silver)
        self.assertEqual("silver", self.default())

    def test_default_of_project_may_be_private(self):
        default_types.set_default(db_rows.PROJECT, self.hidden["id"])
        self.assertEqual("hidden", self.default())

    def test_default_with_unknown_name_raises(self):
        override(self, "default_volume_type", "silver")
        with self.assertRaisesRegex(exception.DefaultTypeMissing, "silver.*operator"):
            self.default()

    def test_check_default_with_unknown_name_logs_warning(self):
        override(self, "default_volume_type", "silver")
        with self.assertLogs("attachd.api.types.lookup", "WARNING") as logs:
            lookup.check_default()
        self.assertIn("silver, does not exist", logs.output[0])
        override(self, "default_volume_type", "gold")
        with self.assertNoLogs("attachd.api.types.lookup"):
            lookup.check_default()
