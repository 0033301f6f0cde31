# SPDX-License-Identifier: Apache-2.0
"""Tests of recording, in one process and in several."""

import os
from pathlib import Path
import re
import subprocess
import sys
import textwrap
import unittest
from unittest import mock

from attachd.telemetry import metrics
from attachd.tests.fixtures import lifetime, metric_samples

LABELS = {"method": "GET", "endpoint": "/x", "status": "200"}
NAME = "attachd_api_requests_total"


class NamesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.gauges = [var for var in vars(metrics).values() if isinstance(var, metrics.Gauge)]
        self.families = list(metrics.REGISTRY.collect())

    def test_metrics_follow_prometheus_naming_rules(self):
        everything = [*self.gauges, *self.families]
        self.assertGreater(len(everything), 20)
        for item in everything:
            with self.subTest(item.name):
                self.assertRegex(item.name, r"^attachd_[a-z_]+$")
                self.assertTrue(getattr(item, "help", None) or item.documentation)
        for family in self.families:
            self.assertEqual(family.type == "histogram", family.name.endswith("_duration_seconds"))

    def test_labels_are_single_words(self):
        labels = {label for metric in metric_samples.METRICS for label in metric._labelnames}
        labels |= {label for gauge in self.gauges for label in gauge.labels}
        self.assertEqual([], [item for item in labels if not re.fullmatch("[a-z]+", item)])

    def test_help_texts_are_sentences(self):
        texts = [family.documentation for family in self.families]
        for text in [*texts, *(gauge.help for gauge in self.gauges)]:
            self.assertRegex(text, r"^[A-Z1].*\.$")


class OffTest(unittest.TestCase):
    def test_disabled_metrics_count_nothing(self):
        metric_samples.use(self)
        metrics.disable()
        self.assertFalse(metrics.is_enabled())
        metrics.count(metrics.API_REQUESTS, *LABELS.values())
        metrics.observe(metrics.RPC_DURATION, 1.0, "attach")
        metrics.sync_external({metrics.COMMITS: 1.0})
        with metrics.timed(metrics.RPC_CALLS, metrics.RPC_DURATION, "attach"):
            pass
        self.assertIsNone(metric_samples.sample_value(NAME, **LABELS))


class OnTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        metric_samples.use(self)

    def value(self, name, **labels):
        return metric_samples.sample_value(name, **labels)

    def test_count_adds_by_labels(self):
        metrics.count(metrics.API_REQUESTS, *LABELS.values())
        metrics.count(metrics.API_REQUESTS, *LABELS.values(), by=2)
        self.assertEqual(3.0, self.value(NAME, **LABELS))

    def test_observe_fills_histogram_buckets_in_seconds(self):
        metrics.observe(metrics.RPC_DURATION, 0.3, "attach")
        name = "attachd_rpc_call_duration_seconds"
        self.assertEqual(0.0, self.value(f"{name}_bucket", method="attach", le="0.25"))
        self.assertEqual(1.0, self.value(f"{name}_bucket", method="attach", le="0.5"))
        self.assertEqual(0.3, self.value(f"{name}_sum", method="attach"))

    def test_timed_counts_by_outcome(self):
        for error in (None, KeyError("x"), ValueError("y")):
            with (
                self.subTest(error),
                self.catching(error),
                metrics.timed(
                    metrics.RPC_CALLS,
                    metrics.RPC_DURATION,
                    "attach",
                    outcome_of=lambda e: type(e).__name__,
                ),
            ):
                if error is not None:
                    raise error
        for outcome in ("ok", "KeyError", "ValueError"):
            found = self.value("attachd_rpc_calls_total", method="attach", outcome=outcome)
            self.assertEqual(1.0, found, outcome)
        count = self.value("attachd_rpc_call_duration_seconds_count", method="attach")
        self.assertEqual(3.0, count)

    def catching(self, error):
        return self.assertRaises(type(error)) if error else self.subTest()

    def test_sync_external_follows_counter_that_restarts(self):
        for total in (5.0, 7.0, 2.0):
            metrics.sync_external({metrics.COMMITS: total})
        self.assertEqual(9.0, self.value("attachd_database_commits_total"))

    def test_count_by_zero_makes_counter_visible(self):
        metrics.count(metrics.API_REQUESTS, *LABELS.values(), by=0)
        self.assertEqual(0.0, self.value(NAME, **LABELS))

    def test_write_error_is_logged_once(self):
        with (
            mock.patch.object(metrics.API_REQUESTS, "labels", side_effect=OSError("no room")),
            mock.patch.object(metrics.RPC_DURATION, "labels", side_effect=OSError("no room")),
            self.assertLogs(metrics.LOG.logger, "WARNING") as logged,
        ):
            metrics.count(metrics.API_REQUESTS, *LABELS.values())
            metrics.observe(metrics.RPC_DURATION, 1.0, "attach")
        self.assertEqual(1, len(logged.output))
        self.assertIn("no room", logged.output[0])


