# SPDX-License-Identifier: Apache-2.0
"""Tests for :mod:`attachd.api.polling`."""

import unittest

from attachd.api import polling


class WaitWhileTest(unittest.TestCase):
    def test_work_that_ends_is_read_no_more(self):
        answers = iter((True, True, False))
        self.assertTrue(polling.wait_while(lambda: next(answers), 60))
        self.assertRaises(StopIteration, next, answers)

    def test_work_that_goes_on_is_reported_after_the_timeout(self):
        reads = []
        self.assertFalse(polling.wait_while(lambda: reads.append(1) or True, 0.01))
        self.assertTrue(reads)

    def test_error_ends_the_wait(self):
        def fail():
            raise LookupError

        self.assertRaises(LookupError, polling.wait_while, fail, 60)
