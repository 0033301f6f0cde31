# SPDX-License-Identifier: Apache-2.0
"""The number of lost hosts above which no host is fenced because of its lease."""

from unittest import mock

from attachd.db import models
from attachd.db.agents import host_leases
from attachd.db.agents.host_leases import FencedHost, HostLease
from attachd.manager.agents import fence_limiter
from attachd.manager.agents.fence_limiter import FenceLimiter
from attachd.telemetry import metrics
from attachd.tests.fixtures import conf_fixture


def host_lease(host, length=20):
    return HostLease(host, models.now(), models.now(), 0.0, length, None)


class FenceLimiterTest(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        name = "attachd.manager.agents.fence_limiter.boot_clock"
        self.enterContext(mock.patch(name, lambda: self.now))
        self.leased, self.fenced = 0, []
        self.counted = self.enterContext(
            mock.patch.object(host_leases, "count_leased", side_effect=lambda: self.leased)
        )
        self.enterContext(
            mock.patch.object(host_leases, "list_fenced", side_effect=lambda _: self.fenced)
        )
        self.limiter = FenceLimiter()

    def is_withholding(self, number, silent, *, length=20):
        self.leased = number
        self.limiter.update([host_lease(f"h{item}", length) for item in range(silent)])
        return self.limiter.is_withholding

    def test_lost_hosts_beyond_the_share_withhold_fences(self):
        for number, allowed in ((1, 1), (2, 1), (5, 1), (6, 1), (7, 2), (100, 33)):
            with self.subTest(number):
                self.assertFalse(self.is_withholding(number, allowed))
                if number > 1:
                    self.assertTrue(self.is_withholding(number, allowed + 1))

    def test_hosts_that_were_fenced_recently_count_as_lost(self):
        self.assertFalse(self.is_withholding(5, 1))
        self.fenced = [FencedHost("x", 20)]
        self.assertTrue(self.is_withholding(5, 1))
        self.fenced = [FencedHost("h0", 20)]
        self.assertFalse(self.is_withholding(5, 1), "it is the same host")

    def test_hosts_without_leases_count_when_they_are_lost(self):
        self.assertTrue(self.is_withholding(3, 2, length=None))
        self.assertFalse(self.is_withholding(5, 2, length=None))

    def test_one_lost_host_needs_no_count(self):
        self.is_withholding(100, 1)
        self.counted.assert_not_called()

    def test_update_says_when_the_number_has_fallen(self):
        self.leased = 4
        one, two = host_lease("h0"), host_lease("h1")
        self.assertFalse(self.limiter.update([]))
        self.assertFalse(self.limiter.update([one, two]))
        self.assertTrue(self.limiter.update([one]))
        self.assertFalse(self.limiter.update([one]))

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
