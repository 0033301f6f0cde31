# SPDX-License-Identifier: Apache-2.0
"""Asking whether one may still change something, and what tools inherit."""

import os
import threading
import unittest

from attachd import exception
from attachd.drivers import command, fencing
from attachd.tests.wait import TIMEOUT


def no():
    raise exception.BackendError("Somebody else works on it.")


class FencingTest(unittest.TestCase):
    def test_whoever_is_not_told_of_anything_may(self):
        fencing.check()

    def test_the_question_is_asked_inside_and_not_after(self):
        with fencing.scope(no):
            self.assertRaisesRegex(exception.BackendError, "Somebody else", fencing.check)
        fencing.check()

    def test_the_innermost_question_counts(self):
        with fencing.scope(no), fencing.scope(lambda: None):
            fencing.check()

    def test_another_thread_is_not_asked(self):
        failures = []

        def other():
            try:
                fencing.check()
            except exception.BackendError as error:
                failures.append(error)

        with fencing.scope(no):
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        self.assertEqual([], failures)


class LifelinesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        reading, self.writing = os.pipe()
        self.addCleanup(os.close, reading)
        self.addCleanup(os.close, self.writing)

    def _is_open_in_a_tool(self):
        return command.run(["test", "-e", f"/proc/self/fd/{self.writing}"], TIMEOUT).code == 0

    def test_a_tool_inherits_a_lifeline_and_nothing_else(self):
        self.assertFalse(self._is_open_in_a_tool())
        fencing.add_liveness_fd(self.writing)
        self.addCleanup(fencing.remove_liveness_fd, self.writing)
        self.assertTrue(self._is_open_in_a_tool())
        fencing.remove_liveness_fd(self.writing)
        self.assertFalse(self._is_open_in_a_tool())
