# SPDX-License-Identifier: Apache-2.0
"""Requirements of tests: a missing one skips or fails the test."""

import os
import unittest
from unittest import mock

from attachd.tests.fixtures import requirements


class _Needs(unittest.TestCase):
    """Run by the tests below only: no name begins with test."""

    def a_tool(self):
        requirements.require_tool(self, "a-missing-command")

    def a_library(self):
        requirements.require_library(self, "liba-missing-library.so.1")

    def a_folder(self):
        requirements.require_folder(self, "A_MISSING_VARIABLE", "a cloud")

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
    """Tests with missing requirements."""

    def test_missing_tool_skips_test_with_name(self):
        ((_, reason),) = _outcome(_Needs("a_tool")).skipped
        self.assertIn("a-missing-command", reason)

    def test_missing_library_skips_test_with_name(self):
        ((_, reason),) = _outcome(_Needs("a_library")).skipped
        self.assertIn("liba-missing-library.so.1", reason)

    def test_folder_that_is_not_named_skips_test_with_variable(self):
        ((_, reason),) = _outcome(_Needs("a_folder")).skipped
        self.assertIn("needs a cloud: set A_MISSING_VARIABLE", reason)

    def test_folder_that_is_not_there_fails_test(self):
        result = _outcome(_Needs("a_folder"), A_MISSING_VARIABLE="/nonexistent")
        self.assertEqual((1, []), (len(result.failures), result.skipped))

    def test_missing_tool_fails_test_in_ci(self):
        result = _outcome(_Needs("a_tool"), CI="true")
        self.assertEqual((1, []), (len(result.failures), result.skipped))

    def test_unreachable_server_skips_test_with_variable(self):
        # Port 1 of this address refuses connections.
        result = _outcome(_Needs("a_server"), ATTACHD_TEST_RABBITMQ="rabbit://a:b@127.0.0.1:1/")
        ((_, reason),) = result.skipped
        self.assertIn("127.0.0.1:1 cannot be used (set ATTACHD_TEST_RABBITMQ)", reason)

    def test_existing_tool_is_found(self):
        self.assertTrue(os.access(requirements.require_tool(self, "sh"), os.X_OK))
