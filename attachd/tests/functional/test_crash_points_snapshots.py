# SPDX-License-Identifier: Apache-2.0
"""Tests of processes that are killed at any step of calls that manage and unmanage snapshots."""

import unittest

from attachd.tests.crash import snapshot_calls
from attachd.tests.crash.case import CrashCase
from attachd.tests.selection import full_only


@full_only("crash")
class EachManageStepTest(CrashCase, unittest.TestCase):
    """Each step of the API and of a manager.

    The next manager leaves a file that is a snapshot or an object, and never both.
    """

    calls = snapshot_calls.MANAGE_CALLS

    def test_manage_and_unmanage_of_snapshots_killed_at_each_step_are_recovered(self):
        self.check(*snapshot_calls.MANAGE_CALLS)
