# SPDX-License-Identifier: Apache-2.0
"""Counting, in one process and in several."""

import os
import shutil
import unittest
from unittest import mock

from attachd import exception
from attachd.telemetry import recorder
from attachd.telemetry.catalogue import API_REQUESTS, COMMITS, RPC_CALLS, RPC_DURATION
from attachd.tests.fixtures import lifetime, metrics

LABELS = {"method": "GET", "endpoint": "/x", "status": "200"}
NAME = "attachd_api_requests_total"


class OffTest(unittest.TestCase):
    def test_recorder_when_off_counts_nothing(self):
        metrics.use(self)
        recorder.stop()
        self.assertFalse(recorder.is_on())
        recorder.count(API_REQUESTS, *LABELS.values())
        recorder.observe(RPC_DURATION, 1.0, "attach")
        recorder.sync_external({COMMITS: 1.0})
        with recorder.timed(RPC_CALLS, RPC_DURATION, "attach"):
            pass
        self.assertIsNone(metrics.sample_value(recorder.start(), NAME, **LABELS))


class OnTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.recorder = metrics.use(self)

    def value(self, name, **labels):
        return metrics.sample_value(self.recorder, name, **labels)

    def test_count_adds_by_labels(self):
        recorder.count(API_REQUESTS, *LABELS.values())
        recorder.count(API_REQUESTS, *LABELS.values(), by=2)
        self.assertEqual(3.0, self.value(NAME, **LABELS))

    def test_observe_fills_histogram_buckets_in_seconds(self):
        recorder.observe(RPC_DURATION, 0.3, "attach")
        name = "attachd_rpc_call_duration_seconds"
        self.assertEqual(0.0, self.value(f"{name}_bucket", method="attach", le="0.25"))
        self.assertEqual(1.0, self.value(f"{name}_bucket", method="attach", le="0.5"))
        self.assertEqual(0.3, self.value(f"{name}_sum", method="attach"))

    def test_timed_counts_by_outcome(self):
        for error in (None, KeyError("x"), ValueError("y")):
            with (
                self.subTest(error),
                self.catching(error),
                recorder.timed(
                    RPC_CALLS, RPC_DURATION, "attach", outcome_of=lambda e: type(e).__name__
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
            recorder.sync_external({COMMITS: total})
        self.assertEqual(9.0, self.value("attachd_database_commits_total"))

    def test_start_twice_returns_same_recorder(self):
        self.assertIs(self.recorder, recorder.start())


class SeveralTest(unittest.TestCase):
    """Several processes that share a directory."""

    def count_in_a_child(self, times):
        child = os.fork()
        if not child:
            failed = 1
            try:
                for _ in range(times):
                    with recorder.timed(RPC_CALLS, RPC_DURATION, "attach"):
                        recorder.count(API_REQUESTS, *LABELS.values())
                failed = 0
            finally:
                os._exit(failed)
        self.assertEqual(0, os.waitpid(child, 0)[1])

    def test_values_of_several_processes_are_summed_after_exit(self):
        folder = lifetime.temp_dir(self) / "shared"
        used = metrics.use(self, folder)
        recorder.count(API_REQUESTS, *LABELS.values())
        for times in (2, 3):
            self.count_in_a_child(times)
        recorder.count(API_REQUESTS, *LABELS.values())
        self.assertEqual(7.0, metrics.sample_value(used, NAME, **LABELS))
        # The second child went on with the file of the first.
        self.assertEqual(
            ["counter_0.db", "counter_1.db"],
            sorted(each.name for each in folder.glob("counter_*")),
        )

    def test_unusable_directory_raises_error_naming_option(self):
        taken = lifetime.temp_dir(self) / "taken"
        taken.touch()
        for folder in (taken, taken / "shared"):
            with self.assertRaises(exception.ConfigurationError) as caught:
                metrics.use(self, folder)
            said = str(caught.exception)
            self.assertRegex(said, rf"^\[metrics\]directory: {folder} cannot be used: \w+")

    def test_removed_directory_does_not_fail_measured_code(self):
        folder = lifetime.temp_dir(self) / "shared"
        metrics.use(self, folder)
        recorder.count(API_REQUESTS, *LABELS.values())
        shutil.rmtree(folder)
        self.count_in_a_child(3)

    def test_write_error_is_logged_once(self):
        used = metrics.use(self, lifetime.temp_dir(self) / "shared")
        with (
            mock.patch.object(used, "child", side_effect=OSError("no room")),
            self.assertLogs(recorder.LOG.logger, "WARNING") as logged,
        ):
            recorder.count(API_REQUESTS, *LABELS.values())
            recorder.observe(RPC_DURATION, 1.0, "attach")
        self.assertEqual(1, len(logged.output))
        self.assertIn("no room", logged.output[0])


class ProcessSlotsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)

    def in_a_child(self, taken):
        """Return the number that a forked process gets."""
        out, into = os.pipe()
        child = os.fork()
        if not child:
            os.write(into, str(taken.acquire()).encode())
            os._exit(0)
        os.close(into)
        with os.fdopen(out) as answer:
            number = int(answer.read())
        os.waitpid(child, 0)
        return number

    def test_acquire_slot_again_returns_same_number_and_others_differ(self):
        taken = recorder.ProcessSlots(self.folder)
        self.assertEqual([0, 0], [taken.acquire(), taken.acquire()])
        self.assertEqual(1, recorder.ProcessSlots(self.folder).acquire())

    def test_acquire_slot_in_forked_process_gets_free_number(self):
        taken = recorder.ProcessSlots(self.folder)
        self.assertEqual(0, taken.acquire())
        self.assertEqual([1, 1], [self.in_a_child(taken), self.in_a_child(taken)])
        self.assertEqual(0, taken.acquire())

    def test_acquire_slot_that_fails_closes_former_file_once(self):
        taken = recorder.ProcessSlots(self.folder)
        taken.acquire()
        former = taken._file
        taken._owner = 0  # as in a forked process
        shutil.rmtree(self.folder)
        with self.assertRaises(FileNotFoundError):
            taken.acquire()
        # The descriptor is reused, for example by a database connection.
        into, other = os.pipe()
        self.addCleanup(os.close, other)
        os.dup2(into, former)
        if into != former:
            os.close(into)
        with self.assertRaises(FileNotFoundError):
            taken.acquire()
        os.fstat(former)
        os.close(former)
