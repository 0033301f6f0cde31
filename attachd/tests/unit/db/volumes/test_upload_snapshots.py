# SPDX-License-Identifier: Apache-2.0
"""Snapshots of volumes that are uploaded in use: rows that begin, end and are cancelled."""

from attachd import exception
from attachd.db import models, quotas
from attachd.db.cluster.volume_leases import SNAPSHOTS, VolumeLeaseToken, acquire_committed
from attachd.db.volumes import snapshot_store, upload_snapshots, volume_store
from attachd.db.volumes.image_cache_entries import PROJECT
from attachd.states import Event
from attachd.tests.fixtures import databases, db_rows

HOST = "here@fake"


class UploadCase(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume()["id"]
        self.attachment = db_rows.add_attachment(self.volume, "attached")["id"]
        self.image = models.new_id()

    def begin(self):
        return upload_snapshots.begin(self.volume, db_rows.PROJECT, self.image)

    def lease(self):
        token = VolumeLeaseToken(self.image, models.new_id(), table=SNAPSHOTS)
        acquire_committed(token)
        return token

    def end(self, token=None, event=Event.UPLOADED, *, removed=True):
        token = token or self.lease()
        return upload_snapshots.end(token, self.volume, event, {"error": None}, removed=removed)

    def status(self):
        return db_rows.get_volume(self.volume)["status"]

    def snapshots(self):
        return [(row["id"], row["state"]) for row in db_rows.list_snapshots()]


class BeginTest(UploadCase):
    def test_snapshot_is_work_of_the_backend_and_the_volume_is_not(self):
        row = self.begin()
        self.assertEqual(("uploading", "attached"), (row["status"], row["attach_status"]))
        self.assertEqual([], volume_store.list_recoverable(HOST, "process"))
        (found,) = snapshot_store.list_recoverable(HOST, "process")
        self.assertEqual((self.image, PROJECT), (found["id"], found["project_id"]))
        self.assertEqual(0, quotas.usage(db_rows.PROJECT)[quotas.SNAPSHOTS].total)

    def test_volume_that_is_not_in_use_or_of_another_project_is_refused(self):
        other = db_rows.add_volume()["id"]
        with self.assertRaises(exception.InvalidTransition):
            upload_snapshots.begin(other, db_rows.PROJECT, self.image)
        with self.assertRaises(exception.VolumeNotFound):
            upload_snapshots.begin(self.volume, "b" * 32, self.image)
        self.begin()
        with self.assertRaises(exception.InvalidTransition):
            upload_snapshots.begin(self.volume, db_rows.PROJECT, models.new_id())
        self.assertEqual(1, len(self.snapshots()))


class EndTest(UploadCase):
    def test_removed_snapshot_has_no_row_and_volume_is_in_use(self):
        self.begin()
        self.assertEqual("in-use", self.end()["status"])
        self.assertEqual([], self.snapshots())
        self.assertIsNone(db_rows.get_volume(self.volume)["upload_image_id"])

    def test_snapshot_that_may_be_left_is_to_be_deleted(self):
        self.begin()
        self.end(event=Event.UPLOAD_FAILED, removed=False)
        self.assertEqual(("in-use", [(self.image, "deleting")]), (self.status(), self.snapshots()))
        self.assertEqual(1, len(snapshot_store.list_recoverable(HOST, "process")))

    def test_volume_that_was_detached_meanwhile_is_available(self):
        self.begin()
        db_rows.remove_attachment(self.attachment)
        self.end()
        self.assertEqual("available", self.status())

    def test_volume_that_was_reset_stays_as_it_is(self):
        self.begin()
        volume_store.reset(self.volume, "in-use", None)
        self.assertIsNone(self.end())
        self.assertEqual(("in-use", []), (self.status(), self.snapshots()))

    def test_snapshot_that_was_reset_stays_and_the_volume_is_in_use(self):
        self.begin()
        snapshot_store.reset(self.image, "error")
        self.end()
        self.assertEqual(("in-use", [(self.image, "error")]), (self.status(), self.snapshots()))

    def test_process_that_was_taken_over_stores_no_end(self):
        self.begin()
        token = self.lease()
        self.lease()
        with self.assertRaises(exception.TakenOver):
            self.end(token)
        self.assertEqual("uploading", self.status())


class CancelTest(UploadCase):
    def test_cancelled_upload_leaves_no_snapshot(self):
        self.begin()
        self.assertEqual("in-use", upload_snapshots.cancel(self.volume, self.image)["status"])
        self.assertEqual([], self.snapshots())

    def test_upload_that_a_manager_has_started_is_not_cancelled(self):
        self.begin()
        self.lease()
        with self.assertRaises(exception.InvalidTransition):
            upload_snapshots.cancel(self.volume, self.image)
        self.assertEqual("uploading", self.status())
