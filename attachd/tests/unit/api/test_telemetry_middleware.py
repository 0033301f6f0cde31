# SPDX-License-Identifier: Apache-2.0
"""Tests of the metrics and tracing middleware."""

import sys
import unittest
from unittest import mock

from attachd.api import app, telemetry_middleware
from attachd.conf import CONF
from attachd.telemetry import exporter
from attachd.tests.fixtures import conf_fixture, metric_samples, wsgi_api

NAME = "attachd_api_requests_total"


class MetricsMiddlewareTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.api = wsgi_api.use(self)
        metric_samples.use(self)
        conf_fixture.override(self, "enabled", True, "metrics")
        conf_fixture.override(self, "api_port", 0, "metrics")
        self.api.application = app.make_app()

    def count(self, method, endpoint, status):
        labels = {"method": method, "endpoint": endpoint, "status": str(status)}
        return metric_samples.sample_value(NAME, **labels)

    def test_requests_are_counted_by_path_template(self):
        self.api.request("GET", "/volumes/detail")
        self.api.request("GET", "/volumes/11111111-2222-3333-4444-555555555555")
        self.api.request("GET", f"/{wsgi_api.PROJECT}/volumes/nothing")
        self.assertEqual(1.0, self.count("GET", "/volumes/detail", 200))
        self.assertEqual(2.0, self.count("GET", "/volumes/{volume_id}", 404))
        found = metric_samples.sample_value(
            "attachd_api_request_duration_seconds_count",
            method="GET",
            endpoint="/volumes/{volume_id}",
        )
        self.assertEqual(2.0, found)

    def test_actions_are_counted_by_name(self):
        self.api.request("POST", "/volumes/x/action", {"os-reserve": {}})
        self.assertEqual(1.0, self.count("POST", "/volumes/{volume_id}/action os-reserve", 404))
        self.api.request("POST", "/volumes/x/action", {"os-nonsense": {}})
        self.assertEqual(1.0, self.count("POST", "/volumes/{volume_id}/action", 400))

    def test_clients_cannot_create_labels(self):
        for method, path in (("MAKE", "/volumes"), ("GET", "/nothing/like/that"), ("GET", "//x")):
            self.api.request(method, path)
        self.assertEqual(1.0, self.count("other", "other", 404))
        self.assertEqual(2.0, self.count("GET", "other", 404))

    def test_health_checks_have_own_label(self):
        self.api.request("GET", "//healthcheck")
        self.assertEqual(1.0, self.count("GET", "/healthcheck", 200))

    def test_metrics_disabled_means_no_middleware(self):
        conf_fixture.override(self, "enabled", False, "metrics")
        self.assertNotIsInstance(app.make_app(), telemetry_middleware.MetricsMiddleware)

    def test_exception_counts_as_500(self):
        def broken(environ, start_response):
            raise KeyError

        result = exporter.get_exporter("api", "1", dict)
        application = telemetry_middleware.MetricsMiddleware(broken, result)
        with self.assertRaises(KeyError):
            application({"REQUEST_METHOD": "GET"}, None)
        self.assertEqual(1.0, self.count("GET", "other", 500))


class UwsgiMasterTest(unittest.TestCase):
    def test_exporter_does_not_start_in_uwsgi_master(self):
        for worker, expected in ((0, False), (1, True)):
            server = mock.Mock(worker_id=lambda number=worker: number)
            with mock.patch.dict(sys.modules, uwsgi=server):
                self.assertEqual(expected, telemetry_middleware._runs_threads())
        self.assertTrue(telemetry_middleware._runs_threads())


class TracingMiddlewareTest(unittest.TestCase):
    def test_span_has_template_and_ids(self):
        span = mock.Mock()
        environ = {
            "REQUEST_METHOD": "GET",
            "otel.span": span,
            telemetry_middleware.ENVIRON_KEY: "/volumes/{volume_id}",
            "openstack.request_id": "req-1",
        }
        answer = telemetry_middleware.SpanNames(lambda _environ, _start: [b"x"])(environ, None)
        self.assertEqual([b"x"], answer)
        span.update_name.assert_called_once_with("GET /volumes/{volume_id}")
        span.set_attribute.assert_any_call("http.route", "/volumes/{volume_id}")
        span.set_attribute.assert_any_call("openstack.request_id", "req-1")
        self.assertEqual(2, span.set_attribute.call_count)

    def test_missing_span_is_ignored(self):
        self.assertEqual([], telemetry_middleware.SpanNames(lambda _environ, _start: [])({}, None))

    def test_tracing_disabled_means_no_middleware(self):
        CONF([], project="attachd", default_config_files=[])
        inner = app.FaultMiddleware(lambda _environ, _start: [])
        self.assertIs(inner, telemetry_middleware.add_tracing(inner))
