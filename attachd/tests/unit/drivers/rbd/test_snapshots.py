# SPDX-License-Identifier: Apache-2.0
"""Refusals of snapshots, on a fake pool; test_rbd_snapshots.py has real ones."""

import dataclasses
from unittest import mock

from attachd import exception
from attachd.ceph import image_header
from attachd.drivers import base
from attachd.drivers.rbd import copies, snapshots
from attachd.tests.unit.drivers.rbd.pool_case import NAME, VOLUME, PoolCase

SNAPSHOT_ID = "5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a0002"


class SnapshotsTest(PoolCase):
    def setUp(self):
        super().setUp()
        stored = image_header.describe("10ab", image_header.read(self.pool, "10ab"))
        volume = dataclasses.replace(VOLUME, provider={"image": stored})
        self.snapshot = base.SnapshotRef(SNAPSHOT_ID, volume, 1)

    def add_record(self, snapshot_id, **values):
        self.pool.add_record(f"attachd-snap.{snapshot_id}", **{"source": NAME, **values})

    def assert_refused(self, text, call, *arguments):
        with self.assertRaisesRegex(exception.BackendError, text) as caught:
            call(*arguments)
        self.assertTrue(caught.exception.final)

    def test_complete_snapshot_is_not_taken_again(self):
        self.add_record(SNAPSHOT_ID)
        self.assertEqual({"snapshot": 7}, self.driver.create_snapshot(self.snapshot))
        self.assertNotIn("snapshot_add", {method for _name, _class, method in self.pool.calls})

    def test_incomplete_snapshot_is_missing(self):
        volume = base.VolumeRef(SNAPSHOT_ID, 1)
        self.add_record(SNAPSHOT_ID, cloned=False)
        self.assert_refused("is missing", self.driver.create_from_snapshot, volume, self.snapshot)

    def test_snapshot_whose_loss_is_noted_is_not_used_although_the_header_has_it(self):
        self.pool.add_header("10ab", snapshot_0000000000000007=b"")
        self.add_record(SNAPSHOT_ID, lost=True)
        volume = base.VolumeRef(SNAPSHOT_ID, 1)
        self.assert_refused("is lost", self.driver.create_from_snapshot, volume, self.snapshot)

    def test_snapshots_of_a_volume_are_limited(self):
        for number in range(snapshots.MAX_SNAPSHOTS):
            self.add_record(f"{number}", snapshot=number)
        self.assert_refused("the most that", self.driver.create_snapshot, self.snapshot)

    def begin_beside(self, snapshots_of):
        """Take a snapshot of a volume whose image has the snapshot 7, up to its record."""
        self.pool.add_header("10ab", snapshot_0000000000000007=b"")
        views = self.images.views
        with (
            mock.patch.object(views, "snapshots_of", side_effect=snapshots_of),
            mock.patch.object(self.driver._headers, "check_releasable") as checked,
            mock.patch.object(copies, "begin", side_effect=KeyError),
            self.assertRaises(KeyError),
        ):
            self.driver.create_snapshot(self.snapshot)
        return checked.called

    def test_snapshot_that_is_deleted_while_another_one_is_taken_is_none_of_a_host(self):
        def delete(*_arguments):
            self.pool.add_header("10ab")
            return []

        self.assertFalse(self.begin_beside(delete))
        self.assertTrue(self.begin_beside(lambda *_arguments: []))

    def test_snapshot_that_hosts_remove_while_it_is_read_is_refused(self):
        self.pool.set_read = lambda _snapshot: None
        self.pool.add_header("10ab", snapshot_0000000000000007=b"")
        self.add_record(SNAPSHOT_ID)

        def read():
            with self.driver.open_snapshot(self.snapshot):
                self.add_record(SNAPSHOT_ID, lost=True)

        self.assert_refused("is lost", read)
