# SPDX-License-Identifier: Apache-2.0
"""Clones and their sources."""

from attachd import exception
from attachd.db.volumes import volume_metadata, volume_store
from attachd.states import Event
from attachd.tests.fixtures import databases, db_rows


class CloneSourceTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.source = db_rows.add_volume(size_gib=2)["id"]

    def copy(self, source=None, **values):
        wanted = {
            "project_id": db_rows.PROJECT,
            "size_gib": 2,
            "host": "here@fake#pool",
            "source_volid": source or self.source,
            **values,
        }
        return volume_store.create(wanted, {})

    def test_create_clone_copies_source_id_and_image_metadata(self):
        volume_metadata.merge_image_metadata(self.source, {"os_type": "linux", "long": "x" * 9999})
        volume_metadata.merge_image_metadata(db_rows.add_volume()["id"], {"os_type": "other"})
        copy = self.copy()
        self.assertEqual(self.source, db_rows.get_volume(copy["id"])["source_volid"])
        self.assertEqual("creating", copy["status"])
        expected = {"os_type": "linux", "long": "x" * 9999}
        self.assertEqual(expected, volume_metadata.get_image_metadata(copy["id"]))

    def test_create_clone_of_attached_volume_succeeds(self):
        db_rows.add_attachment(self.source, "attached")
        self.assertEqual(self.source, self.copy()["source_volid"])

    def test_create_clone_of_volume_in_other_state_is_refused(self):
        reserved = db_rows.add_volume()["id"]
        db_rows.add_attachment(reserved)
        others = [db_rows.add_volume(state)["id"] for state in ("creating", "deleting", "error")]
        for source in (reserved, *others):
            status = db_rows.get_volume(source)["status"]
            with self.assertRaisesRegex(exception.InvalidVolume, f"currently {status}"):
                self.copy(source)
        with self.assertRaises(exception.VolumeNotFound):
            self.copy("gone")
        self.assertEqual(5, len(db_rows.list_volumes()))

    def test_create_clone_of_grown_source_is_refused(self):
        with self.assertRaisesRegex(exception.InvalidVolume, "grown to 2 GiB"):
            self.copy(size_gib=1)

    def test_delete_of_source_with_pending_clone_is_refused(self):
        copy = self.copy()["id"]
        with self.assertRaisesRegex(exception.InvalidVolume, f"copied to volume {copy}"):
            volume_store.transition(self.source, Event.DELETE)
        volume_store.transition(copy, Event.CREATED)
        volume_store.transition(self.source, Event.DELETE)
        self.assertEqual("deleting", db_rows.get_volume(self.source)["status"])
        volume_store.transition(self.source, Event.DELETED)
        self.assertEqual(self.source, db_rows.get_volume(copy)["source_volid"])

    def test_delete_of_source_with_failed_clone_succeeds(self):
        copy = self.copy()["id"]
        volume_store.transition(copy, Event.CREATE_FAILED)
        volume_store.transition(self.source, Event.DELETE)
        volume_store.transition(copy, Event.DELETE)
