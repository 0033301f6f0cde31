# SPDX-License-Identifier: Apache-2.0
"""Cached answers of calls that may be slow."""

import threading
import unittest
from unittest import mock

from attachd.telemetry import cached_probe
from attachd.tests.wait import TIMEOUT, wait_until

FOR_EVER = 1e6


class ProbeTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.asked = 0
        self.error = None
        self.go_on = threading.Event()
        self.go_on.set()
        self.addCleanup(self.go_on.set)

    def ask(self):
        self.asked += 1
        self.go_on.wait(TIMEOUT)
        if self.error is not None:
            raise self.error
        return self.asked

    def test_answer_while_fresh_returns_cached_value(self):
        probe = cached_probe.Probe(self.ask, FOR_EVER, TIMEOUT)
        self.assertEqual([1, 1, 1], [probe.answer().value for _ in range(3)])
        self.assertIsNone(probe.answer().error)

    def test_answer_when_stale_asks_again(self):
        probe = cached_probe.Probe(self.ask, 0.0, TIMEOUT)
        self.assertEqual([1, 2], [probe.answer().value for _ in range(2)])

    def test_answer_after_error_keeps_last_value_and_time_of_first_error(self):
        probe = cached_probe.Probe(self.ask, 0.0, TIMEOUT)
        probe.answer()
        self.error = KeyError("x")
        first = probe.answer()
        self.assertIs(self.error, first.error)
        self.assertEqual(1, first.value)
        second = probe.answer()
        self.assertGreaterEqual(second.since, first.since)
        self.error = None
        self.assertEqual((4, None), probe.answer()[:2])

    def test_answer_after_failed_thread_start_starts_thread_again(self):
        probe = cached_probe.Probe(self.ask, FOR_EVER, TIMEOUT)
        none_left = mock.patch.object(threading.Thread, "start", side_effect=RuntimeError)
        with none_left, self.assertRaises(RuntimeError):
            probe.answer()
        self.assertEqual((1, None), probe.answer()[:2])

    def test_answer_while_call_hangs_asks_once_and_returns_timeout(self):
        self.go_on.clear()
        probe = cached_probe.Probe(self.ask, FOR_EVER, 0.05)
        answers = [probe.answer() for _ in range(50)]
        wait_until(lambda: self.asked)
        self.assertEqual(1, self.asked)
        for answer in answers:
            self.assertIsInstance(answer.error, cached_probe.ProbeTimeout)
            self.assertIsNone(answer.value)
        self.go_on.set()
        probe._timeout = TIMEOUT
        self.assertEqual((1, None), probe.answer()[:2])

    def test_answer_of_concurrent_callers_asks_once(self):
        self.go_on.clear()
        probe = cached_probe.Probe(self.ask, FOR_EVER, TIMEOUT)
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(probe.answer().value)) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        self.go_on.set()
        for thread in threads:
            thread.join(TIMEOUT)
        self.assertEqual([1] * 8, found)
