# SPDX-License-Identifier: Apache-2.0
"""When to try again what has failed."""

import unittest
from unittest import mock

from attachd.manager.retries import FIRST_PAUSE, LONGEST_PAUSE, Retries


class RetriesTest(unittest.TestCase):
    """One row, and the time goes by."""

    def setUp(self):
        super().setUp()
        self.now = 1000.0
        clock = mock.patch("attachd.manager.retries.time.monotonic", lambda: self.now)
        self.enterContext(clock)
        self.retries = Retries()

    def _pause(self):
        """Return the seconds until the row is due, to the half of one."""
        self.retries.failed("one")
        begun = self.now
        while not self.retries.is_due("one"):
            self.now += 0.5
        return self.now - begun

    def test_what_has_not_failed_is_due(self):
        self.assertTrue(self.retries.is_due("one"))
        self.assertFalse(self.retries.knows("one"))

    def test_each_failure_doubles_the_pause_up_to_the_longest(self):
        pauses = [self._pause() for _ in range(8)]
        doubled = [min(FIRST_PAUSE * 2**number, LONGEST_PAUSE) for number in range(8)]
        self.assertEqual(doubled, pauses)
        self.assertTrue(self.retries.knows("one"))

    def test_others_do_not_wait_for_it(self):
        self.retries.failed("one")
        self.assertFalse(self.retries.is_due("one"))
        self.assertTrue(self.retries.is_due("two"))

    def test_a_success_begins_anew(self):
        self._pause()
        self._pause()
        self.retries.succeeded("one")
        self.assertFalse(self.retries.knows("one"))
        self.assertEqual(FIRST_PAUSE, self._pause())
        self.retries.succeeded("two")

    def test_what_somebody_else_has_dealt_with_is_forgotten(self):
        for each in ("one", "two"):
            self.retries.failed(each)
        self.retries.keep_only({"two", "three"})
        known = [each for each in ("one", "two", "three") if self.retries.knows(each)]
        self.assertEqual(["two"], known)

    def test_all_can_be_forgotten(self):
        for each in ("one", "two"):
            self.retries.failed(each)
        self.retries.forget_all()
        for each in ("one", "two"):
            self.assertTrue(self.retries.is_due(each))
            self.assertFalse(self.retries.knows(each))
