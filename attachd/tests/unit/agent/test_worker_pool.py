# SPDX-License-Identifier: Apache-2.0
"""Items are processed concurrently, and failed ones are retried with backoff."""

import contextlib
import threading
import unittest
from unittest import mock

from attachd import exception
from attachd.agent import worker_pool
from attachd.agent.worker_pool import (
    CallTimeout,
    TimeboxedCall,
    WorkerPool,
)
from attachd.periodics import MAX_BACKOFF, MIN_BACKOFF
from attachd.tests.wait import TIMEOUT


class WorkerPoolTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.clock = 1000.0
        self.enterContext(
            mock.patch("attachd.periodics.time", mock.Mock(monotonic=lambda: self.clock))
        )
        self.reconcile = mock.Mock(return_value=None)
        self.pool = WorkerPool(self.reconcile, threads=2)
        self.addCleanup(self.pool.stop, TIMEOUT)

    def begin(self, *attachments):
        """Start an operation, and wait until it has ended."""
        self.pool.submit(attachments)
        left = list(self.pool._in_progress.values())
        worker_pool.futures.wait(left, TIMEOUT)
        return [item.args[0] for item in self.reconcile.call_args_list]

    def hang(self):
        """Start an operation that ends when the returned event is set."""
        gate, entered = threading.Event(), threading.Event()
        self.addCleanup(gate.set)

        def reconcile(_attachment_id):
            entered.set()
            gate.wait(TIMEOUT)

        self.reconcile.side_effect = reconcile
        self.pool.submit(["a"])
        self.assertTrue(entered.wait(TIMEOUT))
        return gate

    def test_submit_reconciles_each_attachment(self):
        self.assertEqual({"a", "b", "c"}, set(self.begin("a", "b", "c")))

    def test_submit_skips_work_in_progress(self):
        gate = self.hang()
        self.pool.submit(["a"])
        gate.set()
        self.assertEqual(["a"], self.begin())

    def test_hung_work_does_not_block_others(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        looked = threading.Event()
        self.reconcile.side_effect = lambda item: (
            gate.wait(TIMEOUT) if item == "a" else looked.set()
        )
        self.pool.submit(["a", "b"])
        self.assertTrue(looked.wait(TIMEOUT))

    def test_failure_doubles_backoff_up_to_maximum(self):
        self.reconcile.side_effect = exception.HostError(reason="no session")
        delay, tries = MIN_BACKOFF, 1
        with self.assertLogs(worker_pool.LOG.logger, "WARNING") as logged:
            while delay < MAX_BACKOFF:
                self.assertEqual(tries, len(self.begin("a")))
                self.assertIn(f"retry in {delay:.0f} s: no session", logged.output[-1])
                self.assertEqual(tries, len(self.begin("a")), "it rests")
                self.clock += delay + 1
                delay, tries = 2 * delay, tries + 1
            self.begin("a")
        self.assertIn(f"retry in {MAX_BACKOFF:.0f} s", logged.output[-1])

    def test_unexpected_error_is_logged_with_traceback_and_backs_off(self):
        self.reconcile.side_effect = ZeroDivisionError
        with self.assertLogs(worker_pool.LOG.logger, "ERROR") as logged:
            self.begin("a")
        self.assertIn("Traceback", logged.output[0])
        self.assertEqual(["a"], self.begin("a"))

    def test_unavailable_manager_causes_no_backoff(self):
        self.reconcile.side_effect = exception.Unavailable(reason="no manager")
        with self.assertNoLogs(worker_pool.LOG.logger, "INFO"):
            self.begin("a")
            self.assertEqual(["a", "a"], self.begin("a"))

    def test_reconcile_now_ignores_and_resets_backoff(self):
        self.reconcile.side_effect = exception.HostError(reason="no session")
        with self.assertLogs(worker_pool.LOG.logger, "WARNING"):
            self.begin("a")
        with self.assertRaises(exception.HostError):
            self.pool.reconcile_now("a")
        self.assertEqual(3, len([*self.begin("a"), "rests"]))
        self.reconcile.side_effect = None
        self.pool.reconcile_now("a")
        self.assertEqual(4, len(self.begin("a")), "it rests no longer")

    def test_reset_others_removes_backoff(self):
        self.reconcile.side_effect = exception.HostError(reason="no session")
        with self.assertLogs(worker_pool.LOG.logger, "WARNING"):
            self.begin("a")
            self.pool.reset_others(["b"])
            self.assertEqual(["a", "a"], self.begin("a"))

    def test_stop_waits_for_work_in_progress(self):
        gate = self.hang()
        self.assertFalse(self.pool.stop(0.05))
        self.pool.submit(["b"])
        gate.set()
        self.assertTrue(self.pool.stop(TIMEOUT))
        self.assertEqual(["a"], self.begin())


class ConcurrencyLimiterTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.clock = 1000.0
        self.enterContext(mock.patch.object(worker_pool, "monotonic", lambda: self.clock))
        self.limiter = worker_pool.ConcurrencyLimiter(2)

    def stuck_ids(self, seconds=60):
        return [item.attachment_id for item in self.limiter.stuck(seconds)]

    def test_stuck_lists_long_work_until_its_end(self):
        with self.limiter.slot("a"):
            self.clock += 50
            with self.limiter.slot("b"):
                self.assertEqual([], self.stuck_ids())
                self.clock += 50
                self.assertEqual(["a"], self.stuck_ids())
                self.clock += 50
                self.assertEqual(["a", "b"], self.stuck_ids())
            self.assertEqual(["a"], self.stuck_ids())
        self.assertEqual([], self.stuck_ids())

    def test_failed_work_releases_slot(self):
        with contextlib.suppress(ZeroDivisionError), self.limiter.slot("a"):
            raise ZeroDivisionError
        self.clock += 100
        self.assertEqual([], self.stuck_ids())

    def test_waiting_work_is_not_stuck(self):
        entered = threading.Event()

        def enter():
            with self.limiter.slot("c"):
                entered.set()

        with contextlib.ExitStack() as inside:
            inside.enter_context(self.limiter.slot("a"))
            inside.enter_context(self.limiter.slot("b"))
            waiting = threading.Thread(target=enter)
            waiting.start()
            self.addCleanup(waiting.join, TIMEOUT)
            self.clock += 100
            self.assertEqual(["a", "b"], self.stuck_ids())
            self.assertFalse(entered.is_set())
        self.assertTrue(entered.wait(TIMEOUT))

    def test_describe_stuck_names_some_and_counts_rest(self):
        many = worker_pool.ConcurrencyLimiter(20)
        with contextlib.ExitStack() as inside:
            for number in range(12):
                inside.enter_context(many.slot(f"id-{number}"))
            self.clock += 100
            said = many.describe_stuck(many.stuck(60))
        self.assertIn("12 of 20 places", said)
        self.assertRegex(said, r"id-0 \(since \d{4}-\d\d-\d\d \d\d:\d\d UTC\), id-1 ")
        self.assertIn(" and 2 more.", said)
        self.assertNotIn("id-10", said)

    def test_report_with_own_error_keeps_it(self):
        well = {
            "connector": {"host": "n"},
            "devices": [],
            "connector_type": "w",
            "version": "1",
            "error": None,
        }
        self.assertEqual(well, self.limiter.add_to_report(well, 60))
        with self.limiter.slot("a"):
            self.clock += 100
            with self.assertLogs(worker_pool.LOG.logger, "WARNING") as logged:
                warned = [self.limiter.add_to_report(well, 60) for _ in range(2)]
                ill = {**well, "error": "No iscsid."}
                self.assertEqual(ill, self.limiter.add_to_report(ill, 60))
        self.assertEqual(1, len(logged.output))
        self.assertEqual([{"host": "n"}] * 2, [item["connector"] for item in warned])
        self.assertRegex(warned[1]["error"], "^1 of 2 places for work hang")


class TimeboxedCallTest(unittest.TestCase):
    def test_timeboxed_call_returns_or_raises(self):
        call = TimeboxedCall(TIMEOUT)
        self.assertEqual(1, call.run(lambda: 1))
        with self.assertRaises(ZeroDivisionError):
            call.run(lambda: 1 / 0)
        self.assertEqual(2, call.run(lambda: 2))

    def test_hung_timeboxed_call_returns_result_later(self):
        call, gate, started = TimeboxedCall(0.01), threading.Event(), []
        self.addCleanup(gate.set)

        def hang():
            started.append(1)
            gate.wait(TIMEOUT)
            return "late"

        for _ in range(3):
            self.assertRaises(CallTimeout, call.run, hang)
        gate.set()
        call.timeout = TIMEOUT
        self.assertEqual("late", call.run(hang))
        self.assertEqual([1], started)
        self.assertEqual("new", call.run(lambda: "new"))

    def test_timeout_of_one_call_may_be_shorter(self):
        call, gate = TimeboxedCall(TIMEOUT), threading.Event()
        self.addCleanup(gate.set)
        with self.assertRaisesRegex(CallTimeout, "within 1 s"):
            call.run(lambda: gate.wait(TIMEOUT), 0.01)
        gate.set()
        self.assertTrue(call.run(lambda: False))
