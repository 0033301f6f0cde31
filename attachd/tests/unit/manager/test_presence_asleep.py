# SPDX-License-Identifier: Apache-2.0
"""A process that slept, or was cut off, has not seen the others meanwhile."""

from unittest import mock

from attachd.db import processes
from attachd.tests.unit.manager.ha import test_membership

LONG = test_membership.LONG


class SleeperTest(test_membership.PresenceCase):
    """Whoever was away judges nobody by the time it was away."""

    def test_whoever_was_cut_off_as_well_does_not_judge(self):
        processes.join("silent", "silent")
        self.look()
        self.look(LONG * 2 / 3 + 1)
        self.look(LONG / 2)
        self.assertIn("silent", self.living())
        self.look(LONG / 2 + 1)
        self.assertEqual([self.ours.id], self.living())

    def test_whoever_wakes_up_judges_nobody_before_its_own_sign_of_life(self):
        processes.join("silent", "silent")
        self.look()
        self.now += 2 * LONG
        self.ours.bury_the_dead()
        self.assertIn("silent", self.living())
        self.look()
        self.assertIn("silent", self.living())
        self.look(LONG / 2)
        self.look(LONG / 2 + 1)
        self.assertEqual([self.ours.id], self.living())

    def test_whoever_falls_asleep_while_it_looks_judges_nobody_by_what_it_saw(self):
        processes.join("silent", "silent")
        self.look()
        living = processes.living

        def sleep_and_beat():
            rows = living()
            self.now += 2 * LONG
            self.ours.beat()
            return rows

        with mock.patch.object(processes, "living", sleep_and_beat):
            self.ours.bury_the_dead()
        self.look(1)
        self.assertIn("silent", self.living())
