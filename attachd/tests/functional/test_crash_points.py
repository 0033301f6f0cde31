# SPDX-License-Identifier: Apache-2.0
"""Tests of processes killed at any step: the next one finishes, and a client may repeat the call.

Each class has a deployment, records the points of all calls, and kills a process at some of them,
or at all with ATTACHD_TEST_CRASH_POINTS; see crash-tests.rst in the contributor documentation.
"""

import unittest

from attachd.tests.crash.case import CALLS, CrashCase, EachCallCase
from attachd.tests.selection import full_only


@full_only("crash")
class MariaDBTest(EachCallCase, unittest.TestCase):
    """Each step, in one of the calls that take it."""


@full_only("crash")
class PostgreSQLTest(CrashCase, unittest.TestCase):
    """Some points."""

    database = "postgresql"
    share = 20

    def test_calls_killed_at_sampled_points_are_recovered(self):
        self.check(*CALLS)
