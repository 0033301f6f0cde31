# SPDX-License-Identifier: Apache-2.0
"""Tests of managers that are killed at any step of the driver rbd, on a real Ceph cluster."""

import unittest

from attachd.tests.crash import ceph_deployment
from attachd.tests.crash.case import CrashCase
from attachd.tests.selection import full_only


@full_only("storage")
class EachStepTest(CrashCase, unittest.TestCase):
    """Each step of the driver, in one of the calls that take it.

    The next manager leaves no cephx user, no watch and no image that no row needs, and blocks no
    client of an attachment.
    """

    calls = (*ceph_deployment.ATTACHMENT_CALLS, *ceph_deployment.VOLUME_CALLS)

    @classmethod
    def new_site(cls):
        return ceph_deployment.CephDeployment(cls.owner, cls.database)

    @classmethod
    def chosen(cls, deaths):
        return super().chosen([death for death in deaths if " > driver " in death[1].name])

    def test_crash_points_cover_changes_of_cluster(self):
        names = {point.name for points in self.recorded.values() for point in points}
        for part in (
            "auth get-or-create",
            "auth caps",
            "auth rm",
            "osd blocklist",
            "driver manage",
        ):
            self.assertTrue([name for name in names if part in name], part)

    def test_attachment_calls_with_manager_killed_at_each_step_are_recovered(self):
        self.check(*ceph_deployment.ATTACHMENT_CALLS)

    def test_volume_calls_with_manager_killed_at_each_step_are_recovered(self):
        self.check(*ceph_deployment.VOLUME_CALLS)
