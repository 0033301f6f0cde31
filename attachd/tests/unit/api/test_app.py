# SPDX-License-Identifier: Apache-2.0
"""Tests of the WSGI application, and of the functions of pecan that it patches."""

import inspect
from unittest import mock

import pecan.core
import pecan.util

from attachd.api import app
from attachd.conf import CONF
from attachd.tests.fixtures import databases, wsgi_api
from attachd.tests.unit.api import register


class Case(register.Case):
    def setUp(self):
        super().setUp()
        CONF([], project="attachd", default_config_files=[])

    def request(self, *args, **more):
        return wsgi_api.WsgiApi(None, app.make_app()).request(*args, **more)


class MiddlewareTest(Case):
    def test_health_check_needs_neither_version_nor_token(self):
        databases.use(self)
        answer = self.request("GET", "//healthcheck", version="nonsense", token=":")
        self.assertEqual(200, answer.status)
        self.assertIn("x-openstack-request-id", answer.headers)

    def test_proxy_headers_are_used_only_if_configured(self):
        forwarded = {"x_forwarded_proto": "https", "x_forwarded_host": "cloud"}
        answer = self.request("GET", "", **forwarded)
        self.assertEqual("http://api.example:8776/v3/", answer.headers["location"])
        CONF.set_override("enable_proxy_headers_parsing", True, group="oslo_middleware")
        self.addCleanup(
            CONF.clear_override, "enable_proxy_headers_parsing", group="oslo_middleware"
        )
        answer = self.request("GET", "", **forwarded)
        self.assertEqual("https://cloud/v3/", answer.headers["location"])

    def test_url_that_is_not_utf_8_returns_400(self):
        for path in ("/%ff", "//%c3", "/%ed%a0%80/x"):
            with self.subTest(path):
                answer = self.request("GET", path)
                self.assertEqual(400, answer.status)
                self.assertEqual(400, answer.body["badRequest"]["code"])

    def test_failure_of_middleware_is_answered_with_fault(self):
        def broken(environ, start_response):
            raise KeyError("inside")

        with self.assertLogs("attachd.api.errors", "ERROR"):
            answer = wsgi_api.WsgiApi(None, app.FaultMiddleware(broken)).request("GET", "/")
        self.assertEqual(500, answer.status)
        self.assertEqual("application/json", answer.headers["content-type"])

    def test_only_valid_request_id_becomes_global_request_id(self):
        seen = []

        def inner(environ, start_response):
            seen.append(environ.get("openstack.global_request_id"))
            start_response("200 OK", [])
            return []

        theirs = "req-11111111-2222-3333-4444-555555555555"
        for given in (theirs, "x" * 1000):
            wsgi_api.WsgiApi(None, app.FaultMiddleware(inner)).request(
                "GET", "/", x_openstack_request_id=given
            )
        self.assertEqual([theirs, None], seen)


class PecanTest(Case):
    """The private function of pecan that is patched."""

    def test_patched_pecan_uses_cached_signatures(self):
        app.patch_pecan_cache()
        remembering = getattr(pecan.util, "_getargspec", None)
        self.assertTrue(hasattr(remembering, "cache_info"), "pecan has changed: see app.py")
        self.assertIn("_getargspec(method)", inspect.getsource(pecan.util.getargspec))

    def test_unknown_pecan_is_left_unchanged(self):
        with mock.patch.object(pecan.util, "_getargspec", None):
            app.patch_pecan_cache()
            self.assertIsNone(pecan.util._getargspec)

    def test_request_inspects_no_signature_twice(self):
        self.request("GET", "//")
        calls = []
        real = inspect.getfullargspec
        with mock.patch.object(inspect, "getfullargspec", lambda f: calls.append(f) or real(f)):
            api = wsgi_api.WsgiApi(None, app.make_app())
            api.request("GET", "//")
            del calls[:]
            api.request("GET", "//")
        self.assertEqual([], calls)

    def test_pecan_reads_neither_body_nor_parameters(self):
        for method in ("GET", "POST"):
            with self.subTest(method):
                source = mock.Mock(read=mock.Mock(side_effect=AssertionError("was read")))
                environ = wsgi_api.WsgiApi._environ(method, "/nothing?a=%ff", b"{}")
                answer = wsgi_api.WsgiApi(None, app.make_app()).send(
                    environ | {"wsgi.input": source}
                )
                self.assertEqual(404, answer.status)
