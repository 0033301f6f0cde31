# SPDX-License-Identifier: Apache-2.0
"""Images of uploads: none is left without data, whichever service is away for a time."""

import datetime
from types import SimpleNamespace
from unittest import mock

from attachd.db import models
from attachd.images import upload
from attachd.manager import image_transfers, upload_images
from attachd.tests.fixtures import backends, conf_fixture, db_rows, fake_glance

MISSING = "11111111-2222-4333-8444-555555555555"


class UploadCase(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.glance = fake_glance.use(self)
        conf_fixture.override(self, "transfer_retries", 0, group="glance")
        patched = mock.patch.object(upload, "units", SimpleNamespace(Gi=2**20, Mi=2**20))
        patched.start()
        self.addCleanup(patched.stop)
        self.image = self.glance.add(b"", status="queued")
        self.volume = self.add(self.image)

    def add(self, image, **values):
        row = {"owner": backends.HOST, "upload_image_id": image, **values}
        return db_rows.add_volume("uploading", **row)["id"]

    def run_upload(self, volume=None):
        """Run it and return the state, the image and whether there is an error."""
        image_transfers.run_upload(self.backend, volume or self.volume)
        row = db_rows.get_volume(volume or self.volume)
        return row["state"], row["upload_image_id"], row["error"] is not None


class SendTest(UploadCase):
    def test_image_that_may_still_be_made_is_waited_for(self):
        volume = self.add(MISSING)
        self.assertEqual(("uploading", MISSING, False), self.run_upload(volume))
        self.glance.add(b"", id=MISSING, status="queued")
        self.assertEqual(("ready", None, False), self.run_upload(volume))
        self.assertEqual("active", self.glance.images[MISSING]["status"])

    def test_image_that_was_not_made_in_time_ends_the_upload(self):
        before = models.now() - datetime.timedelta(seconds=2 * (120 + 120) + 1)
        volume = self.add(MISSING, created_at=before)
        self.assertEqual(("ready", None, True), self.run_upload(volume))

    def test_backend_that_is_away_keeps_the_upload_and_its_image(self):
        self.backend.error = "It is away."
        self.assertEqual(("uploading", self.image, False), self.run_upload())
        self.backend.error = None
        self.assertEqual(("ready", None, False), self.run_upload())
        self.assertEqual("active", self.glance.images[self.image]["status"])

    def test_image_is_deleted_as_soon_as_the_image_service_is_back(self):
        def go_away(_offset):
            self.glance.answer_all = (503, b"")

        self.glance.before_piece = go_away
        for _ in range(2):
            self.assertEqual(("uploading", self.image, True), self.run_upload())
        self.glance.answer_all = None
        self.glance.before_piece = lambda _offset: self.fail("It is not sent again.")
        self.assertEqual(("ready", None, True), self.run_upload())
        self.assertEqual({}, self.glance.images)

    def test_refused_deletion_does_not_hold_the_volume(self):
        self.glance.refuse_data = [(413, b"too large")]
        refusal = mock.Mock(return_value=(409, b"in use"))
        with mock.patch.object(self.glance, "_delete", refusal):
            self.assertEqual(("ready", None, True), self.run_upload())

    def test_process_that_was_taken_over_leaves_image_and_row(self):
        self.glance.refuse_data = [(413, b"too large")]
        lease = upload_images.VolumeLease
        with mock.patch.object(lease, "may_be_taken_over", return_value=True):
            self.assertEqual(("uploading", self.image, False), self.run_upload())
        self.assertIn(self.image, self.glance.images)


class DiscardTest(UploadCase):
    def test_only_an_image_without_data_is_deleted(self):
        complete = self.glance.add(b"data")
        for image in (complete, self.image, MISSING):
            upload_images.discard(image)
        self.assertEqual([complete], list(self.glance.images))

    def test_service_that_is_away_is_logged(self):
        self.glance.answer_all = (503, b"")
        with self.assertLogs("attachd.manager.upload_images", "WARNING"):
            upload_images.discard(self.image)
