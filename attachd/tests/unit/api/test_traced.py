# SPDX-License-Identifier: Apache-2.0
"""Names of the spans of requests."""

import unittest
from unittest import mock

from attachd.api import app, telemetry_middleware, traced
from attachd.conf import CONF


class TracedTest(unittest.TestCase):
    def test_a_span_has_template_and_ids(self):
        span = mock.Mock()
        environ = {
            "REQUEST_METHOD": "GET",
            "otel.span": span,
            telemetry_middleware.ENDPOINT: "/volumes/{volume_id}",
            "openstack.request_id": "req-1",
        }
        answer = traced.Traced(lambda _environ, _start: [b"x"])(environ, None)
        self.assertEqual([b"x"], answer)
        span.update_name.assert_called_once_with("GET /volumes/{volume_id}")
        span.set_attribute.assert_any_call("http.route", "/volumes/{volume_id}")
        span.set_attribute.assert_any_call("openstack.request_id", "req-1")
        self.assertEqual(2, span.set_attribute.call_count)

    def test_without_a_span_nothing_happens(self):
        self.assertEqual([], traced.Traced(lambda _environ, _start: [])({}, None))

    def test_nothing_is_wrapped_where_nobody_wants_traces(self):
        CONF([], project="attachd", default_config_files=[])
        inner = app.FaultMiddleware(lambda _environ, _start: [])
        self.assertIs(inner, traced.traced(inner))
