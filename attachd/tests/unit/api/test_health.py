# SPDX-License-Identifier: Apache-2.0
"""Tests of the short and the detailed response of /healthcheck."""

import datetime
import itertools
import threading
import unittest
from unittest import mock

import oslo_messaging as messaging
import sqlalchemy as sa
from stevedore import extension

from attachd import exception
from attachd.api import app, health
from attachd.conf import CONF
from attachd.db import models
from attachd.db.cluster import services
from attachd.db.engine import session
from attachd.rpc import path_check, transport
from attachd.telemetry import cached_probe
from attachd.tests.fixtures import backends, conf_fixture, databases, db_rows, wsgi_api
from attachd.tests.wait import TIMEOUT, wait_until

DETAIL = "/healthcheck?detailed"


class HealthCheckTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.api = wsgi_api.use(self)
        self.enterContext(mock.patch.object(health, "PROBE_TIMEOUT", TIMEOUT))
        for name in ("ROWS_TTL", "WRITES_TTL", "PING_TTL"):
            self.enterContext(mock.patch.object(health, name, 0.0))
        self.addCleanup(health.reset)
        self.api.application = app.make_app()

    def request(self, path="/healthcheck", address="127.0.0.1", method="GET", **environ):
        made = wsgi_api.WsgiApi._environ(method, path, b"")
        made |= {"HTTP_ACCEPT": "*/*", "REMOTE_ADDR": address}
        return self.api.send(made | environ)

    def without_database(self):
        gone = exception.Unavailable(reason="mysql://user:password@host")
        return mock.patch.object(services, "page", side_effect=gone)

    def test_short_response_is_public(self):
        for address in ("127.0.0.1", "192.0.2.7", "2001:db8::7"):
            found = self.request(address=address)
            self.assertEqual((200, b"OK"), (found.status, found.raw))
        self.assertEqual(204, self.request(method="HEAD").status)

    def test_database_down_returns_503_with_reason(self):
        with self.without_database():
            found = self.request()
            self.assertEqual(503, found.status)
            self.assertEqual(b"database: The database does not answer.", found.raw)
            self.assertEqual(503, self.request(method="HEAD").status)
            detail = self.request(DETAIL)
        self.assertEqual((503, "failed"), (detail.status, detail.body["status"]))
        self.assertNotIn(b"password", detail.raw)
        self.assertEqual(200, self.request().status)

    def test_database_that_refuses_writes_returns_503_with_reason(self):
        url = sa.make_url(databases.use(self, "postgresql"))
        read_only = url.update_query_dict({"options": "-c default_transaction_read_only=on"})
        session.dispose()
        text = read_only.render_as_string(hide_password=False)
        CONF.set_override("connection", text, group="database")
        found, detail = self.request(), self.request(DETAIL)
        self.assertEqual(503, found.status)
        self.assertEqual(b"database: The database is read-only. Try again later.", found.raw)
        self.assertEqual((503, "failed"), (detail.status, detail.body["status"]))

    def test_details_list_all_checks_with_time(self):
        found = self.request(DETAIL)
        self.assertEqual((200, "ok"), (found.status, found.body["status"]))
        names = [check["name"] for check in found.body["checks"]]
        self.assertEqual(["database", "broker", f"backend {backends.HOST}"], names)
        for check in found.body["checks"]:
            self.assertEqual({"name", "status", "reason", "since"}, set(check))
            self.assertRegex(check["since"], r"^\d{4}-\d\d-\d\dT")
        by_accept = self.request(HTTP_ACCEPT="application/json")
        self.assertEqual(names, [check["name"] for check in by_accept.body["checks"]])

    def test_backend_down_only_degrades(self):
        db_rows.report_service(backends.HOST, up=False, error="The password is 1234.")
        found = self.request(DETAIL)
        self.assertEqual((200, "degraded"), (found.status, found.body["status"]))
        self.assertEqual("failed", found.body["checks"][-1]["status"])
        self.assertNotIn(b"1234", found.raw)
        self.assertEqual(b"OK", self.request().raw)

    def test_broker_down_only_degrades(self):
        with mock.patch.object(transport, "ping", side_effect=OSError("amqp://user:password@h")):
            self.api.application = app.make_app()
            found = self.request(DETAIL)
        self.assertEqual((200, "degraded"), (found.status, found.body["status"]))
        self.assertNotIn(b"password", found.raw)

    def test_short_response_depends_on_configured_checks(self):
        # Also where ATTACHD_CONFIG_FILES names other files than those in the usual places.
        conf_fixture.override(self, "backends", ["attachd_broker"], "healthcheck")
        with mock.patch.object(transport, "ping", side_effect=OSError("refused")):
            self.api.application = app.make_app()
            self.assertEqual(503, self.request().status)
        with self.without_database():
            self.api.application = app.make_app()
            self.assertEqual(200, self.request().status)

    def test_details_are_limited_to_configured_networks(self):
        for case in (
            {"address": "192.0.2.7"},
            {"address": "not-an-address"},
            {"HTTP_X_FORWARDED_FOR": "127.0.0.1"},
            {"HTTP_FORWARDED": "for=127.0.0.1"},
            {"HTTP_X_REAL_IP": "127.0.0.1"},
        ):
            with self.subTest(case):
                self.assertEqual(b"OK", self.request(DETAIL, **case).raw)
        conf_fixture.override(self, "health_detail_sources", ["192.0.2.0/24"], "api")
        self.api.application = app.make_app()
        self.assertIn(b"checks", self.request(DETAIL, address="192.0.2.7").raw)
        self.assertEqual(b"OK", self.request(DETAIL).raw)

    def test_unknown_check_is_configuration_error(self):
        conf_fixture.override(
            self, "backends", ["attachd_broker", "attachd_databse"], "healthcheck"
        )
        with self.assertRaisesRegex(
            exception.ConfigurationError, "backends: there is no check attachd_databse"
        ):
            health.HealthCheck(None)

    def test_invalid_network_is_configuration_error(self):
        conf_fixture.override(self, "health_detail_sources", ["localhost"], "api")
        with self.assertRaisesRegex(exception.ConfigurationError, "health_detail_sources"):
            health.HealthCheck(None)


