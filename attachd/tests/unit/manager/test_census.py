# SPDX-License-Identifier: Apache-2.0
"""What a manager tells of the database."""

import unittest
from unittest import mock

import prometheus_client

from attachd import exception
from attachd.db import services
from attachd.manager import census
from attachd.tests import backends, metrics, rows
from attachd.tests.wait import TIMEOUT


class CollectorTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        backends.use(self)
        backends.override(self, "count_interval", 1.0, "metrics")
        self.registry = prometheus_client.CollectorRegistry()
        collector = census.Collector()
        collector._probe._patience = TIMEOUT
        self.probe = collector._probe
        self.registry.register(collector)

    def ask(self):
        text = prometheus_client.generate_latest(self.registry).decode()
        return {name: value for (name, _labels), value in metrics.read(text).items()}

    def test_it_tells_what_there_is(self):
        rows.add_attachment(rows.add_volume()["id"], "connecting")
        services.report(
            binary="m", host="a@x", availability_zone="nova", up=True, error=None, report=None
        )
        found = self.ask()
        self.assertEqual(1.0, found["attachd_database_up"])
        self.assertEqual(1.0, found["attachd_attachments"])
        self.assertEqual(1.0, found["attachd_backend_up"])
        self.assertGreaterEqual(found["attachd_backend_report_age_seconds"], 0.0)

    def test_it_asks_seldom(self):
        self.probe._fresh_for = 1000.0
        self.ask()
        with mock.patch.object(census.census, "take") as take:
            self.ask()
        take.assert_not_called()

    def test_without_a_database_it_tells_that_and_no_old_numbers(self):
        self.probe._fresh_for = 0.0
        self.ask()
        gone = exception.Unavailable(reason="gone")
        with mock.patch.object(census.census, "take", side_effect=gone):
            found = self.ask()
        self.assertEqual(0.0, found["attachd_database_up"])
        self.assertEqual({"attachd_database_up", "attachd_count_age_seconds"}, set(found))
