# SPDX-License-Identifier: Apache-2.0
"""What of a type is shown to whom."""

import unittest

from attachd.api.types import view
from attachd.tests import asking

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


class ViewTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)

    def shown(self, *roles):
        return view.detail(ROW, view.Viewer.from_context(asking.context(*roles)))

    def test_a_member_sees_what_a_volume_can_do(self):
        shown = self.shown()
        self.assertEqual(KEYS | {view.IS_PUBLIC, "extra_specs"}, set(shown))
        self.assertEqual({"multiattach": "<is> True"}, shown["extra_specs"])

    def test_an_administrator_sees_how_it_is_built(self):
        shown = self.shown(*asking.ADMIN)
        self.assertEqual(KEYS | {view.IS_PUBLIC, "extra_specs", "qos_specs_id"}, set(shown))
        self.assertEqual((SPECS, "q"), (shown["extra_specs"], shown["qos_specs_id"]))

    def test_a_reader_sees_visibility_by_one_name(self):
        self.assertEqual(KEYS | {"extra_specs"}, set(self.shown("reader")))

    def test_who_is_nobody_sees_no_extra_specs(self):
        self.assertEqual(KEYS, set(self.shown("guest")))

    def test_an_update_shows_visibility_by_one_name(self):
        viewer = view.Viewer.from_context(asking.context(*asking.ADMIN))
        self.assertNotIn(view.IS_PUBLIC, view.updated(ROW, viewer))

    def test_what_was_changed_does_not_tell_its_qos(self):
        viewer = view.Viewer.from_context(asking.context(*asking.ADMIN))
        for shown in (view.created(ROW, viewer), view.updated(ROW, viewer)):
            self.assertNotIn("qos_specs_id", shown)
