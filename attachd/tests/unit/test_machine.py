# SPDX-License-Identifier: Apache-2.0
"""Whether a lacking tool skips or fails; for whoever changes attachd/tests/machine.py."""

import os
import time
import unittest
from unittest import mock

from attachd.tests import machine


class _Needs(unittest.TestCase):
    """Run by the tests below only: no name begins with test."""

    def a_tool(self):
        machine.need_tool(self, "a-command-that-nobody-has")

    def a_library(self):
        machine.need_library(self, "liba-library-that-nobody-has.so.1")

    def time(self):
        machine.need_time(self)

    def time_twice(self):
        machine.need_time(self)
        with mock.patch.dict(os.environ, ATTACHD_TEST_UNTIL=str(time.time() + 60)):
            machine.need_time(self)

    def more_time(self):
        machine.need_time(self, machine.LEAST)
        machine.need_time(self)

    def a_server(self):
        machine.need_server(self, "rabbitmq")


def _outcome(test: unittest.TestCase, **environment: str) -> unittest.TestResult:
    result = unittest.TestResult()
    with mock.patch.dict(os.environ, environment):
        if "CI" not in environment:
            os.environ.pop("CI", None)
        test.run(result)
    return result


class MachineTest(unittest.TestCase):
    """What becomes of a test whose needs are not met."""

    def test_a_missing_tool_skips_and_is_named(self):
        ((_, reason),) = _outcome(_Needs("a_tool")).skipped
        self.assertIn("a-command-that-nobody-has", reason)

    def test_a_missing_library_skips_and_is_named(self):
        ((_, reason),) = _outcome(_Needs("a_library")).skipped
        self.assertIn("liba-library-that-nobody-has.so.1", reason)

    def test_what_takes_long_is_not_begun_near_the_end_not_even_in_ci(self):
        soon, later = (str(time.time() + seconds) for seconds in (60, 3600))
        ((_, reason),) = _outcome(_Needs("time"), CI="true", ATTACHD_TEST_UNTIL=soon).skipped
        self.assertIn("no time was left", reason)
        self.assertEqual([], _outcome(_Needs("time"), ATTACHD_TEST_UNTIL=later).skipped)
        with mock.patch.dict(os.environ):
            os.environ.pop("ATTACHD_TEST_UNTIL", None)
            machine.need_time(self)

    def test_what_has_begun_goes_on_near_the_end(self):
        later = str(time.time() + 3600)
        self.assertEqual([], _outcome(_Needs("time_twice"), ATTACHD_TEST_UNTIL=later).skipped)

    def test_what_turns_out_to_take_long_is_left_out_later(self):
        soon = str(time.time() + (machine.LEAST + machine.ENOUGH) / 2)
        ((_, reason),) = _outcome(_Needs("more_time"), ATTACHD_TEST_UNTIL=soon).skipped
        self.assertIn("no time was left", reason)

    def test_a_missing_tool_fails_in_ci(self):
        result = _outcome(_Needs("a_tool"), CI="true")
        self.assertEqual((1, []), (len(result.failures), result.skipped))

    def test_a_server_that_does_not_answer_is_named_with_its_variable(self):
        # Nobody listens on port 1 of this address.
        result = _outcome(_Needs("a_server"), ATTACHD_TEST_RABBITMQ="rabbit://a:b@127.0.0.1:1/")
        ((_, reason),) = result.skipped
        self.assertIn("127.0.0.1:1 (set ATTACHD_TEST_RABBITMQ)", reason)

    def test_a_tool_that_is_there_is_found(self):
        self.assertTrue(os.access(machine.need_tool(self, "sh"), os.X_OK))
