# SPDX-License-Identifier: Apache-2.0
"""Metrics, traces and report sections of a manager; tests/functional has a real one."""

import contextlib
from unittest import mock

import prometheus_client

from attachd import exception
from attachd.conf import CONF
from attachd.drivers.base import Export, VolumeRef
from attachd.manager import telemetry
from attachd.manager.ownership.membership import Membership
from attachd.rpc import transport
from attachd.telemetry import exporter, metrics, tracing
import attachd.telemetry.gmr
from attachd.tests.fixtures import backends, conf_fixture, db_rows, metric_samples
from attachd.tests.wait import TIMEOUT


class LoadTest(backends.BackendCase):
    def setUp(self):
        super().setUp()
        metric_samples.use(self)

    def test_instrument_without_metrics_and_traces_changes_nothing(self):
        telemetry.instrument([self.backend])
        self.assertNotIn("grant", vars(self.backend.driver))
        self.assertEqual([], exporter._exporters)

    def test_instrument_with_metrics_starts_exporter(self):
        conf_fixture.override(self, "enabled", True, "metrics")
        conf_fixture.override(self, "manager_port", 0, "metrics")
        metrics.disable()
        telemetry.instrument([self.backend])
        self.assertIn("grant", vars(self.backend.driver))
        self.assertEqual(1, len(exporter._exporters))
        labels = {"backend": backends.HOST, "step": "revoke", "outcome": "failed"}
        self.assertEqual(0.0, metric_samples.sample_value("attachd_steps_total", **labels))
        for name, labels in (
            ("recovery_actions", {"backend": backends.HOST, "action": "postpone"}),
            ("recovery_actions", {"backend": "", "action": "remove_member"}),
            ("lost_agents", {"action": "fence"}),
            ("agent_messages_dropped", {"reason": "size"}),
        ):
            seen = metric_samples.sample_value(f"attachd_{name}_total", **labels)
            self.assertEqual(0.0, seen, name)

    def test_instrument_with_traces_only_starts_no_exporter(self):
        with mock.patch.object(tracing, "is_on", return_value=True):
            telemetry.instrument([self.backend])
        self.assertIn("revoke", vars(self.backend.driver))
        self.assertEqual([], exporter._exporters)

    def test_load_backends_sets_report_sections_up(self):
        CONF([], project="attachd", default_config_files=[])
        conf_fixture.override(self, "enabled_backends", [])
        with mock.patch.object(telemetry, "add_report_sections") as add_sections:
            self.assertEqual([], telemetry.load_backends(Membership()))
        add_sections.assert_called_once_with([])


class RowCountCollectorTest(backends.BackendCase):
    def setUp(self):
        super().setUp()
        conf_fixture.override(self, "count_interval", 1.0, "metrics")
        self.registry = prometheus_client.CollectorRegistry()
        collector = telemetry.RowCountCollector()
        collector._probe._timeout = TIMEOUT
        self.probe = collector._probe
        self.registry.register(collector)

    def ask(self):
        text = prometheus_client.generate_latest(self.registry).decode()
        return {
            name: value for (name, _labels), value in metric_samples.parse_samples(text).items()
        }

    def test_collector_returns_row_counts(self):
        db_rows.add_attachment(db_rows.add_volume()["id"], "connecting")
        report = {"total_gib": None, "free_gib": 2.5, "allocated_gib": 4.0, "capabilities": {}}
        db_rows.report_service("a@x", binary="m", report=report)
        found = self.ask()
        names = ("total", "free", "allocated")
        expected = [float("inf"), 2.5, 4.0]
        self.assertEqual(expected, [found[f"attachd_pool_{name}_gib"] for name in names])
        self.assertEqual(1.0, found["attachd_database_up"])
        self.assertEqual(1.0, found["attachd_attachments"])
        self.assertEqual(1.0, found["attachd_backend_up"])
        self.assertGreaterEqual(found["attachd_backend_report_age_seconds"], 0.0)

    def test_collector_caches_counts(self):
        self.probe._fresh_for = 1000.0
        self.ask()
        with mock.patch.object(telemetry.row_counts, "count") as take:
            self.ask()
        take.assert_not_called()

    def test_collector_without_database_omits_old_counts(self):
        self.probe._fresh_for = 0.0
        self.ask()
        gone = exception.Unavailable(reason="gone")
        with mock.patch.object(telemetry.row_counts, "count", side_effect=gone):
            found = self.ask()
        self.assertEqual(0.0, found["attachd_database_up"])
        self.assertEqual({"attachd_database_up", "attachd_count_age_seconds"}, set(found))


