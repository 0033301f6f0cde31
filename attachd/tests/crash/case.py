# SPDX-License-Identifier: Apache-2.0
"""Test cases of a deployment whose processes are killed; see test_crash_points*.py."""

from collections.abc import Sequence
import os
import sys
import unittest

from attachd.tests.crash import (
    attachment_calls,
    legacy_calls,
    runner,
    snapshot_calls,
    volume_calls,
)
from attachd.tests.crash.calls import Call
from attachd.tests.crash.deployment import CrashDeployment

REQUESTED = os.environ.get("ATTACHD_TEST_CRASH_POINTS", "")
SEED = int(os.environ.get("ATTACHD_TEST_CRASH_SEED", "5"))
CALLS = (
    *attachment_calls.CALLS,
    *volume_calls.CALLS,
    *snapshot_calls.CALLS,
    *legacy_calls.CALLS,
)

_MISSED = 0.05
"""The share of points that a call may not come to in its second run: sessions end in loops."""


class CrashCase:
    """Kills processes at points of calls; a subclass says which and where.

    :cvar calls: which calls
    :cvar share: how many points are tried by default; 0: as many as there are steps
    """

    database = "mariadb"
    managers = 1
    survivors = "a new one"
    share = 0
    calls: Sequence[type[Call]] = CALLS

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.owner = unittest.TestCase()
        cls.addClassCleanup(cls.owner.doCleanups)
        cls.deployment = cls.new_site()
        cls.recorded = {kind: runner.record(cls.deployment, kind) for kind in cls.calls}
        cls.deaths = cls.chosen(runner.all_crashes(cls.recorded))

    @classmethod
    def new_site(cls):
        return CrashDeployment(cls.owner, cls.database, managers=cls.managers)

    @classmethod
    def chosen(cls, deaths):
        if REQUESTED:
            return deaths if REQUESTED == "all" else runner.sample(deaths, int(REQUESTED), SEED)
        if cls.share:
            return runner.sample(deaths, cls.share, SEED)
        return runner.each_step(deaths, SEED)

    def check(self, *kinds):
        """Die at all chosen points of some calls."""
        outcomes = [self.die(*death) for death in self.deaths if death[0] in kinds]
        if REQUESTED and outcomes:
            self.print_times(outcomes)
        self.assertEqual([], [f"{outcome}" for outcome in outcomes if outcome.left])
        # What is in a loop that waits is passed as often as the machine is slow.
        missed = [
            f"{outcome.point}"
            for outcome in outcomes
            if not outcome.died and outcome.point.number == 1
        ]
        self.assertLessEqual(len(missed), 1 + _MISSED * len(outcomes), missed)

    def die(self, kind, *how):
        outcome = runner.crash_at(self.deployment, kind, *how, survivors=self.survivors)
        if outcome.left:
            self.show(outcome)
            # What is left there must not be taken for what the next one leaves.
            self.deployment.end()
            type(self).deployment = self.new_site()
        return outcome

    def show(self, outcome):
        sys.stderr.write(f"{outcome}\n{self.deployment.logs()}\n")

    def print_times(self, outcomes):
        times = sorted(outcome.seconds for outcome in outcomes)
        middle, longest = times[len(times) // 2], times[-1]
        sys.stderr.write(
            f"{self.id()}: {len(times)} deaths, at rest again in {middle:.2f} s (half of them), "
            f"{longest:.2f} s (all)\n"
        )


class EachCallCase(CrashCase):
    """A test for each group of calls."""

    def test_crash_points_cover_database_messages_driver_and_tools(self):
        names = {point.name for points in self.recorded.values() for point in points}
        for part in (
            "COMMIT",
            "acknowledge",
            "reply",
            "driver grant",
            "driver revoke",
            "NEW TARGET",
        ):
            self.assertTrue([name for name in names if part in name], part)

    def test_reservation_calls_killed_at_each_step_are_recovered(self):
        self.check(attachment_calls.Reserve, attachment_calls.Cancel, attachment_calls.Complete)

    def test_reserve_and_connect_killed_at_each_step_is_recovered(self):
        self.check(attachment_calls.ReserveAndConnect)

    def test_connect_killed_at_each_step_is_recovered(self):
        self.check(attachment_calls.Connect)

    def test_detach_killed_at_each_step_is_recovered(self):
        self.check(attachment_calls.Detach)

    def test_connect_beside_attached_host_killed_at_each_step_is_recovered(self):
        self.check(attachment_calls.ConnectBesideAnother)

    def test_detach_beside_attached_host_killed_at_each_step_is_recovered(self):
        self.check(attachment_calls.DetachBesideAnother)

    def test_move_killed_at_each_step_is_recovered(self):
        self.check(attachment_calls.BeginMove, attachment_calls.FinishMove)

    def test_async_calls_killed_at_each_step_are_recovered(self):
        self.check(*attachment_calls.NOT_WAITING)

    def test_volume_create_clone_delete_killed_at_each_step_are_recovered(self):
        self.check(volume_calls.Create, volume_calls.Copy, volume_calls.Delete)

    def test_volume_extend_and_retype_killed_at_each_step_are_recovered(self):
        self.check(volume_calls.Extend, volume_calls.Retype)

    def test_manage_and_unmanage_killed_at_each_step_are_recovered(self):
        self.check(volume_calls.Manage, volume_calls.Unmanage)

    def test_snapshot_calls_killed_at_each_step_are_recovered(self):
        self.check(snapshot_calls.Take, snapshot_calls.Remove, snapshot_calls.Cascade)

    def test_calls_that_use_snapshots_killed_at_each_step_are_recovered(self):
        self.check(snapshot_calls.Revert, snapshot_calls.CreateOf)

    def test_legacy_attach_calls_killed_at_each_step_are_recovered(self):
        self.check(legacy_calls.InitializeConnection, legacy_calls.Attach)

    def test_legacy_detach_calls_killed_at_each_step_are_recovered(self):
        self.check(legacy_calls.TerminateConnection, legacy_calls.LegacyDetach)
