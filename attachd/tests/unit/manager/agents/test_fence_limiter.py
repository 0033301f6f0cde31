# SPDX-License-Identifier: Apache-2.0
"""The number of lost hosts above which no host is fenced because of its lease."""

from unittest import mock

from attachd.db import models
from attachd.db.agents.host_leases import HostLease
from attachd.manager.agents import fence_limiter
from attachd.manager.agents.fence_limiter import FenceLimiter
from attachd.telemetry import metrics
from attachd.tests.fixtures import conf_fixture


def host_lease(host, length=20, lost_action=None, lost_for=None):
    return HostLease(host, models.now(), 0.0, length, lost_action, lost_for)


class FenceLimiterTest(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        name = "attachd.manager.agents.fence_limiter.boot_clock"
        self.enterContext(mock.patch(name, lambda: self.now))
        self.limiter = FenceLimiter()

    def is_withholding(self, number, silent, fenced=()):
        known = [host_lease(f"h{item}") for item in range(number)]
        self.limiter.update([*known, *fenced], [f"h{item}" for item in range(silent)])
        return self.limiter.is_withholding

    def test_lost_hosts_beyond_the_share_withhold_fences(self):
        for number, allowed in ((1, 1), (2, 1), (5, 1), (6, 1), (7, 2), (100, 33)):
            with self.subTest(number):
                self.assertFalse(self.is_withholding(number, allowed))
                if number > 1:
                    self.assertTrue(self.is_withholding(number, allowed + 1))

    def test_hosts_that_were_fenced_recently_count_as_lost(self):
        for seconds, expected in ((10, True), (-10, True), (601, False)):
            with self.subTest(seconds):
                fenced = host_lease("x", 20, "fence", seconds)
                self.assertIs(expected, self.is_withholding(4, 1, [fenced]))

    def test_hosts_without_leases_do_not_count(self):
        known = [host_lease("h0"), *(host_lease(f"n{item}", None) for item in range(50))]
        self.limiter.update(known, ["h0", "h1"])
        self.assertTrue(self.limiter.is_withholding)

    def test_update_says_when_the_number_has_fallen(self):
        known = [host_lease(f"h{item}") for item in range(4)]
        self.assertFalse(self.limiter.update(known, []))
        self.assertFalse(self.limiter.update(known, ["h0", "h1"]))
        self.assertTrue(self.limiter.update(known, ["h0"]))
        self.assertFalse(self.limiter.update(known, ["h0"]))

    def test_alarm_is_logged_and_counted_once_a_minute(self):
        conf_fixture.override(self, "max_lost_hosts_percent", 50, group="manager")
        self.is_withholding(4, 3)
        counted = self.enterContext(mock.patch.object(metrics, "count"))
        with self.assertLogs(fence_limiter.LOG.name, "ERROR") as logged:
            for now in (0.0, 59.0, 61.0):
                self.now = now
                self.limiter.alarm(["h1", "h0"])
            self.limiter.alarm([])
        self.assertEqual(2, len(logged.output))
        self.assertIn("Hosts h0, h1: not fenced", logged.output[0])
        self.assertIn("3 hosts are lost, 2 may be", logged.output[0])
        self.assertEqual(
            [mock.call(metrics.LOST_AGENTS, "withheld", by=2)] * 2, counted.call_args_list
        )
