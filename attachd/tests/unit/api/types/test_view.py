# SPDX-License-Identifier: Apache-2.0
"""Tests of volume types as answers show them, by caller."""

from attachd.api.types import view
from attachd.tests.fixtures import api_context

SPECS = {"multiattach": "<is> True", "volume_backend_name": "shelf"}
ROW = {
    "id": "t",
    "name": "n",
    "description": None,
    "is_public": True,
    "extra_specs": SPECS,
    "qos_specs_id": "q",
}
KEYS = {"id", "name", "description", "is_public"}


class ViewTest(api_context.ApiContextCase):
    def shown(self, *roles):
        return view.detail(ROW, view.Viewer.from_context(api_context.make_context(*roles)))

    def test_detail_for_member_shows_visible_specs(self):
        shown = self.shown()
        self.assertEqual(KEYS | {view.IS_PUBLIC, "extra_specs"}, set(shown))
        self.assertEqual({"multiattach": "<is> True"}, shown["extra_specs"])

    def test_detail_for_admin_shows_all_specs(self):
        shown = self.shown(*api_context.ADMIN)
        self.assertEqual(KEYS | {view.IS_PUBLIC, "extra_specs", "qos_specs_id"}, set(shown))
        self.assertEqual((SPECS, "q"), (shown["extra_specs"], shown["qos_specs_id"]))

    def test_detail_for_reader_has_one_name_of_is_public(self):
        self.assertEqual(KEYS | {"extra_specs"}, set(self.shown("reader")))

    def test_detail_without_roles_has_no_extra_specs(self):
        self.assertEqual(KEYS, set(self.shown("guest")))

    def test_updated_has_one_name_of_is_public(self):
        viewer = view.Viewer.from_context(api_context.make_context(*api_context.ADMIN))
        self.assertNotIn(view.IS_PUBLIC, view.updated(ROW, viewer))

    def test_updated_has_no_qos_specs_id(self):
        viewer = view.Viewer.from_context(api_context.make_context(*api_context.ADMIN))
        for shown in (view.created(ROW, viewer), view.updated(ROW, viewer)):
            self.assertNotIn("qos_specs_id", shown)
