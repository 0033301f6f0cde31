# SPDX-License-Identifier: Apache-2.0
"""Uploads of volumes in use: the snapshot is removed after a success, a failure and a kill."""

import time
from types import SimpleNamespace
from unittest import mock

from attachd import exception
from attachd.db.volumes import snapshot_store, upload_snapshots, volume_store
from attachd.images import upload
from attachd.manager import image_transfers, snapshot_uploads, snapshots
from attachd.manager.periodic_tasks import recovery
from attachd.periodics import Backoff
from attachd.tests.fixtures import backends, conf_fixture, db_rows, fake_glance
from attachd.tests.wait import wait_until


class UploadCase(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.glance = fake_glance.use(self)
        conf_fixture.override(self, "transfer_retries", 0, group="glance")
        patched = mock.patch.object(upload, "units", SimpleNamespace(Gi=2**20, Mi=2**20))
        patched.start()
        self.addCleanup(patched.stop)
        self.volume = db_rows.add_volume()["id"]
        db_rows.add_attachment(self.volume, "attached")
        self.image = self.glance.add(b"", status="queued")
        upload_snapshots.begin(self.volume, db_rows.PROJECT, self.image)
        self.driver.calls.clear()

    def run_upload(self):
        snapshot_uploads.run(self.backend, self.image)
        return db_rows.get_volume(self.volume)

    def methods(self):
        called = [call.method for call in self.driver.calls]
        return [method for method in called if method not in {"list_snapshots", "get_stats"}]

    def assert_ended(self, row):
        self.assertEqual(("in-use", None), (row["status"], row["upload_image_id"]))
        self.assertEqual(([], {}), (db_rows.list_snapshots(), self.driver.list_snapshots()))


class RunTest(UploadCase):
    def test_snapshot_is_taken_sent_and_removed(self):
        row = self.run_upload()
        expected = ["create_snapshot", "open_snapshot", "delete_snapshot"]
        self.assertEqual(expected, self.methods())
        self.assert_ended(row)
        self.assertIsNone(row["error"])
        self.assertEqual("active", self.glance.images[self.image]["status"])

    def test_refused_image_is_deleted_and_snapshot_removed(self):
        self.glance.refuse_data = [(500, b"")]
        row = self.run_upload()
        self.assert_ended(row)
        self.assertIn("with status 500", row["error"])
        self.assertEqual({}, self.glance.images)

    def test_missing_image_ends_without_snapshot(self):
        del self.glance.images[self.image]
        self.assertEqual("uploading", self.run_upload()["status"])  # It may still be made.
        conf_fixture.override(self, "connect_timeout", 0.1, group="glance")
        conf_fixture.override(self, "read_timeout", 0.1, group="glance")
        time.sleep(0.5)  # Longer than a request for it may take.
        self.assert_ended(self.run_upload())
        self.assertEqual(["delete_snapshot"], self.methods())

    def test_image_that_cannot_be_deleted_is_deleted_later(self):
        self.glance.refuse_data = [(413, b"too large")]
        with mock.patch.object(self.glance, "_delete", return_value=(503, b"")):
            self.assertEqual("uploading", self.run_upload()["status"])
        row = self.run_upload()
        self.assert_ended(row)
        self.assertIn("too large", row["error"])
        self.assertEqual({}, self.glance.images)

    def test_image_that_has_all_data_is_not_sent_again(self):
        self.glance.images[self.image]["status"] = "active"
        row = self.run_upload()
        self.assert_ended(row)
        self.assertEqual((["delete_snapshot"], None), (self.methods(), row["error"]))

    def test_failing_snapshot_leaves_reason_and_no_image(self):
        with self.driver.failing("create_snapshot"):
            row = self.run_upload()
        self.assert_ended(row)
        self.assertIn("backend failed", row["error"])
        self.assertEqual({}, self.glance.images)

    def test_volume_that_was_reset_keeps_its_state_and_has_no_snapshot(self):
        volume_store.reset(self.volume, "in-use", None)
        self.run_upload()
        self.assertEqual(([], ["delete_snapshot"]), (db_rows.list_snapshots(), self.methods()))
        self.assertEqual({}, self.glance.images)

    def test_duplicate_message_does_nothing(self):
        self.run_upload()
        self.driver.calls.clear()
        self.run_upload()
        image_transfers.upload(self.backend, self.volume)
        self.assertEqual([], self.methods())


class RecoveryTest(UploadCase):
    def recover(self):
        recovery.recover_all(self.backend, Backoff())
        wait_until(lambda: not self.backend.background_tasks.is_busy)

    def test_upload_without_manager_is_found_by_its_snapshot(self):
        self.recover()
        self.assert_ended(db_rows.get_volume(self.volume))
        self.assertEqual("active", self.glance.images[self.image]["status"])

    def test_killed_upload_is_sent_again_of_the_same_snapshot(self):
        for method in ("create_snapshot", "open_snapshot", "delete_snapshot"):
            with (
                self.subTest(method),
                self.driver.raising(backends.ProcessKilled(), method),
                self.assertRaises(backends.ProcessKilled),
            ):
                self.run_upload()
            self.assertEqual("uploading", db_rows.get_volume(self.volume)["status"])
        self.recover()
        self.assert_ended(db_rows.get_volume(self.volume))

    def test_snapshot_that_cannot_be_removed_is_removed_later(self):
        with self.driver.failing("delete_snapshot"):
            self.assertEqual("in-use", self.run_upload()["status"])
            snapshots.delete(self.backend, self.image)
        self.assertEqual("deleting", db_rows.get_snapshot(self.image)["state"])
        self.recover()
        self.assert_ended(db_rows.get_volume(self.volume))

    def test_backend_that_is_away_keeps_upload_for_later(self):
        self.backend.error = "It is away."
        with self.assertRaises(exception.BackendUnavailable):
            self.run_upload()
        self.backend.error = None
        self.recover()
        self.assertEqual("active", self.glance.images[self.image]["status"])

    def test_ordinary_snapshots_are_not_of_an_upload(self):
        other = db_rows.add_snapshot(self.volume, "creating")["id"]
        row = snapshot_store.get(other, None)
        self.assertFalse(snapshot_uploads.is_of_upload(row))