class SeveralProcessesTest(unittest.TestCase):
    """Processes with PROMETHEUS_MULTIPROC_DIR, which prometheus_client reads when imported."""

    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self) / "shared"

    def run_process(self, code, check=True):
        """Execute code in a process of its own; return what it writes."""
        start = """
            import os, shutil, sys
            from attachd.telemetry import exporter, metrics
            metrics.enable()

            def count(by=1):
                with metrics.timed(metrics.RPC_CALLS, metrics.RPC_DURATION, "attach"):
                    metrics.count(metrics.COMMITS, by=by)

            def count_in_child(by):
                child = os.fork()
                if not child:
                    count(by)
                    os._exit(0)
                os.waitpid(child, 0)
            """
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(start) + textwrap.dedent(code)],
            env={**os.environ, metrics.FOLDER_VARIABLE: str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(check, done.returncode == 0, done.stderr)
        return done.stdout if check else done.stderr

    def files(self, kind="counter"):
        return sorted(path.name for path in self.folder.glob(f"{kind}_*"))

    def test_values_of_several_processes_are_summed_after_exit(self):
        self.run_process("count(1)")
        found = self.run_process("""
            count(2)
            count_in_child(3)
            count(4)
            for family in exporter._SharedFolder(metrics.shared_folder()).collect():
                for sample in family.samples:
                    if sample.name in ("attachd_database_commits_total",
                                       "attachd_rpc_call_duration_seconds_count"):
                        print(sample.name, sample.value)
            """)
        self.assertEqual(
            ["attachd_database_commits_total 10.0", "attachd_rpc_call_duration_seconds_count 4.0"],
            sorted(found.splitlines()),
        )

    def test_restarts_do_not_add_files(self):
        self.run_process("count(); count_in_child(1); count_in_child(1)")
        before = [len(self.files(kind)) for kind in ("counter", "histogram")]
        for _ in range(3):
            self.run_process("count(); count_in_child(1)")
        after = [len(self.files(kind)) for kind in ("counter", "histogram")]
        self.assertEqual([[2, 2]] * 2, [before, after])

    def test_file_of_live_process_is_not_continued(self):
        self.folder.mkdir()
        attachment = self.folder / f"counter_{os.getpid()}.db"
        attachment.touch()
        self.run_process("count()")
        self.assertTrue(attachment.exists())
        self.assertEqual(2, len(self.files()))

    def test_unusable_directory_raises_error_naming_variable(self):
        Path(self.folder).touch()
        said = self.run_process("", check=False)
        self.assertRegex(said, rf"PROMETHEUS_MULTIPROC_DIR: {self.folder} cannot be used: \w+")

    def test_removed_directory_does_not_fail_measured_code(self):
        self.run_process("""
            count()
            shutil.rmtree(metrics.shared_folder())
            child = os.fork()
            count()
            if child:
                sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            """)