def _raise(error):
    if error is not None:
        raise error


class Case(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(health, "PROBE_TIMEOUT", TIMEOUT))
        for name in ("ROWS_TTL", "WRITES_TTL", "PING_TTL"):
            self.enterContext(mock.patch.object(health, name, 0.0))
        self.ping = self.enterContext(mock.patch.object(transport, "ping"))
        self.probe = self.enterContext(mock.patch.object(transport, "probe_manager"))
        health.reset()
        self.addCleanup(health.reset)
        self.health = health.health()

    def report(self, host, *, up=True, error=None):
        db_rows.report_service(host, binary="m", up=up, error=error)


class HealthTest(Case):
    def test_healthy_process_has_no_reasons(self):
        self.report("h@a")
        found = [self.health.database(), self.health.broker(), *self.health.backends()]
        self.assertEqual(["database", "broker", "backend h@a"], [item.name for item in found])
        self.assertEqual([None] * 3, [item.reason for item in found])

    def test_database_down_is_reported_with_time(self):
        now, epoch = itertools.count(1000.0, 100.0), models.now()
        moment = next(now)

        def database():
            nonlocal moment
            moment = next(now)
            return self.health.database()

        clock = mock.Mock(monotonic=lambda: moment)
        self.enterContext(mock.patch.object(cached_probe, "time", clock))
        wall = mock.Mock(utcnow=lambda: epoch + datetime.timedelta(seconds=moment))
        self.enterContext(mock.patch.object(health, "timeutils", wall))
        self.assertTrue(database().healthy)
        gone = exception.Unavailable(reason="mysql://user:password@host")
        with mock.patch.object(services, "page", side_effect=gone):
            first = database()
            self.assertEqual(wall.utcnow(), first.since)
            second = database()
            self.assertEqual([], self.health.backends())
        self.assertEqual("The database does not answer.", first.reason)
        self.assertEqual(first.since, second.since)
        self.assertTrue(database().healthy)

    def test_manager_without_queue_is_named(self):
        for host in ("h@a", "h@b"):
            self.report(host)
        errors = {"h@b": path_check.PathCut("no queue takes messages")}
        self.probe.side_effect = lambda host: _raise(errors.get(host))
        found = self.health.broker()
        self.assertRegex(found.reason, "^The broker has no queue for messages to h@b: an ")
        errors.clear()
        self.assertTrue(self.health.broker().healthy)

    def test_broker_within_one_process_needs_no_probes(self):
        self.report("h@a")
        with mock.patch.object(transport, "is_broker_used", return_value=False):
            self.assertTrue(self.health.broker().healthy)
        self.probe.assert_not_called()

    def test_unexpected_error_discloses_no_secret(self):
        self.ping.side_effect = messaging.MessageDeliveryFailure("amqp://user:password@host")
        expected = "The broker cannot be used (MessageDeliveryFailure)."
        self.assertEqual(expected, self.health.broker().reason)

    def test_hanging_probe_returns_in_time(self):
        go_on = threading.Event()
        self.addCleanup(go_on.set)

        def hang():
            go_on.wait(TIMEOUT)
            raise TimeoutError  # a probe that went on would use the database after the test

        self.ping.side_effect = hang
        with mock.patch.object(health, "PROBE_TIMEOUT", 0.05):  # it hangs, slow or not
            health.reset()
            for _ in range(20):
                found = health.health().broker()
        self.assertRegex(found.reason, "The broker gives no answer for [0-9]+ seconds")
        wait_until(lambda: self.ping.call_count)
        self.assertEqual(1, self.ping.call_count)

    def test_each_backend_is_reported(self):
        self.report("h@a", up=False, error="The password is 1234.")
        self.report("h@b")
        self.report("h@c")
        long_ago = models.now() - datetime.timedelta(days=1)
        db_rows.change_service("h@c", seen_at=long_ago)
        broken, well, silent = self.health.backends()
        self.assertIn("storage cannot be used", broken.reason)
        self.assertNotIn("1234", broken.reason)
        self.assertTrue(well.healthy)
        self.assertEqual((False, long_ago), (silent.healthy, silent.since))
        self.assertEqual(broken.since, self.health.backends()[0].since)
        self.report("h@a")
        self.assertGreaterEqual(self.health.backends()[0].since, broken.since)

    def test_many_checks_cost_one_statement(self):
        with mock.patch.object(health, "ROWS_TTL", 1000.0):
            health.reset()
        with mock.patch.object(services, "page", return_value=[]) as page:
            for _ in range(100):
                health.health().database()
        page.assert_called_once()


class PluginTest(Case):
    def plugins(self):
        found = extension.ExtensionManager(
            "oslo.middleware.healthcheck", invoke_on_load=True, invoke_args=(CONF, {})
        )
        return {item.name: item.obj for item in found if item.name.startswith("attachd_")}

    def test_plugins_answer_as_oslo_middleware_expects(self):
        self.report("h@a")
        plugins = self.plugins()
        self.assertEqual({"attachd_database", "attachd_broker", "attachd_backends"}, set(plugins))
        for name, plugin in plugins.items():
            found = plugin.healthcheck(8776)
            self.assertEqual((True, "OK"), (found.available, found.reason), name)

    def test_plugins_report_reason(self):
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
