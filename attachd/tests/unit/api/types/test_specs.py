# SPDX-License-Identifier: Apache-2.0
"""Tests of the extra specs of volume types."""

from attachd import exception
from attachd.api.types import specs
from attachd.tests.fixtures import api_context, db_rows

SPECS = {"multiattach": "<is> True", "inner": "x"}


class SpecsTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.type_id = api_context.add_type(extra_specs=SPECS)["id"]
        self.admin = api_context.make_context(*api_context.ADMIN)

    def all(self):
        return specs.index(self.admin, self.type_id)["extra_specs"]

    def test_index_for_member_shows_visible_specs(self):
        member = api_context.make_context()
        shown = specs.index(member, self.type_id)
        self.assertEqual({"extra_specs": {"multiattach": "<is> True"}}, shown)
        shown = specs.show(member, self.type_id, "multiattach")
        self.assertEqual({"multiattach": "<is> True"}, shown)
        with self.assertRaisesRegex(exception.NotFound, "inner"):
            specs.show(member, self.type_id, "inner")

    def test_create_merges_specs(self):
        shown = specs.create(self.admin, self.type_id, {"extra_specs": {"new": "1"}})
        self.assertEqual({"extra_specs": {"new": "1"}}, shown)
        self.assertEqual({**SPECS, "new": "1"}, self.all())

    def test_update_sets_one_spec(self):
        self.assertEqual(
            {"inner": "y"}, specs.update(self.admin, self.type_id, "inner", {"inner": "y"})
        )
        self.assertEqual("y", self.all()["inner"])

    def test_update_with_different_key_in_body_is_refused(self):
        with self.assertRaisesRegex(exception.BadRequest, "mismatch"):
            specs.update(self.admin, self.type_id, "inner", {"outer": "y"})

    def test_delete_removes_one_spec(self):
        specs.delete(self.admin, self.type_id, "inner")
        self.assertEqual({"multiattach": "<is> True"}, self.all())
        with self.assertRaisesRegex(exception.NotFound, "inner"):
            specs.delete(self.admin, self.type_id, "inner")

    def test_changes_with_volumes_of_type_are_refused(self):
        db_rows.add_volume(volume_type_id=self.type_id)
        acts = (
            lambda: specs.create(self.admin, self.type_id, {"extra_specs": {"new": "1"}}),
            lambda: specs.update(self.admin, self.type_id, "inner", {"inner": "y"}),
            lambda: specs.delete(self.admin, self.type_id, "inner"),
        )
        for act in acts:
            with self.assertRaisesRegex(exception.BadRequest, "in use"):
                act()
        self.assertEqual(SPECS, self.all())

    def test_specs_of_unknown_type_are_not_found(self):
        for act in (specs.index, lambda *args: specs.delete(*args, "k")):
            with self.assertRaises(exception.VolumeTypeNotFound):
                act(self.admin, api_context.new_id())