class Served:
    host = "h@b"

    @transport.expected_errors
    def attach(self, error=None):
        if error is not None:
            raise error
        return "done"


class InstrumentDriverTest(backends.BackendCase):
    def setUp(self):
        super().setUp()
        metric_samples.use(self)

    def value(self, name, **labels):
        return metric_samples.sample_value(name, **labels)

    def test_instrument_driver_counts_steps_by_outcome(self):
        driver = self.backend.driver
        telemetry.instrument_driver("h@b", driver)
        volume, export = VolumeRef("v", 1, {}), Export("a", {}, "rw")
        driver.grant(volume, export)
        for final in (True, False):
            with driver.failing("grant", final=final), contextlib.suppress(exception.BackendError):
                driver.grant(volume, export)
        labels = {"backend": "h@b", "step": "grant"}
        for outcome in ("ok", "refused", "failed"):
            found = self.value("attachd_steps_total", outcome=outcome, **labels)
            self.assertEqual(1.0, found, outcome)
        self.assertEqual(3.0, self.value("attachd_step_duration_seconds_count", **labels))

    def test_instrument_driver_initialises_failure_counters(self):
        # Otherwise the first failure would not be an increase, and would raise no alert.
        telemetry.instrument_driver("h@b", self.backend.driver)
        for step in ("grant", "revoke"):
            for outcome in ("refused", "failed", "error"):
                labels = {"backend": "h@b", "step": step, "outcome": outcome}
                self.assertEqual(0.0, self.value("attachd_steps_total", **labels), labels)

    def test_instrument_driver_without_abilities_measures_its_methods(self):
        driver = backends.without_abilities(self.backend.driver)
        telemetry.instrument_driver("h@b", driver)
        driver.delete(VolumeRef("v", 1))
        labels = {"backend": "h@b", "step": "delete", "outcome": "ok"}
        self.assertEqual(1.0, self.value("attachd_steps_total", **labels))
        self.assertFalse(hasattr(driver, "clone"))

    def test_instrumented_steps_are_driver_methods(self):
        for step in telemetry.STEPS:
            self.assertTrue(callable(getattr(self.backend.driver, step)), step)

    def test_rpc_calls_are_counted_by_outcome(self):
        failed = exception.ConnectFailed(attachment_id="a", reason="r")
        refused = exception.Unavailable(reason="r")
        for error in (None, failed, refused, KeyError("x")):
            with contextlib.suppress(Exception):
                Served().attach(error)
        for outcome in ("ok", "failed", "refused", "error"):
            found = self.value(
                "attachd_served_total", server="h@b", method="attach", outcome=outcome
            )
            self.assertEqual(1.0, found, outcome)

    def test_count_recovery_counts_actions(self):
        for many in (0, 2, 1):
            telemetry.count_recovery(self.backend, "expire", many)
        found = self.value(
            "attachd_recovery_actions_total", backend=backends.HOST, action="expire"
        )
        self.assertEqual(3.0, found)

    def test_waiting_for_volume_lock_is_a_step(self):
        volume_id = db_rows.add_volume()["id"]
        with self.backend.lock(volume_id):
            pass
        labels = {"backend": backends.HOST, "step": "wait"}
        self.assertEqual(1.0, self.value("attachd_steps_total", outcome="ok", **labels))


class ReportSectionsTest(backends.BackendCase):
    def setUp(self):
        super().setUp()
        begin = self.enterContext(mock.patch.object(attachd.telemetry.gmr, "setup"))
        send = self.enterContext(mock.patch.object(attachd.telemetry.gmr, "register_section"))
        telemetry.add_report_sections([self.backend])
        begin.assert_called_once_with("attachd-manager")
        self.sections = {call.args[0]: call.args[1] for call in send.call_args_list}

    def test_report_section_describes_backends_without_reason(self):
        (line,) = self.sections["Backends"]()
        self.assertIn("here@fake (RecordingDriver): ready", line)
        self.backend.error = "The password is 1234."
        (line,) = self.sections["Backends"]()
        self.assertIn("down", line)
        self.assertNotIn("1234", line)

    def test_report_section_describes_volume_locks(self):
        self.assertEqual([], self.sections["Volume locks"]())
        volume_id = db_rows.add_volume()["id"]
        with self.backend.lock(volume_id):
            (line,) = self.sections["Volume locks"]()
        self.assertEqual(f"attachd-volume-{volume_id}: held by one thread, 0 waiting", line)

    def test_report_section_describes_database_connections(self):
        db_rows.add_volume()
        self.assertRegex("\n".join(self.sections["Database"]()), "reading: .*\nwriting: ")
