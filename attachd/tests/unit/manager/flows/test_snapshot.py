# SPDX-License-Identifier: Apache-2.0
"""Flows of snapshots: calls of the driver, and reverts."""

import unittest

from attachd.drivers.base import SnapshotRef, VolumeRef
from attachd.manager import flow_runner
from attachd.manager.flows import snapshot
from attachd.tests.fixtures.backends import RecordingDriver, without_abilities

VOLUME = VolumeRef("volume", 2)
SNAPSHOT = SnapshotRef("snapshot", VOLUME, 2)


class SnapshotFlowsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.driver = RecordingDriver()

    def failed(self, flow):
        with self.assertRaises(flow_runner.FlowFailed) as failed:
            flow_runner.run(flow, {})
        return failed.exception

    def test_failed_snapshot_is_removed(self):
        with self.driver.failing("create_snapshot"):
            self.assertTrue(self.failed(snapshot.build_take(self.driver, SNAPSHOT)).clean)
        with self.driver.failing("create_snapshot", "delete_snapshot"):
            self.assertFalse(self.failed(snapshot.build_take(self.driver, SNAPSHOT)).clean)

    def test_failed_volume_is_removed_and_snapshot_stays(self):
        flow = snapshot.build_volume(self.driver, VolumeRef("new", 2), SNAPSHOT)
        with self.driver.failing("create_from_snapshot"):
            self.assertTrue(self.failed(flow).clean)
        methods = [call.method for call in self.driver.calls]
        self.assertEqual(["create_from_snapshot", "delete"], methods)

    def test_failed_deletion_and_revert_undo_nothing(self):
        with self.driver.failing("delete_snapshot", "revert"):
            for build in (snapshot.build_delete, snapshot.build_revert):
                self.assertFalse(self.failed(build(self.driver, SNAPSHOT)).clean)
        self.assertEqual(2, len(self.driver.calls))

    def test_driver_without_snapshots_is_refused_finally(self):
        plain = without_abilities(self.driver)
        for flow in (
            snapshot.build_delete(plain, SNAPSHOT),
            snapshot.build_revert(plain, SNAPSHOT),
            snapshot.build_volume(plain, VOLUME, SNAPSHOT),
        ):
            cause = self.failed(flow).cause
            self.assertTrue(cause.final)
            self.assertIn("no snapshots", str(cause))
