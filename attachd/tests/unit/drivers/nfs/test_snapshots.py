# SPDX-License-Identifier: Apache-2.0
"""Snapshots on a share: which volumes get one."""

from attachd import exception
from attachd.tests.unit.drivers.nfs.test_file_worker import FIRST, VOLUME_ID, Case

SNAPSHOT_ID = "5b0f3a52-5ed0-4a4b-9f0d-6f6a0f1d7a10"


class SnapshotsTest(Case):
    def test_snapshot_of_attached_volume_is_refused_and_leaves_nothing(self):
        self.files.link(VOLUME_ID, FIRST)
        with self.assertRaisesRegex(exception.BackendError, "detach it first") as raised:
            self.files.create_snapshot(SNAPSHOT_ID, VOLUME_ID, 1)
        self.assertTrue(raised.exception.final)
        self.assertEqual([], self.files.snapshot_ids())

    def test_repeated_snapshot_of_volume_attached_meanwhile_succeeds(self):
        self.files.create_snapshot(SNAPSHOT_ID, VOLUME_ID, 1)
        self.files.link(VOLUME_ID, FIRST)
        self.files.create_snapshot(SNAPSHOT_ID, VOLUME_ID, 1)
        self.assertEqual([SNAPSHOT_ID], self.files.snapshot_ids())
        self.files.delete_snapshot(SNAPSHOT_ID)
        self.assertEqual([], self.files.snapshot_ids())
