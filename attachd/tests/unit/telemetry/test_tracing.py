# SPDX-License-Identifier: Apache-2.0
"""Timed steps and spans; tests/functional follows one request through real processes."""

import subprocess
import sys
import threading
import unittest
from unittest import mock

from opentelemetry.sdk import trace
from opentelemetry.sdk.trace import export
from opentelemetry.sdk.trace.export import in_memory_span_exporter

from attachd import exception
from attachd.conf import CONF
from attachd.telemetry import tracing
from attachd.tests.fixtures import conf_fixture, requirements

_WITHOUT_TRACING = """
import sys
sys.modules["oslo_middleware.tracing"] = None
from attachd import exception
from attachd.conf import CONF
from attachd.telemetry import tracing
CONF([], project="attachd", default_config_files=[])
tracing.setup("test")
assert not tracing.is_on()
CONF.set_override("enabled", True, "oslo_middleware_tracing")
try:
    tracing.setup("test")
except exception.ConfigurationError as error:
    print(error)
"""


class SpanTest(unittest.TestCase):
    def test_span_when_tracing_is_off_does_nothing(self):
        CONF([], project="attachd", default_config_files=[])
        tracing.setup("test")
        self.assertFalse(tracing.is_on())
        with tracing.span("grant", backend="h@b"):
            pass

    def test_span_has_attributes_and_no_error_message(self):
        exported = in_memory_span_exporter.InMemorySpanExporter()
        provider = trace.TracerProvider()
        provider.add_span_processor(export.SimpleSpanProcessor(exported))
        self.enterContext(
            mock.patch.object(tracing._State, "tracer", provider.get_tracer("attachd"))
        )
        outer, inner = tracing.span("flow attach"), tracing.span("grant", backend="h@b")
        with self.assertRaises(KeyError), outer, inner:
            raise KeyError("a secret")
        grant, flow = exported.get_finished_spans()
        self.assertEqual(("grant", "flow attach"), (grant.name, flow.name))
        self.assertEqual(flow.context.span_id, grant.parent.span_id)
        self.assertEqual({"attachd.backend": "h@b"}, dict(grant.attributes))
        self.assertFalse(grant.status.is_ok)
        self.assertNotIn("a secret", grant.to_json() + flow.to_json())

    def test_setup_with_oslo_middleware_that_has_no_tracing_refuses_to_enable_it(self):
        command = [sys.executable, "-W", "ignore", "-c", _WITHOUT_TRACING]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        self.assertIn("oslo.middleware 8.2 or later", printed)

    def test_setup_without_libraries_raises_error_naming_them(self):
        requirements.require_release(self, "oslo.middleware", "8.2")
        CONF([], project="attachd", default_config_files=[])
        tracing.setup("test")
        conf_fixture.override(self, "enabled", True, "oslo_middleware_tracing")
        missing = RuntimeError("install it")
        with (
            mock.patch("oslo_middleware.tracing.init_tracing", side_effect=missing),
            self.assertRaisesRegex(exception.ConfigurationError, "install it"),
        ):
            tracing.setup("test")
        self.assertFalse(tracing.is_on())


class OperationTest(unittest.TestCase):
    def test_steps_are_recorded_in_order_with_outcome(self):
        with tracing.operation() as operation:
            with tracing.step("first"):
                pass
            with self.assertRaises(KeyError), tracing.step("second"):
                raise KeyError
        self.assertEqual(
            [("first", False), ("second", True)], [s[::2] for s in _as_tuples(operation)]
        )
        self.assertTrue(all(seconds >= 0 for _, seconds, _ in _as_tuples(operation)))

    def test_step_outside_operation_records_nothing(self):
        with tracing.step("lonely"):
            self.assertIsNone(tracing.current())

    def test_nested_operation_records_its_own_steps(self):
        with tracing.operation() as outer:
            with tracing.operation() as inner, tracing.step("inner"):
                self.assertIs(inner, tracing.current())
            self.assertIs(outer, tracing.current())
        self.assertEqual([], outer.steps)
        self.assertIsNone(tracing.current())

    def test_operation_of_other_thread_is_not_seen(self):
        seen = []
        with tracing.operation():
            thread = threading.Thread(target=lambda: seen.append(tracing.current()))
            thread.start()
            thread.join()
        self.assertEqual([None], seen)

    def test_seconds_of_operation_increase(self):
        with tracing.operation() as operation:
            before = operation.seconds
            self.assertGreaterEqual(operation.seconds, before)


def _as_tuples(operation):
    return [(step.name, step.seconds, step.failed) for step in operation.steps]
