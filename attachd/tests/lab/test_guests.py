# SPDX-License-Identifier: Apache-2.0
"""Results of the tests of this directory without a lab."""

import os
import unittest
from unittest import mock

from attachd.tests.fixtures import requirements
from attachd.tests.lab import guests


class _Needs(unittest.TestCase):
    """Run by the tests below only: its name does not begin with test."""

    def a_lab(self):
        guests.need_lab(self)


def _outcome(home: str) -> unittest.TestResult:
    result = unittest.TestResult()
    with mock.patch.dict(os.environ, LAB_HOME=home):
        _Needs("a_lab").run(result)
    return result


class NeedLabTest(unittest.TestCase):
    def test_missing_lab_skips_and_names_variable(self):
        ((_, reason),) = _outcome("").skipped
        self.assertIn("LAB_HOME", reason)

    def test_directory_without_lab_fails(self):
        ((_, reason),) = _outcome(os.fspath(requirements.__file__)).failures
        self.assertIn(f"no command {requirements.__file__}/lab", reason)
