# SPDX-License-Identifier: Apache-2.0
"""A manager that dies while it finishes what a dead one has left is a dead one like any other."""

import random
import unittest

from attachd.tests.crashing import attaching, older, runs, volumes
from attachd.tests.crashing.case import SEED, WANTED
from attachd.tests.crashing.site import Site
from attachd.tests.selection import full_only

_TRIED = 4
"""How many points of each recovery are tried where nothing is said."""


@full_only("crash")
class DeathInRecoveryTest(unittest.TestCase):
    """The first dies at work at its backend, the second at some points of its recovery."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        owner = unittest.TestCase()
        cls.addClassCleanup(owner.doCleanups)
        cls.site = Site(owner, "mariadb")

    def check(self, kind):
        chance = random.Random(SEED)
        # A tool may outlive its manager for a moment, and its recovery is put off then.  What is
        # passed again and again is not passed as often each time, and is another moment then.
        recorded = runs.record(self.site, kind)
        often = {each.name for each in recorded if each.number > 1}
        first = chance.choice(
            [
                each
                for each in recorded
                if " > driver " in each.name
                and " > tgtadm " not in each.name
                and each.name not in often
            ]
        )
        outcome, points = runs.die_in_recovery(self.site, kind, first, None)
        self.assertEqual([], outcome.left, f"{first}")
        self.assertTrue([each for each in points if " > driver " in each.name], f"{first}")
        looped = {each.name for each in points if each.number > 1}
        tried = points if WANTED == "all" else chance.sample(points, min(_TRIED, len(points)))
        for second in tried:
            with self.subTest(first=f"{first}", second=f"{second}"):
                outcome, _points = runs.die_in_recovery(self.site, kind, first, second)
                self.assertTrue(outcome.died or second.name in looped)
                self.assertEqual([], outcome.left)

    def test_of_a_connect(self):
        self.check(attaching.Connect)

    def test_of_a_detach(self):
        self.check(attaching.DetachBesideAnother)

    def test_of_a_creation(self):
        self.check(volumes.Create)

    def test_of_a_deletion(self):
        self.check(volumes.Delete)

    def test_of_an_extension(self):
        self.check(volumes.Extend)

    def test_of_an_older_call(self):
        self.check(older.OpenConnection)
