# SPDX-License-Identifier: Apache-2.0
"""Asking what may be slow."""

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

    def test_an_answer_is_told_again_while_it_is_fresh(self):
        probe = cached_probe.Probe(self.ask, FOR_EVER, TIMEOUT)
        self.assertEqual([1, 1, 1], [probe.answer().value for _ in range(3)])
        self.assertIsNone(probe.answer().error)

    def test_an_old_answer_is_asked_for_again(self):
        probe = cached_probe.Probe(self.ask, 0.0, TIMEOUT)
        self.assertEqual([1, 2], [probe.answer().value for _ in range(2)])

    def test_an_error_is_an_answer_and_its_beginning_is_kept(self):
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

    def test_a_thread_that_cannot_be_started_is_started_the_next_time(self):
        probe = cached_probe.Probe(self.ask, FOR_EVER, TIMEOUT)
        none_left = mock.patch.object(threading.Thread, "start", side_effect=RuntimeError)
        with none_left, self.assertRaises(RuntimeError):
            probe.answer()
        self.assertEqual((1, None), probe.answer()[:2])

    def test_a_question_that_hangs_is_put_once_and_keeps_nobody(self):
        self.go_on.clear()
        probe = cached_probe.Probe(self.ask, FOR_EVER, 0.05)
        answers = [probe.answer() for _ in range(50)]
        wait_until(lambda: self.asked)
        self.assertEqual(1, self.asked)
        for each in answers:
            self.assertIsInstance(each.error, cached_probe.ProbeTimeout)
            self.assertIsNone(each.value)
        self.go_on.set()
        probe._patience = TIMEOUT
        self.assertEqual((1, None), probe.answer()[:2])

    def test_many_who_ask_at_once_cost_one_question(self):
        self.go_on.clear()
        probe = cached_probe.Probe(self.ask, FOR_EVER, TIMEOUT)
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(probe.answer().value)) for _ in range(8)
        ]
        for each in threads:
            each.start()
        self.go_on.set()
        for each in threads:
            each.join(TIMEOUT)
        self.assertEqual([1] * 8, found)
