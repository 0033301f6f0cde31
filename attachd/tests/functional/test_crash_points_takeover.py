# SPDX-License-Identifier: Apache-2.0
"""Tests of a second manager that takes over the work of a killed one."""

import unittest

from attachd.tests.crash.case import CALLS, CrashCase
from attachd.tests.selection import full_only


@full_only("crash")
class TakeoverTest(CrashCase, unittest.TestCase):
    """The next one comes only when the other manager has finished everything."""

    managers = 2
    survivors = "the other one"
    share = 20

    @classmethod
    def chosen(cls, deaths):
        return super().chosen([death for death in deaths if death[1].role == "manager"])

    def test_calls_with_manager_killed_at_sampled_points_are_taken_over(self):
        self.check(*CALLS)
