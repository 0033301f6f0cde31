# SPDX-License-Identifier: Apache-2.0
"""Tests of what a test requires of the machine: it skips the test or fails it."""

import os
import unittest
from unittest import mock

from attachd.tests.fixtures import requirements


class _Needs(unittest.TestCase):
    """Run by the tests below only: no name begins with test."""

    def a_tool(self):
        requirements.require_tool(self, "a-command-that-nobody-has")

    def a_library(self):
        requirements.require_library(self, "liba-library-that-nobody-has.so.1")

    def a_server(self):
        requirements.require_server(self, "rabbitmq")


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

    def test_a_missing_tool_fails_in_ci(self):
        result = _outcome(_Needs("a_tool"), CI="true")
        self.assertEqual((1, []), (len(result.failures), result.skipped))

    def test_a_server_that_does_not_answer_is_named_with_its_variable(self):
        # Nobody listens on port 1 of this address.
        result = _outcome(_Needs("a_server"), ATTACHD_TEST_RABBITMQ="rabbit://a:b@127.0.0.1:1/")
        ((_, reason),) = result.skipped
        self.assertIn("127.0.0.1:1 cannot be used (set ATTACHD_TEST_RABBITMQ)", reason)

    def test_a_tool_that_is_there_is_found(self):
        self.assertTrue(os.access(requirements.require_tool(self, "sh"), os.X_OK))
