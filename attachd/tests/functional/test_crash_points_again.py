# SPDX-License-Identifier: Apache-2.0
"""Tests of a manager that is killed while it recovers the work of a killed one."""

import random
import unittest

from attachd.tests.crash import attachment_calls, legacy_calls, runner, volume_calls
from attachd.tests.crash.case import REQUESTED, SEED
from attachd.tests.crash.deployment import CrashDeployment
from attachd.tests.selection import full_only

_TRIED = 4
"""How many points of each recovery are tried by default."""


@full_only("crash")
class DeathInRecoveryTest(unittest.TestCase):
    """The first dies at work at its backend, the second at some points of its recovery."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        owner = unittest.TestCase()
        cls.addClassCleanup(owner.doCleanups)
        cls.deployment = CrashDeployment(owner, "mariadb")

    def check(self, kind):
        chance = random.Random(SEED)
        # What is passed again and again is not passed as often each time, and is another moment
        # then.
        recorded = runner.record(self.deployment, kind)
        often = {item.name for item in recorded if item.number > 1}
        first = chance.choice(
            [item for item in recorded if " > driver " in item.name and item.name not in often]
        )
        outcome, points = runner.crash_in_recovery(self.deployment, kind, first, None)
        self.assertEqual([], outcome.left, f"{first}")
        self.assertTrue([point for point in points if " > driver " in point.name], f"{first}")
        tried = points if REQUESTED == "all" else chance.sample(points, min(_TRIED, len(points)))
        died = []
        for second in tried:
            with self.subTest(first=f"{first}", second=f"{second}"):
                outcome, _points = runner.crash_in_recovery(self.deployment, kind, first, second)
                died.append(outcome.died)
                self.assertEqual([], outcome.left)
        # A recovery that is put off does not pass all points, nor a loop each as often.
        self.assertIn(True, died)

    def test_connect_with_manager_killed_in_recovery_is_recovered(self):
        self.check(attachment_calls.Connect)

    def test_detach_with_manager_killed_in_recovery_is_recovered(self):
        self.check(attachment_calls.DetachBesideAnother)

    def test_create_volume_with_manager_killed_in_recovery_is_recovered(self):
        self.check(volume_calls.Create)

    def test_delete_volume_with_manager_killed_in_recovery_is_recovered(self):
        self.check(volume_calls.Delete)

    def test_extend_volume_with_manager_killed_in_recovery_is_recovered(self):
        self.check(volume_calls.Extend)

    def test_initialize_connection_with_manager_killed_in_recovery_is_recovered(self):
        self.check(legacy_calls.InitializeConnection)
