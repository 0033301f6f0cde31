# SPDX-License-Identifier: Apache-2.0
"""Periodic threads, and the backoff of failed items."""

import threading
import time
import unittest
from unittest import mock

from attachd.periodics import MAX_BACKOFF, MIN_BACKOFF, Backoff, PeriodicThread
from attachd.tests.wait import TIMEOUT


class PeriodicThreadTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.calls = threading.Semaphore(0)
        self.errors = []

    def _start(self, interval, *results):
        """Start a thread whose calls have these results, the last one repeatedly."""
        remaining = list(results)

        def call():
            self.calls.release()
            error = remaining.pop(0) if len(remaining) > 1 else remaining[0]
            if error is not None:
                raise error

        thread = PeriodicThread("test", call, lambda: interval, self.errors.append)
        thread.start()
        self.addCleanup(self._stop, thread)
        return thread

    def _stop(self, thread):
        thread.stop()
        thread.join(TIMEOUT)
        self.assertFalse(thread.is_alive())

    def test_run_starts_at_once_and_after_wake(self):
        thread = self._start(3600, None)
        self.assertTrue(self.calls.acquire(timeout=TIMEOUT))
        self.assertFalse(self.calls.acquire(timeout=0.05))  # slow, there are even fewer
        thread.wake()
        self.assertTrue(self.calls.acquire(timeout=TIMEOUT))
        # On a slow machine there are even fewer.
        self.assertFalse(self.calls.acquire(timeout=0.05), "once is enough")

    def test_run_repeats_without_wake(self):
        self._start(0.01, None)
        for _ in range(2):
            self.assertTrue(self.calls.acquire(timeout=TIMEOUT))

    def test_run_continues_after_failure(self):
        errors = [RuntimeError("one"), ValueError("two")]
        self._start(0.01, *errors, None)
        for _ in range(3):
            self.assertTrue(self.calls.acquire(timeout=TIMEOUT))
        self.assertEqual(errors, self.errors)

    def test_stop_does_not_wait_for_hanging_call(self):
        release = threading.Event()
        self.addCleanup(release.set)
        thread = PeriodicThread("test", release.wait, lambda: 0.01, self.errors.append)
        thread.start()
        started_at = time.monotonic()
        thread.stop()
        thread.join(0.01)  # the call hangs, so any time does
        self.assertTrue(thread.is_alive())
        self.assertLess(time.monotonic() - started_at, TIMEOUT)

    def test_stop_before_start_prevents_calls(self):
        thread = PeriodicThread("test", self.calls.release, lambda: 0.01, self.errors.append)
        thread.stop()
        thread.join()
        thread.start()
        thread.join(TIMEOUT)
        self.assertFalse(self.calls.acquire(blocking=False))


class BackoffTest(unittest.TestCase):
    """Backoff of one item."""

    def setUp(self):
        super().setUp()
        self.now = 1000.0
        clock = mock.patch("attachd.periodics.time.monotonic", lambda: self.now)
        self.enterContext(clock)
        self.backoff = Backoff()

    def _pause(self):
        """Return the seconds until the item may be retried, rounded to 0.5."""
        self.backoff.record_failure("one")
        started = self.now
        while not self.backoff.may_retry("one"):
            self.now += 0.5
        return self.now - started

    def test_backoff_without_failure_allows_try(self):
        self.assertTrue(self.backoff.may_retry("one"))
        self.assertFalse(self.backoff.has_failed("one"))

    def test_record_failure_returns_pause(self):
        self.assertEqual(MIN_BACKOFF, self.backoff.record_failure("one"))
        self.assertEqual(2 * MIN_BACKOFF, self.backoff.record_failure("one"))

    def test_backoff_doubles_pause_up_to_maximum(self):
        pauses = [self._pause() for _ in range(8)]
        doubled = [min(MIN_BACKOFF * 2**number, MAX_BACKOFF) for number in range(8)]
        self.assertEqual(doubled, pauses)
        self.assertTrue(self.backoff.has_failed("one"))

    def test_backoff_does_not_delay_other_items(self):
        self.backoff.record_failure("one")
        self.assertFalse(self.backoff.may_retry("one"))
        self.assertTrue(self.backoff.may_retry("two"))

    def test_backoff_restarts_after_success(self):
        self._pause()
        self._pause()
        self.backoff.record_success("one")
        self.assertFalse(self.backoff.has_failed("one"))
        self.assertEqual(MIN_BACKOFF, self._pause())
        self.backoff.record_success("two")

    def test_restarted_pause_has_its_length(self):
        self.backoff.record_failure("one")
        self.now += MIN_BACKOFF
        self.assertTrue(self.backoff.may_retry("one"))
        self.backoff.restart_pause("one")
        self.now += MIN_BACKOFF - 1
        self.assertFalse(self.backoff.may_retry("one"))
        self.now += 1
        self.assertTrue(self.backoff.may_retry("one"))
        self.backoff.restart_pause("two")
        self.assertFalse(self.backoff.has_failed("two"))

    def test_backoff_retain_removes_other_items(self):
        for text in ("one", "two"):
            self.backoff.record_failure(text)
        self.backoff.retain({"two", "three"})
        known = [text for text in ("one", "two", "three") if self.backoff.has_failed(text)]
        self.assertEqual(["two"], known)

    def test_backoff_clear_removes_all_items(self):
        for text in ("one", "two"):
            self.backoff.record_failure(text)
        self.backoff.clear()
        for text in ("one", "two"):
            self.assertTrue(self.backoff.may_retry(text))
            self.assertFalse(self.backoff.has_failed(text))
