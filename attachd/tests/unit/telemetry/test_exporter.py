# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of the metrics."""

import unittest
from unittest import mock
import urllib.request

from attachd.conf import CONF
from attachd.telemetry import exporter, metrics
from attachd.telemetry.metrics import BUILD, COMMITS, VOLUMES
from attachd.tests.fixtures import conf_fixture, lifetime, metric_samples
from attachd.tests.wait import TIMEOUT, wait_until


class Static:
    def collect(self):
        return [VOLUMES.family({("available",): 3.0})]


class ExporterTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        metric_samples.use(self)
        metrics.disable()
        CONF([], project="attachd", default_config_files=[])
        conf_fixture.override(self, "api_port", 0, "metrics")
        self.enterContext(mock.patch.object(exporter, "PAUSE", 0.05))

    def start(self, totals=dict, port=0):
        made = exporter.Exporter(exporter.Address("127.0.0.1", port), "1.2.3", totals)
        self.addCleanup(made.stop)
        made.start()
        return made

    def ask(self, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT) as answer:
            return metric_samples.parse_samples(answer.read().decode())

    def test_metrics_page_shows_recorded_and_collected_values(self):
        made = self.start(lambda: {COMMITS: 4.0})
        made.add(Static())
        made.start()
        found = self.ask(wait_until(lambda: made.port))
        self.assertEqual(1.0, found[BUILD.name, frozenset({("version", "1.2.3")})])
        self.assertEqual(3.0, found[VOLUMES.name, frozenset({("status", "available")})])
        self.assertEqual(4.0, found["attachd_database_commits_total", frozenset()])

    def test_second_process_serves_port_after_first_has_stopped(self):
        folder = lifetime.temp_dir(self)
        self.enterContext(mock.patch.object(metrics, "shared_folder", return_value=folder))
        first = self.start()
        port = wait_until(lambda: first.port)
        second = self.start(port=port)
        self.assertIsNone(second.port)
        first.stop()
        self.assertEqual(port, wait_until(lambda: second.port))
        self.ask(port)

    def test_port_taken_by_other_program_is_logged_once_and_retried(self):
        first = self.start()
        port = wait_until(lambda: first.port)
        with (
            self.assertLogs("attachd.telemetry.exporter", "WARNING") as said,
            mock.patch.object(metrics, "sync_external") as tried,
        ):
            second = self.start(port=port)
            wait_until(lambda: tried.call_count > 3)
        self.assertEqual(1, len(said.output))
        self.assertIn("Address already in use", said.output[0])
        self.assertIsNone(second.port)

    def test_exporter_is_created_once_per_process(self):
        one = exporter.get_exporter("api", "1", dict)
        self.assertIs(one, exporter.get_exporter("manager", "1", dict))
        exporter.stop()
