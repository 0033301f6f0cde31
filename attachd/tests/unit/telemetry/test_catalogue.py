# SPDX-License-Identifier: Apache-2.0
"""The names of metrics."""

import re
import unittest

from attachd.telemetry import catalogue


class NamesTest(unittest.TestCase):
    def test_metrics_follow_prometheus_naming_rules(self):
        self.assertGreater(len(catalogue.ALL), 15)
        for each in catalogue.ALL:
            with self.subTest(each.name):
                self.assertRegex(each.name, r"^attachd_[a-z_]+$")
                self.assertEqual(each.kind == "counter", each.name.endswith("_total"))
                self.assertIn(each.kind, {"counter", "histogram", "gauge"})
                self.assertTrue(all(re.fullmatch("[a-z]+", label) for label in each.labels))
                self.assertTrue(each.help.endswith("."))

    def test_metric_names_are_unique(self):
        names = [each.name for each in catalogue.ALL]
        self.assertEqual(sorted(set(names)), sorted(names))
