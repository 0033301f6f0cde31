# SPDX-License-Identifier: Apache-2.0
"""What a manager that recovers nothing leaves behind is noticed: the suite is able to fail."""

import random
import unittest

from attachd.tests.crashing import attaching, older, runs, volumes
from attachd.tests.crashing.case import SEED
from attachd.tests.crashing.site import Site
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
        cls.site = Site(owner, "mariadb", without=["recovery"])

    def check(self, *kinds, where=_WORK):
        for kind in kinds:
            recorded = runs.record(self.site, kind)
            # What is passed again and again is not passed as often each time.
            looped = {each.name for each in recorded if each.number > 1}
            points = [each for each in recorded if where in each.name and each.name not in looped]
            point = random.Random(SEED).choice(points)
            with self.subTest(call=kind.__name__, point=f"{point}"):
                outcome = runs.die_at(self.site, kind, point, limit=_SECONDS)
                self.assertTrue(outcome.died)
                self.assertTrue(outcome.left)
                self.assertEqual(self.site.unfinished(), outcome.left)
            self.site.forget()

    def test_attachments_stay_half_way(self):
        self.check(attaching.Connect, attaching.Detach)

    def test_volumes_stay_half_way(self):
        self.check(volumes.Create, volumes.Delete, volumes.Extend)

    def test_connections_stay_half_way(self):
        self.check(older.OpenConnection, older.CloseConnection)

    def test_a_message_that_was_never_sent_is_missed(self):
        self.check(volumes.Create, where=_UNSENT)
