# SPDX-License-Identifier: Apache-2.0
"""The short and the long answer of /healthcheck."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api import app, health, health_checks
from attachd.db import services
from attachd.rpc import transport
from attachd.tests import backends
from attachd.tests.functional import served
from attachd.tests.wait import TIMEOUT

DETAIL = "/healthcheck?detailed"


class HealthCheckTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.api = served.use(self)
        self.enterContext(mock.patch.object(health_checks, "PATIENCE", TIMEOUT))
        for name in ("ROWS_FRESH", "PING_FRESH"):
            self.enterContext(mock.patch.object(health_checks, name, 0.0))
        self.addCleanup(health_checks.forget)
        self.api.application = app.make_app()

    def ask(self, path="/healthcheck", address="127.0.0.1", method="GET", **environ):
        made = served.Api._environ(method, path, b"")
        made |= {"HTTP_ACCEPT": "*/*", "REMOTE_ADDR": address}
        return self.api.send(made | environ)

    def without_database(self):
        gone = exception.Unavailable(reason="mysql://user:password@host")
        return mock.patch.object(services, "page", side_effect=gone)

    def test_the_short_answer_is_for_everybody(self):
        for address in ("127.0.0.1", "192.0.2.7", "2001:db8::7"):
            found = self.ask(address=address)
            self.assertEqual((200, b"OK"), (found.status, found.raw))
        self.assertEqual(204, self.ask(method="HEAD").status)

    def test_without_the_database_it_is_a_503_which_says_so(self):
        with self.without_database():
            found = self.ask()
            self.assertEqual(503, found.status)
            self.assertEqual(b"database: The database does not answer.", found.raw)
            self.assertEqual(503, self.ask(method="HEAD").status)
            detail = self.ask(DETAIL)
        self.assertEqual((503, "failed"), (detail.status, detail.body["status"]))
        self.assertNotIn(b"password", detail.raw)
        self.assertEqual(200, self.ask().status)

    def test_the_detail_names_all_and_since_when(self):
        found = self.ask(DETAIL)
        self.assertEqual((200, "ok"), (found.status, found.body["status"]))
        names = [each["name"] for each in found.body["checks"]]
        self.assertEqual(["database", "broker", f"backend {backends.HOST}"], names)
        for each in found.body["checks"]:
            self.assertEqual({"name", "status", "reason", "since"}, set(each))
            self.assertRegex(each["since"], r"^\d{4}-\d\d-\d\dT")
        by_accept = self.ask(HTTP_ACCEPT="application/json")
        self.assertEqual(names, [each["name"] for each in by_accept.body["checks"]])

    def test_a_backend_that_is_down_only_degrades(self):
        services.report(
            binary="attachd-manager",
            host=backends.HOST,
            availability_zone="nova",
            up=False,
            error="The password is 1234.",
            report=None,
        )
        found = self.ask(DETAIL)
        self.assertEqual((200, "degraded"), (found.status, found.body["status"]))
        self.assertEqual("failed", found.body["checks"][-1]["status"])
        self.assertNotIn(b"1234", found.raw)
        self.assertEqual(b"OK", self.ask().raw)

    def test_so_does_a_message_queue_that_cannot_be_reached(self):
        with mock.patch.object(transport, "ping", side_effect=OSError("amqp://user:password@h")):
            self.api.application = app.make_app()
            found = self.ask(DETAIL)
        self.assertEqual((200, "degraded"), (found.status, found.body["status"]))
        self.assertNotIn(b"password", found.raw)

    def test_the_short_answer_depends_on_what_the_configuration_of_the_process_names(self):
        # Also where ATTACHD_CONFIG_FILES names other files than those in the usual places.
        backends.override(self, "backends", ["attachd_broker"], "healthcheck")
        with mock.patch.object(transport, "ping", side_effect=OSError("refused")):
            self.api.application = app.make_app()
            self.assertEqual(503, self.ask().status)
        with self.without_database():
            self.api.application = app.make_app()
            self.assertEqual(200, self.ask().status)

    def test_only_some_may_see_the_detail(self):
        for case in (
            {"address": "192.0.2.7"},
            {"address": "not-an-address"},
            {"HTTP_X_FORWARDED_FOR": "127.0.0.1"},
            {"HTTP_FORWARDED": "for=127.0.0.1"},
            {"HTTP_X_REAL_IP": "127.0.0.1"},
        ):
            with self.subTest(case):
                self.assertEqual(b"OK", self.ask(DETAIL, **case).raw)
        backends.override(self, "health_detail_sources", ["192.0.2.0/24"], "api")
        self.api.application = app.make_app()
        self.assertIn(b"checks", self.ask(DETAIL, address="192.0.2.7").raw)
        self.assertEqual(b"OK", self.ask(DETAIL).raw)

    def test_a_check_that_there_is_not_is_refused(self):
        backends.override(self, "backends", ["attachd_broker", "attachd_databse"], "healthcheck")
        with self.assertRaisesRegex(exception.ConfigurationError, "backends.*: attachd_databse"):
            health.HealthCheck(None)

    def test_sources_have_to_be_networks(self):
        backends.override(self, "health_detail_sources", ["localhost"], "api")
        with self.assertRaisesRegex(exception.ConfigurationError, "health_detail_sources"):
            health.HealthCheck(None)
