# SPDX-License-Identifier: Apache-2.0
"""Tests of QoS specs as answers show them."""

import unittest

from attachd.api.qos_specs import view
from attachd.tests.fixtures import api_context

ROW = {"id": "q", "name": "n", "consumer": "both", "specs": {"k": "v"}, "created_at": 1}


class ViewTest(unittest.TestCase):
    def test_detail_has_links_beside_specs(self):
        shown = view.detail(ROW, api_context.make_links())
        self.assertEqual({"qos_specs", "links"}, set(shown))
        self.assertEqual(view.summary(ROW), shown["qos_specs"])

    def test_summary_has_no_times(self):
        self.assertEqual({"id", "name", "consumer", "specs"}, set(view.summary(ROW)))

    def test_association_names_type(self):
        self.assertEqual(
            {"association_type": "volume_type", "name": "gold", "id": "t"},
            view.association({"id": "t", "name": "gold"}),
        )
