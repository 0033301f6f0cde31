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
    def test_nothing_is_counted_where_nobody_wants_it(self):
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

    def test_counters_count_by_labels(self):
        recorder.count(API_REQUESTS, *LABELS.values())
        recorder.count(API_REQUESTS, *LABELS.values(), by=2)
        self.assertEqual(3.0, self.value(NAME, **LABELS))

    def test_histograms_have_buckets_of_seconds(self):
        recorder.observe(RPC_DURATION, 0.3, "attach")
        name = "attachd_rpc_call_duration_seconds"
        self.assertEqual(0.0, self.value(f"{name}_bucket", method="attach", le="0.25"))
        self.assertEqual(1.0, self.value(f"{name}_bucket", method="attach", le="0.5"))
        self.assertEqual(0.3, self.value(f"{name}_sum", method="attach"))

    def test_what_is_timed_is_counted_by_its_outcome(self):
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

    def test_a_counter_follows_another_one_that_may_begin_anew(self):
        for total in (5.0, 7.0, 2.0):
            recorder.sync_external({COMMITS: total})
        self.assertEqual(9.0, self.value("attachd_database_commits_total"))

    def test_counting_begins_once(self):
        self.assertIs(self.recorder, recorder.start())


class SeveralTest(unittest.TestCase):
    """Processes which share a folder."""

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

    def test_they_are_told_as_one_and_the_dead_are_not_forgotten(self):
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

    def test_a_folder_that_cannot_be_used_is_named_with_its_option(self):
        taken = lifetime.temp_dir(self) / "taken"
        taken.touch()
        for folder in (taken, taken / "shared"):
            with self.assertRaises(exception.ConfigurationError) as caught:
                metrics.use(self, folder)
            said = str(caught.exception)
            self.assertRegex(said, rf"^\[metrics\]directory: {folder} cannot be used: \w+")

    def test_a_folder_that_has_gone_does_not_end_what_is_measured(self):
        folder = lifetime.temp_dir(self) / "shared"
        metrics.use(self, folder)
        recorder.count(API_REQUESTS, *LABELS.values())
        shutil.rmtree(folder)
        self.count_in_a_child(3)

    def test_what_cannot_be_counted_is_complained_of_once(self):
        used = metrics.use(self, lifetime.temp_dir(self) / "shared")
        with (
            mock.patch.object(used, "child", side_effect=OSError("no room")),
            self.assertLogs(recorder.LOG.logger, "WARNING") as logged,
        ):
            recorder.count(API_REQUESTS, *LABELS.values())
            recorder.observe(RPC_DURATION, 1.0, "attach")
        self.assertEqual(1, len(logged.output))
        self.assertIn("no room", logged.output[0])


class MineTest(unittest.TestCase):
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

    def test_a_process_keeps_its_number_and_others_get_another(self):
        taken = recorder.ProcessSlots(self.folder)
        self.assertEqual([0, 0], [taken.acquire(), taken.acquire()])
        self.assertEqual(1, recorder.ProcessSlots(self.folder).acquire())

    def test_a_forked_one_gets_another_which_is_free_when_it_has_ended(self):
        taken = recorder.ProcessSlots(self.folder)
        self.assertEqual(0, taken.acquire())
        self.assertEqual([1, 1], [self.in_a_child(taken), self.in_a_child(taken)])
        self.assertEqual(0, taken.acquire())

    def test_a_number_that_cannot_be_had_closes_the_file_of_the_former_one_once(self):
        taken = recorder.ProcessSlots(self.folder)
        taken.acquire()
        former = taken._file
        taken._owner = 0  # as in a forked process
        shutil.rmtree(self.folder)
        with self.assertRaises(FileNotFoundError):
            taken.acquire()
        # Somebody else gets that descriptor: a connection to the database, perhaps.
        into, other = os.pipe()
        self.addCleanup(os.close, other)
        os.dup2(into, former)
        if into != former:
            os.close(into)
        with self.assertRaises(FileNotFoundError):
            taken.acquire()
        os.fstat(former)
        os.close(former)
