# SPDX-License-Identifier: Apache-2.0
"""Copies and their sources, as the tables keep them."""

import unittest

from attachd import exception
from attachd.db.volumes import metadata as volume_metadata
from attachd.db.volumes import store as volumes
from attachd.states import Event
from attachd.tests.fixtures import databases, db_rows


class CopiesTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        self.source = db_rows.add_volume(size_gib=2)["id"]

    def copy(self, source=None, **values):
        wanted = {
            "project_id": db_rows.PROJECT,
            "size_gib": 2,
            "host": "here@fake#pool",
            "source_volid": source or self.source,
            **values,
        }
        return volumes.create(wanted, {})

    def test_a_copy_knows_its_source_and_what_is_known_of_the_image_on_it(self):
        volume_metadata.merge_image_metadata(self.source, {"os_type": "linux", "long": "x" * 9999})
        volume_metadata.merge_image_metadata(db_rows.add_volume()["id"], {"os_type": "other"})
        copy = self.copy()
        self.assertEqual(self.source, db_rows.get_volume(copy["id"])["source_volid"])
        self.assertEqual("creating", copy["status"])
        expected = {"os_type": "linux", "long": "x" * 9999}
        self.assertEqual(expected, volume_metadata.get_image_metadata(copy["id"]))

    def test_what_is_in_use_can_be_copied(self):
        db_rows.add_attachment(self.source, "attached")
        self.assertEqual(self.source, self.copy()["source_volid"])

    def test_what_is_in_no_state_for_it_cannot(self):
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

    def test_what_has_grown_meanwhile_cannot(self):
        with self.assertRaisesRegex(exception.InvalidVolume, "grown to 2 GiB"):
            self.copy(size_gib=1)

    def test_a_source_stays_until_its_copy_has_its_data(self):
        copy = self.copy()["id"]
        with self.assertRaisesRegex(exception.InvalidVolume, f"copied to volume {copy}"):
            volumes.move(self.source, Event.DELETE)
        volumes.move(copy, Event.CREATED)
        volumes.move(self.source, Event.DELETE)
        self.assertEqual("deleting", db_rows.get_volume(self.source)["status"])
        volumes.move(self.source, Event.DELETED)
        self.assertEqual(self.source, db_rows.get_volume(copy)["source_volid"])

    def test_a_copy_that_failed_keeps_nothing(self):
        copy = self.copy()["id"]
        volumes.move(copy, Event.CREATE_FAILED)
        volumes.move(self.source, Event.DELETE)
        volumes.move(copy, Event.DELETE)
