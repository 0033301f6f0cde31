# SPDX-License-Identifier: Apache-2.0
import unittest

from attachd.platforms import call_metrics
from attachd.platforms.calls import CallError, ErrorCode
from attachd.telemetry import exporter
from attachd.tests.fixtures import metric_samples
from attachd.tests.wait import wait_until

CALL = {"driver": "csi", "call": "NodeGetInfo"}


class CallMetricsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        metric_samples.use(self)
        self.measured = call_metrics.CallMetrics("csi")

    def make_fail(self, error):
        """Measure a call that raises an error."""
        with self.assertRaises(type(error)), self.measured.measure("NodeGetInfo"):
            raise error

    def count(self, outcome):
        name = "attachd_platform_calls_total"
        return metric_samples.sample_value(name, **CALL, outcome=outcome)

    def in_progress(self):
        (family,) = self.measured.collect()
        return {sample.labels["call"]: sample.value for sample in family.samples}

    def test_outcomes_are_codes_and_durations_are_recorded(self):
        with self.measured.measure("NodeGetInfo"):
            pass
        self.make_fail(CallError(ErrorCode.ABORTED, "later"))
        self.make_fail(ValueError("fault"))
        self.assertEqual([1.0] * 3, [self.count(name) for name in ("ok", "aborted", "internal")])
        name = "attachd_platform_call_duration_seconds_count"
        self.assertEqual(3.0, metric_samples.sample_value(name, **CALL))

    def test_calls_in_progress_are_counted_until_they_end(self):
        self.assertEqual({}, self.in_progress())
        with self.measured.measure("NodeGetInfo"), self.measured.measure("Probe"):
            self.assertEqual({"NodeGetInfo": 1.0, "Probe": 1.0}, self.in_progress())
        self.make_fail(ValueError("fault"))
        self.assertEqual({"NodeGetInfo": 0.0, "Probe": 0.0}, self.in_progress())

    def test_export_listens_and_stops(self):
        made = call_metrics.export(exporter.Address("127.0.0.1", 0), self.measured)
        self.addCleanup(made.stop)
        self.assertGreater(wait_until(lambda: made.port), 0)
