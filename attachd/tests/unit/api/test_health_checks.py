# SPDX-License-Identifier: Apache-2.0
"""What is found out about database, message queue and backends."""

import datetime
import itertools
import threading
import unittest
from unittest import mock

import oslo_messaging as messaging
from stevedore import extension

from attachd import exception
from attachd.api import health_checks
from attachd.conf import CONF
from attachd.db import models, services
from attachd.rpc import transport
from attachd.telemetry import cached_probe
from attachd.tests import backends, rows
from attachd.tests.wait import TIMEOUT, wait_until


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        backends.use(self)
        self.enterContext(mock.patch.object(health_checks, "PATIENCE", TIMEOUT))
        for name in ("ROWS_FRESH", "PING_FRESH"):
            self.enterContext(mock.patch.object(health_checks, name, 0.0))
        self.ping = self.enterContext(mock.patch.object(transport, "ping"))
        health_checks.forget()
        self.addCleanup(health_checks.forget)
        self.health = health_checks.health()

    def report(self, host, *, up=True, error=None):
        services.report(
            binary="m", host=host, availability_zone="nova", up=up, error=error, report=None
        )


class HealthTest(Case):
    def test_all_is_well(self):
        self.report("h@a")
        found = [self.health.database(), self.health.broker(), *self.health.backends()]
        self.assertEqual(["database", "broker", "backend h@a"], [each.name for each in found])
        self.assertEqual([None] * 3, [each.reason for each in found])

    def test_a_database_that_does_not_answer_is_told_and_since_when(self):
        now, epoch = itertools.count(1000.0, 100.0), models.now()
        moment = next(now)

        def database():
            nonlocal moment
            moment = next(now)
            return self.health.database()

        clock = mock.Mock(monotonic=lambda: moment)
        self.enterContext(mock.patch.object(cached_probe, "time", clock))
        wall = mock.Mock(utcnow=lambda: epoch + datetime.timedelta(seconds=moment))
        self.enterContext(mock.patch.object(health_checks, "timeutils", wall))
        self.assertTrue(database().well)
        gone = exception.Unavailable(reason="mysql://user:password@host")
        with mock.patch.object(services, "page", side_effect=gone):
            first = database()
            self.assertEqual(wall.utcnow(), first.since)
            second = database()
            self.assertEqual([], self.health.backends())
        self.assertEqual("The database does not answer.", first.reason)
        self.assertEqual(first.since, second.since)
        self.assertTrue(database().well)

    def test_an_error_that_nobody_foresaw_tells_no_secret(self):
        self.ping.side_effect = messaging.MessageDeliveryFailure("amqp://user:password@host")
        expected = "The broker cannot be used (MessageDeliveryFailure)."
        self.assertEqual(expected, self.health.broker().reason)

    def test_one_that_hangs_keeps_nobody_for_long(self):
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        self.ping.side_effect = lambda: go_on.wait(TIMEOUT)
        with mock.patch.object(health_checks, "PATIENCE", 0.05):  # it hangs, slow or not
            health_checks.forget()
            for _ in range(20):
                found = health_checks.health().broker()
        self.assertRegex(found.reason, "The broker gives no answer for [0-9]+ seconds")
        wait_until(lambda: self.ping.call_count)
        self.assertEqual(1, self.ping.call_count)

    def test_backends_are_told_one_by_one(self):
        self.report("h@a", up=False, error="The password is 1234.")
        self.report("h@b")
        self.report("h@c")
        long_ago = models.now() - datetime.timedelta(days=1)
        rows.change_service("h@c", seen_at=long_ago)
        broken, well, silent = self.health.backends()
        self.assertIn("storage cannot be used", broken.reason)
        self.assertNotIn("1234", broken.reason)
        self.assertTrue(well.well)
        self.assertEqual((False, long_ago), (silent.well, silent.since))
        self.assertEqual(broken.since, self.health.backends()[0].since)
        self.report("h@a")
        self.assertGreaterEqual(self.health.backends()[0].since, broken.since)

    def test_a_storm_costs_one_statement(self):
        with mock.patch.object(health_checks, "ROWS_FRESH", 1000.0):
            health_checks.forget()
        with mock.patch.object(services, "page", return_value=[]) as page:
            for _ in range(100):
                health_checks.health().database()
        page.assert_called_once()


class PluginTest(Case):
    def plugins(self):
        found = extension.ExtensionManager(
            "oslo.middleware.healthcheck", invoke_on_load=True, invoke_args=(CONF, {})
        )
        return {each.name: each.obj for each in found if each.name.startswith("attachd_")}

    def test_each_answers_as_oslo_middleware_asks(self):
        self.report("h@a")
        plugins = self.plugins()
        self.assertEqual({"attachd_database", "attachd_broker", "attachd_backends"}, set(plugins))
        for name, each in plugins.items():
            found = each.healthcheck(8776)
            self.assertEqual((True, "OK"), (found.available, found.reason), name)

    def test_each_says_what_is_wrong(self):
        self.ping.side_effect = OSError
        self.report("h@a", up=False)
        plugins = self.plugins()
        for name, expected in (
            ("attachd_broker", "broker: The broker cannot be used"),
            ("attachd_backends", "backend h@a: Its storage"),
        ):
            found = plugins[name].healthcheck(8776)
            self.assertFalse(found.available)
            self.assertIn(expected, found.reason)
        with mock.patch.object(services, "page", side_effect=exception.Unavailable(reason="x")):
            self.assertFalse(plugins["attachd_database"].healthcheck(8776).available)
