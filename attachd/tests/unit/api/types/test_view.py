# SPDX-License-Identifier: Apache-2.0
"""What of a type is shown to whom."""

import unittest

from attachd.api.types import view
from attachd.tests import asking

SPECS = {"multiattach": "<is> True", "volume_backend_name": "shelf"}
ROW = {"id": "t", "name": "n", "description": None, "is_public": True, "extra_specs": SPECS}
KEYS = {"id", "name", "description", "is_public", "os-volume-type-access:is_public", "extra_specs"}


class ViewTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)

    def test_a_member_sees_what_a_volume_can_do(self):
        shown = view.detail(asking.context(), ROW)
        self.assertEqual(KEYS, set(shown))
        self.assertEqual({"multiattach": "<is> True"}, shown["extra_specs"])

    def test_an_administrator_sees_how_it_is_built(self):
        shown = view.detail(asking.context(*asking.ADMIN), ROW)
        self.assertEqual(KEYS | {"qos_specs_id"}, set(shown))
        self.assertEqual(SPECS, shown["extra_specs"])

    def test_who_is_nobody_sees_no_extra_specs(self):
        self.assertEqual(KEYS - {"extra_specs"}, set(view.detail(asking.context("guest"), ROW)))
