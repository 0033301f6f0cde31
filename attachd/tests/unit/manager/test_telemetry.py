# SPDX-License-Identifier: Apache-2.0
"""What is begun where a manager is watched; tests/functional watches a real one."""

import unittest
from unittest import mock

from attachd.conf import CONF
from attachd.manager import telemetry
from attachd.manager.ha.membership import Presence
from attachd.telemetry import exporter, recorder, tracing
from attachd.tests import backends, metrics


class LoadTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        metrics.use(self)

    def test_nothing_is_measured_where_nobody_wants_it(self):
        telemetry.watch([self.backend])
        self.assertNotIn("grant", vars(self.backend.driver))
        self.assertEqual([], exporter._exporters)

    def test_metrics_are_told(self):
        backends.override(self, "enabled", True, "metrics")
        backends.override(self, "manager_port", 0, "metrics")
        recorder.stop()  # as before anybody has begun to count
        telemetry.watch([self.backend])
        self.assertIn("grant", vars(self.backend.driver))
        self.assertEqual(1, len(exporter._exporters))
        labels = {"backend": backends.HOST, "step": "revoke", "outcome": "failed"}
        self.assertEqual(0.0, metrics.value(recorder.start(), "attachd_steps_total", **labels))

    def test_traces_alone_need_no_exporter(self):
        with mock.patch.object(tracing, "is_on", return_value=True):
            telemetry.watch([self.backend])
        self.assertIn("revoke", vars(self.backend.driver))
        self.assertEqual([], exporter._exporters)

    def test_all_is_begun_for_what_is_served(self):
        CONF([], project="attachd", default_config_files=[])
        backends.override(self, "enabled_backends", [])
        with mock.patch.object(telemetry, "meditation") as meditation:
            self.assertEqual([], telemetry.load(Presence()))
        meditation.begin.assert_called_once_with([])
