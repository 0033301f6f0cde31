# SPDX-License-Identifier: Apache-2.0
"""Tests that the crash tests fail for a manager without recovery."""

import random
import unittest

from attachd.tests.crash import attachment_calls, legacy_calls, runner, volume_calls
from attachd.tests.crash.case import SEED
from attachd.tests.crash.deployment import CrashDeployment
from attachd.tests.selection import full_only

# For what must not happen: a slow machine only sees less of it.
_SECONDS = 2.0
_WORK = " > driver "
_UNSENT = "message create_volume > before"


@full_only("crash")
class WithoutRecoveryTest(unittest.TestCase):
    """The same deaths, at points where the backend is at work."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        owner = unittest.TestCase()
        cls.addClassCleanup(owner.doCleanups)
        cls.deployment = CrashDeployment(owner, "mariadb", without=["recovery"])

    def check(self, *kinds, where=_WORK):
        for kind in kinds:
            recorded = runner.record(self.deployment, kind)
            # What is passed again and again is not passed as often each time.
            looped = {item.name for item in recorded if item.number > 1}
            points = [item for item in recorded if where in item.name and item.name not in looped]
            point = random.Random(SEED).choice(points)
            with self.subTest(call=kind.__name__, point=f"{point}"):
                outcome = runner.crash_at(self.deployment, kind, point, limit=_SECONDS)
                self.assertTrue(outcome.died)
                self.assertTrue(outcome.left)
                self.assertEqual(self.deployment.unfinished(), outcome.left)
            self.deployment.delete_everything()

    def test_attachments_without_recovery_stay_unfinished(self):
        self.check(attachment_calls.Connect, attachment_calls.Detach)

    def test_volumes_without_recovery_stay_unfinished(self):
        self.check(volume_calls.Create, volume_calls.Delete, volume_calls.Extend)

    def test_legacy_connections_without_recovery_stay_unfinished(self):
        self.check(legacy_calls.InitializeConnection, legacy_calls.TerminateConnection)

    def test_create_volume_with_unsent_message_without_recovery_stays_unfinished(self):
        self.check(volume_calls.Create, where=_UNSENT)
