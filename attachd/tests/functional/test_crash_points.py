# SPDX-License-Identifier: Apache-2.0
"""Whatever dies, at whichever step: the next one finishes it, and a client may ask again.

Each class has a deployment, records the points of all calls, and lets a process die at some of
them or, where ATTACHD_TEST_CRASH_POINTS says so, at all; see the chapter on crashes in the
documentation for contributors.
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
