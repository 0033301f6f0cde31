# SPDX-License-Identifier: Apache-2.0
"""Snapshots that are files: interrupted copies, and what a revert leaves."""

import contextlib
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import base, snapshot_files, sparse
from attachd.tests.fixtures import lifetime

VOLUME = base.VolumeRef("0d6f6a5a-6f8b-4b8e-9d8e-0a3c1f7f5c11", 1)
SNAPSHOT_ID = "7f4f0a56-57a4-4d6b-9f0b-7a8b6f8f1c22"


class SnapshotFilesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.volumes = sparse.SparseFiles(lifetime.temp_dir(self) / "volumes")
        self.snapshots = snapshot_files.SnapshotFiles(self.volumes)
        self.volumes.prepare()
        self.snapshots.prepare()
        self.volumes.create(VOLUME)
        self.write(b"then")

    def write(self, data):
        with self.volumes.path(VOLUME.id).open("r+b") as file:
            file.write(data)

    def read(self, path):
        with path.open("rb") as file:
            return file.read(4)

    @contextlib.contextmanager
    def disk_full(self):
        """Have each copy fail, and expect the error."""
        full = OSError(28, "disk full")
        with (
            mock.patch.object(sparse.copying, "copy", side_effect=full),
            self.assertRaisesRegex(exception.BackendError, "disk full") as raised,
        ):
            yield raised

    def test_snapshot_keeps_data_and_is_no_volume(self):
        self.snapshots.take(SNAPSHOT_ID, VOLUME.id, 1)
        self.write(b"now!")
        self.assertEqual(b"then", self.read(self.snapshots.path(SNAPSHOT_ID)))
        self.assertEqual({VOLUME.id: sparse.GIB}, self.volumes.sizes())
        self.assertEqual({SNAPSHOT_ID: sparse.GIB}, self.snapshots.sizes())

    def test_snapshot_of_volume_that_was_extended_meanwhile_has_its_size(self):
        self.volumes.extend(VOLUME.id, 2)
        self.snapshots.take(SNAPSHOT_ID, VOLUME.id, 1)
        self.assertEqual({SNAPSHOT_ID: sparse.GIB}, self.snapshots.sizes())

    def test_failed_copy_leaves_no_snapshot(self):
        with self.disk_full() as raised:
            self.snapshots.take(SNAPSHOT_ID, VOLUME.id, 1)
        self.assertTrue(raised.exception.final)
        self.assertEqual([], [*self.snapshots.folder.iterdir()])

    def test_revert_that_fails_keeps_volume(self):
        self.snapshots.take(SNAPSHOT_ID, VOLUME.id, 1)
        self.write(b"now!")
        with self.disk_full():
            self.snapshots.revert(VOLUME.id, 1, SNAPSHOT_ID)
        self.assertEqual(b"now!", self.read(self.volumes.path(VOLUME.id)))
        self.snapshots.revert(VOLUME.id, 1, SNAPSHOT_ID)
        self.assertEqual(b"then", self.read(self.volumes.path(VOLUME.id)))

    def test_revert_without_volume_makes_it_again(self):
        self.snapshots.take(SNAPSHOT_ID, VOLUME.id, 1)
        self.volumes.path(VOLUME.id).unlink()  # of a call that was interrupted
        self.snapshots.revert(VOLUME.id, 1, SNAPSHOT_ID)
        self.assertEqual(b"then", self.read(self.volumes.path(VOLUME.id)))

    def test_missing_snapshot_is_refused_finally(self):
        for call in (
            lambda: self.snapshots.revert(VOLUME.id, 1, SNAPSHOT_ID),
            lambda: self.snapshots.fill("another", 1, SNAPSHOT_ID),
        ):
            with self.assertRaisesRegex(exception.BackendError, "missing") as raised:
                call()
            self.assertTrue(raised.exception.final)
