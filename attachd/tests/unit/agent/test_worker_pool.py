# SPDX-License-Identifier: Apache-2.0
"""What is due is done at the same time, and what fails is tried again ever more seldom."""

import threading
import unittest
from unittest import mock

from attachd import exception
from attachd.agent import worker_pool
from attachd.agent.worker_pool import FIRST_PAUSE, LONGEST_PAUSE, Crew
from attachd.tests.wait import TIMEOUT


class CrewTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.clock = 1000.0
        patched = mock.patch.object(worker_pool, "monotonic", lambda: self.clock)
        patched.start()
        self.addCleanup(patched.stop)
        self.look = mock.Mock(return_value=None)
        self.crew = Crew(self.look, threads=2)
        self.addCleanup(self.crew.stop, TIMEOUT)

    def begin(self, *attachments):
        """Begin, and wait until it has ended."""
        self.crew.begin(attachments)
        left = list(self.crew._under_way.values())
        worker_pool.futures.wait(left, TIMEOUT)
        return [each.args[0] for each in self.look.call_args_list]

    def hang(self):
        """Begin something that goes on until what is returned is set."""
        gate, entered = threading.Event(), threading.Event()
        self.addCleanup(gate.set)

        def look(_attachment_id):
            entered.set()
            gate.wait(TIMEOUT)

        self.look.side_effect = look
        self.crew.begin(["a"])
        self.assertTrue(entered.wait(TIMEOUT))
        return gate

    def test_each_is_looked_at(self):
        self.assertEqual({"a", "b", "c"}, set(self.begin("a", "b", "c")))

    def test_what_is_under_way_is_not_begun_again(self):
        gate = self.hang()
        self.crew.begin(["a"])
        gate.set()
        self.assertEqual(["a"], self.begin())

    def test_what_hangs_keeps_nothing_else_waiting(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        looked = threading.Event()
        self.look.side_effect = lambda each: gate.wait(TIMEOUT) if each == "a" else looked.set()
        self.crew.begin(["a", "b"])
        self.assertTrue(looked.wait(TIMEOUT))

    def test_what_fails_rests_for_ever_longer(self):
        self.look.side_effect = exception.HostError(reason="no session")
        pause, tries = FIRST_PAUSE, 1
        with self.assertLogs(worker_pool.LOG.logger, "WARNING") as logged:
            while pause < LONGEST_PAUSE:
                self.assertEqual(tries, len(self.begin("a")))
                self.assertIn(f"again in {pause:.0f} s: no session", logged.output[-1])
                self.assertEqual(tries, len(self.begin("a")), "it rests")
                self.clock += pause + 1
                pause, tries = 2 * pause, tries + 1
            self.begin("a")
        self.assertIn(f"again in {LONGEST_PAUSE:.0f} s", logged.output[-1])

    def test_an_accident_is_logged_with_its_place_and_rests_too(self):
        self.look.side_effect = ZeroDivisionError
        with self.assertLogs(worker_pool.LOG.logger, "ERROR") as logged:
            self.begin("a")
        self.assertIn("Traceback", logged.output[0])
        self.assertEqual(["a"], self.begin("a"))

    def test_what_only_waits_for_others_does_not_rest(self):
        self.look.side_effect = exception.Unavailable(reason="no manager")
        with self.assertNoLogs(worker_pool.LOG.logger, "INFO"):
            self.begin("a")
            self.assertEqual(["a", "a"], self.begin("a"))

    def test_whoever_asks_is_answered_at_once(self):
        self.look.side_effect = exception.HostError(reason="no session")
        with self.assertLogs(worker_pool.LOG.logger, "WARNING"):
            self.begin("a")
        with self.assertRaises(exception.HostError):
            self.crew.look("a")
        self.assertEqual(3, len([*self.begin("a"), "rests"]))
        self.look.side_effect = None
        self.crew.look("a")
        self.assertEqual(4, len(self.begin("a")), "it rests no longer")

    def test_what_is_not_due_any_more_is_forgotten(self):
        self.look.side_effect = exception.HostError(reason="no session")
        with self.assertLogs(worker_pool.LOG.logger, "WARNING"):
            self.begin("a")
            self.crew.keep_only(["b"])
            self.assertEqual(["a", "a"], self.begin("a"))

    def test_it_stops_when_what_is_under_way_has_ended(self):
        gate = self.hang()
        self.assertFalse(self.crew.stop(0.05))
        self.crew.begin(["b"])
        gate.set()
        self.assertTrue(self.crew.stop(TIMEOUT))
        self.assertEqual(["a"], self.begin())
