# SPDX-License-Identifier: Apache-2.0
"""Reimage and upload: the resulting row, also after duplicate messages and failures."""

from types import SimpleNamespace
from unittest import mock

from attachd import exception
from attachd.db.volumes import volume_store, volume_updates
from attachd.images import upload
from attachd.manager import image_transfers
from attachd.states import Event
from attachd.tests.fixtures import backends, conf_fixture, db_rows, fake_glance


class _Case(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.glance = fake_glance.use(self)
        conf_fixture.override(self, "transfer_retries", 0, group="glance")

    def add(self, state, **values):
        return db_rows.add_volume(state, owner=backends.HOST, **values)["id"]


class ReimageTest(_Case):
    def test_reimage_makes_volume_anew(self):
        volume_id = self.add("downloading", image_id=self.glance.add(b"new"), provider={"lun": 7})
        image_transfers.run_reimage(self.backend, volume_id)
        row = db_rows.get_volume(volume_id)
        self.assertEqual(
            ("ready", {"lun": 1}, None), (row["state"], row["provider"], row["owner"])
        )
        self.assertEqual(["delete", "create"], self.driver.methods)

    def test_failed_reimage_leaves_empty_volume(self):
        image = self.glance.add(b"new", os_hash_value="0")
        volume_id = self.add("downloading", image_id=image, provider={"lun": 7})
        image_transfers.run_reimage(self.backend, volume_id)
        row = db_rows.get_volume(volume_id)
        self.assertEqual(("error", {"lun": 1}), (row["state"], row["provider"]))
        self.assertIn("checksum", row["error"])
        self.assertEqual(["delete", "create", "delete", "create"], self.driver.methods)

    def test_reimage_with_backend_that_fails_keeps_reason(self):
        volume_id = self.add("downloading", image_id=self.glance.add(b"new"))
        with self.driver.failing("create"):
            image_transfers.run_reimage(self.backend, volume_id)
        row = db_rows.get_volume(volume_id)
        self.assertEqual("error", row["state"])
        self.assertIn("backend failed", row["error"])

    def test_end_of_reimage_that_was_reset_leaves_the_next_one(self):
        second = self.glance.add(b"second")
        for name, fields in (("success", {}), ("failure", {"os_hash_value": "0"})):
            with self.subTest(name):
                image = self.glance.add(b"first", **fields)
                volume_id = self.add("downloading", image_id=image, provider={"lun": 7})

                def begin_second(_offset, volume_id=volume_id):
                    self.glance.before_piece = lambda _offset: None
                    volume_store.reset(volume_id, "error", None)
                    volume_updates.begin_reimage(volume_id, second, {}, ["error"])

                self.glance.before_piece = begin_second
                image_transfers.run_reimage(self.backend, volume_id)
                row = db_rows.get_volume(volume_id)
                self.assertEqual(("downloading", second), (row["state"], row["image_id"]))

    def test_refused_image_leaves_former_data(self):
        for fields in ({"status": "deactivated"}, {"disk_format": "ploop"}):
            image = self.glance.add(b"new", **fields)
            volume_id = self.add("downloading", image_id=image, provider={"lun": 7})
            image_transfers.run_reimage(self.backend, volume_id)
            row = db_rows.get_volume(volume_id)
            self.assertEqual(("error", {"lun": 7}), (row["state"], row["provider"]))
        self.assertEqual([], self.driver.methods)

    def test_reimage_while_glance_is_away_is_left_to_recovery_with_former_data(self):
        volume_id = self.add("downloading", image_id=self.glance.add(b"new"))
        self.glance.answer_all = (503, b"")
        image_transfers.run_reimage(self.backend, volume_id)
        self.assertEqual("downloading", db_rows.get_volume(volume_id)["state"])
        self.assertEqual([], self.driver.methods)
        self.glance.answer_all = None
        image_transfers.run_reimage(self.backend, volume_id)
        self.assertEqual("ready", db_rows.get_volume(volume_id)["state"])

    def test_reimage_while_backend_is_away_is_left_to_recovery(self):
        volume_id = self.add("downloading", image_id=self.glance.add(b"new"))
        self.backend.error = "It does not answer."
        image_transfers.run_reimage(self.backend, volume_id)
        self.backend.error = None
        unreachable = exception.BackendUnreachable("It does not answer.")
        with self.driver.raising(unreachable, "create"):
            image_transfers.run_reimage(self.backend, volume_id)
        self.assertEqual("downloading", db_rows.get_volume(volume_id)["state"])
        image_transfers.run_reimage(self.backend, volume_id)
        self.assertEqual("ready", db_rows.get_volume(volume_id)["state"])

    def test_interrupted_transfer_leaves_empty_volume(self):
        volume_id = self.add("downloading", image_id=self.glance.add(b"new"))
        self.glance.interrupt_after = [1]
        image_transfers.run_reimage(self.backend, volume_id)
        self.assertEqual("error", db_rows.get_volume(volume_id)["state"])
        self.assertEqual(["delete", "create", "delete", "create"], self.driver.methods)

    def test_late_message_does_nothing(self):
        volume_id = db_rows.add_volume("ready")["id"]
        image_transfers.run_reimage(self.backend, volume_id)
        image_transfers.run_upload(self.backend, volume_id)
        image_transfers.run_reimage(self.backend, "11111111-2222-4333-8444-555555555555")
        self.assertEqual([], self.driver.driver_calls)


class UploadTest(_Case):
    def setUp(self):
        super().setUp()
        patched = mock.patch.object(upload, "units", SimpleNamespace(Gi=2**20, Mi=2**20))
        patched.start()
        self.addCleanup(patched.stop)

    def upload(self, image):
        volume_id = self.add("uploading", size_gib=1, upload_image_id=image)
        image_transfers.run_upload(self.backend, volume_id)
        row = db_rows.get_volume(volume_id)
        self.assertEqual(("ready", None, None), tuple(row[it] for it in _UPLOAD_COLUMNS))
        return row

    def test_upload_fills_image(self):
        image = self.glance.add(b"", status="queued")
        self.assertIsNone(self.upload(image)["error"])
        self.assertEqual("active", self.glance.images[image]["status"])

    def test_failed_upload_deletes_image_and_keeps_reason(self):
        image = self.glance.add(b"", status="queued", protected=True)
        self.glance.refuse_data = [(500, b"")]
        self.assertIn("with status 500", self.upload(image)["error"])
        self.assertEqual({}, self.glance.images)

    def test_end_of_upload_that_was_reset_leaves_the_next_one(self):
        second = self.glance.add(b"", status="queued")
        for refusals in ([], [(500, b"")]):
            volume_id = self.add(
                "uploading", size_gib=1, upload_image_id=self.glance.add(b"", status="queued")
            )

            def begin_second(_offset, volume_id=volume_id):
                self.glance.before_piece = lambda _offset: None
                volume_store.reset(volume_id, "available", None)
                values = {"upload_image_id": second}
                volume_store.transition(volume_id, Event.UPLOAD, values)

            self.glance.before_piece, self.glance.refuse_data = begin_second, refusals
            image_transfers.run_upload(self.backend, volume_id)
            row = db_rows.get_volume(volume_id)
            self.assertEqual(("uploading", second), (row["state"], row["upload_image_id"]))

    def test_upload_to_image_that_is_deleted_meanwhile_ends(self):
        self.glance.before_piece = lambda _offset: self.glance.images.clear()
        self.assertIn(
            "could not be found", self.upload(self.glance.add(b"", status="queued"))["error"]
        )


_UPLOAD_COLUMNS = ("state", "owner", "upload_image_id")
