# SPDX-License-Identifier: Apache-2.0
"""Metrics and alerts in doc/source/admin/monitoring.rst."""

from pathlib import Path
import re
import unittest

import prometheus_client
import yaml

from attachd.telemetry import metrics
from attachd.tests.fixtures import metric_samples

ROOT = Path(__file__).parents[4]


class PageTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        page = ROOT / "doc" / "source" / "admin" / "monitoring.rst"
        self.text = page.read_text(encoding="utf-8")

    def test_monitoring_page_lists_each_metric_with_its_labels(self):
        rows = re.findall(r"\* - ((?:``attachd_\w+``(?:, )?)+)(?:: ([\w, ]+))?\n", self.text)
        documented = {
            name: tuple(label for label in labels.split(", ") if label)
            for names, labels in rows
            for name in re.findall(r"attachd_\w+", names)
        }
        known = {
            var.name: var.labels
            for var in vars(metrics).values()
            if isinstance(var, metrics.Gauge)
        }
        for metric in metric_samples.METRICS:
            suffix = "_total" if isinstance(metric, prometheus_client.Counter) else ""
            known[f"{metric._name}{suffix}"] = metric._labelnames
        self.assertEqual(known, documented)

    def test_monitoring_page_describes_each_alert_in_order(self):
        rules = yaml.safe_load((ROOT / "etc/attachd/alerts.yaml").read_text(encoding="utf-8"))
        alerts = [rule["alert"] for rule in rules["groups"][0]["rules"]]
        self.assertEqual(alerts, re.findall(r"\* - _`(Attachd\w+)`", self.text))
        for rule in rules["groups"][0]["rules"]:
            anchor = f"admin/monitoring.html#{rule['alert'].lower()}"
            self.assertEqual(anchor, rule["annotations"]["runbook"])
