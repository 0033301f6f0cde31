# SPDX-License-Identifier: Apache-2.0
"""Updates of a volume without its backend."""

from attachd import exception
from attachd.db import models, quotas
from attachd.db.types import type_store
from attachd.db.volumes import volume_updates
from attachd.tests.fixtures import databases, db_rows

SEVERAL = {"multiattach": "<is> True"}


class FailUploadTest(databases.DatabaseCase):
    def test_reason_is_stored_once_the_volume_is_uploaded_to_the_image(self):
        image, other = models.new_id(), models.new_id()
        row = db_rows.add_volume("uploading", upload_image_id=image)
        self.assertFalse(volume_updates.fail_upload(row["id"], other, "x"))
        self.assertTrue(volume_updates.is_upload_expected(row["id"], image))
        self.assertTrue(volume_updates.fail_upload(row["id"], image, "x" * 5000))
        self.assertFalse(volume_updates.is_upload_expected(row["id"], image))
        after = db_rows.get_volume(row["id"])
        self.assertEqual(row["updated_at"], after["updated_at"])
        self.assertIn("xxx", after["error"])

    def test_volume_that_is_not_uploaded_keeps_its_row(self):
        image = models.new_id()
        row = db_rows.add_volume("ready", upload_image_id=image)
        self.assertFalse(volume_updates.fail_upload(row["id"], image, "x"))
        self.assertFalse(volume_updates.is_upload_expected(row["id"], image))
        self.assertEqual(row, db_rows.get_volume(row["id"]))


class ReadOnlyTest(databases.DatabaseCase):
    def metadata(self, volume_id):
        return db_rows.get_volume(volume_id)["admin_metadata"]

    def test_set_read_only_and_set_writable_change_flag(self):
        volume_id = db_rows.add_volume(admin_metadata={"attached_mode": "rw"})["id"]
        volume_updates.set_read_only(volume_id)
        self.assertEqual({"attached_mode": "rw", "readonly": "True"}, self.metadata(volume_id))
        volume_updates.set_writable(volume_id)
        self.assertEqual({"attached_mode": "rw", "readonly": "False"}, self.metadata(volume_id))

    def test_set_read_only_of_held_volume_is_refused(self):
        reserved = db_rows.add_volume()["id"]
        db_rows.add_attachment(reserved)
        others = [db_rows.add_volume(state)["id"] for state in ("creating", "error", "extending")]
        for volume_id in (reserved, *others):
            status = db_rows.get_volume(volume_id)["status"]
            for change in (volume_updates.set_read_only, volume_updates.set_writable):
                with self.assertRaisesRegex(exception.InvalidVolume, status):
                    change(volume_id)
            self.assertEqual({}, self.metadata(volume_id))

    def test_set_read_only_of_unknown_volume_raises_not_found(self):
        with self.assertRaises(exception.VolumeNotFound):
            volume_updates.set_read_only("gone")


class SharedTargetsTest(databases.DatabaseCase):
    def test_set_shared_targets_changes_differing_volumes_of_backend(self):
        changed = [db_rows.add_volume(shared_targets=item)["id"] for item in (True, None)]
        kept = db_rows.add_volume(shared_targets=False)["id"]
        other = db_rows.add_volume(shared_targets=True, host="here@fake2#pool")["id"]
        self.assertEqual(2, volume_updates.set_shared_targets("here@fake", False))
        self.assertEqual(0, volume_updates.set_shared_targets("here@fake", False))
        for volume_id, expected in ((changed[0], False), (changed[1], False), (kept, False),
                                    (other, True)):  # fmt: skip
            self.assertIs(expected, db_rows.get_volume(volume_id)["shared_targets"])
        self.assertEqual(3, volume_updates.set_shared_targets("here@fake", None))
        self.assertIsNone(db_rows.get_volume(kept)["shared_targets"])

    def test_set_shared_targets_keeps_updated_at(self):
        volume_id = db_rows.add_volume(shared_targets=True)["id"]
        volume_updates.set_shared_targets("here@fake", False)
        self.assertIsNone(db_rows.get_volume(volume_id)["updated_at"])


class RetypeTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.old = type_store.create({"name": "old"})["id"]
        self.new = type_store.create({"name": "new", "extra_specs": SEVERAL})["id"]
        self.volume_id = self.add()

    def add(self, state="ready", **values):
        return db_rows.add_volume(state, volume_type_id=self.old, size_gib=5, **values)["id"]

    def retype(self, volume_id, **values):
        wanted = {
            "before": self.old,
            "volume_type_id": self.new,
            "type_specs": SEVERAL,
            "statuses": ("available", "in-use"),
            **values,
        }
        volume_updates.retype(volume_id, db_rows.PROJECT, volume_updates.RetypeRequest(**wanted))

    def kept(self, volume_id):
        row = db_rows.get_volume(volume_id)
        return (row["volume_type_id"], row["multiattach"])

    def test_retype_updates_multiattach(self):
        self.retype(self.volume_id)
        self.assertEqual((self.new, True), self.kept(self.volume_id))
        self.retype(self.volume_id, before=self.new, volume_type_id=self.old, type_specs={})
        self.assertEqual((self.old, False), self.kept(self.volume_id))

    def test_retype_of_volume_without_type_succeeds(self):
        db_rows.change_volume(self.volume_id, volume_type_id=None)
        self.retype(self.volume_id, before=None)
        self.assertEqual((self.new, True), self.kept(self.volume_id))

    def test_retype_in_other_status_is_refused(self):
        attached = self.add()
        db_rows.add_attachment(attached, "attached")
        for volume_id in (attached, *map(self.add, ("error", "extending", "maintenance"))):
            status = db_rows.get_volume(volume_id)["status"]
            with self.assertRaisesRegex(exception.InvalidVolume, f"currently {status}"):
                self.retype(volume_id, statuses=("available",))
            self.assertEqual((self.old, False), self.kept(volume_id))

    def test_retype_after_other_retype_is_refused(self):
        self.retype(self.volume_id)
        with self.assertRaisesRegex(exception.InvalidVolume, "meanwhile"):
            self.retype(self.volume_id)
        self.assertEqual((self.new, True), self.kept(self.volume_id))

    def test_retype_of_deleted_volume_or_type_raises_not_found(self):
        with self.assertRaises(exception.VolumeNotFound):
            self.retype("gone")
        type_store.delete(self.new)
        with self.assertRaises(exception.VolumeTypeNotFound):
            self.retype(self.volume_id)
        self.assertEqual((self.old, False), self.kept(self.volume_id))

    def test_retype_to_changed_type_is_refused(self):
        type_store.merge_specs(self.new, {"mode": "RO"})
        with self.assertRaisesRegex(exception.Conflict, f"{self.new} has been changed .* again"):
            self.retype(self.volume_id)
        self.assertEqual((self.old, False), self.kept(self.volume_id))

    def test_retype_beyond_quota_of_type_is_refused(self):
        quotas.set_limits(db_rows.PROJECT, {"gigabytes_new": 9})
        self.retype(self.volume_id)
        another = self.add()
        with self.assertRaisesRegex(exception.QuotaExceeded, "gigabytes_new"):
            self.retype(another)
        self.assertEqual((self.old, False), self.kept(another))

    def test_retype_counts_and_changes_only_snapshots_of_its_project(self):
        kinds = {}
        for project, kind in ((db_rows.PROJECT, self.new), ("former owner", self.old)):
            snapshot = db_rows.add_snapshot(
                self.volume_id, project_id=project, volume_type_id=self.old
            )
            kinds[snapshot["id"]] = kind
        quotas.set_limits(db_rows.PROJECT, {"snapshots_new": 1})
        self.retype(self.volume_id)
        found = {row["id"]: row["volume_type_id"] for row in db_rows.list_snapshots()}
        self.assertEqual(kinds, found)
