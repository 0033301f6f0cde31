# SPDX-License-Identifier: Apache-2.0
"""Fields of images that are made of volumes; tests/functional has the actions."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.volumes import backend_calls, image_actions
from attachd.db.volumes import volume_metadata
from attachd.objects import Volume
from attachd.tests.fixtures import api_context, conf_fixture, databases, db_rows, fake_glance


class PropertiesTest(unittest.TestCase):
    def test_image_gets_properties_and_not_what_describes_former_data(self):
        databases.use(self)
        row = db_rows.add_volume("ready")
        pairs = {
            "hw_disk_bus": "scsi",
            **dict.fromkeys(("image_id", "checksum", "size", "min_disk", "disk_format"), "1"),
            **dict.fromkeys(("img_signature", "img_signature_hash_method", "os_glance_x"), "1"),
        }
        volume_metadata.merge_image_metadata(row["id"], pairs)
        volume = Volume(id=row["id"])
        self.assertEqual({"hw_disk_bus": "scsi"}, image_actions._properties(volume))


class ForceTest(api_context.ApiContextCase):
    """Uploads of volumes in use: what is checked before a manager is called."""

    def setUp(self):
        super().setUp()
        conf_fixture.override(self, "enable_force_upload", True, group="glance")
        self.glance = fake_glance.use(self)
        self.calls = self.enterContext(mock.patch.object(backend_calls, "manager_api"))
        self.volume = db_rows.add_volume()["id"]
        db_rows.add_attachment(self.volume, "attached")

    def upload(self, **capabilities):
        report = {**api_context.BACKEND_REPORT, "capabilities": capabilities}
        api_context.report_backend(report=report)
        ctx = api_context.make_context(*api_context.ADMIN)
        body = {"image_name": "x", "force": True}
        image_actions.upload(ctx, self.volume, body, mv.LATEST)

    def test_backend_that_cannot_read_snapshots_is_refused(self):
        for capabilities in ({}, {"read_snapshots": False}):
            with self.assertRaisesRegex(exception.NoValidBackend, "read_snapshots"):
                self.upload(**capabilities)
        self.assertEqual(
            ("in-use", {}), (db_rows.get_volume(self.volume)["status"], self.glance.images)
        )

    def test_message_is_sent_for_volume_with_snapshot(self):
        self.upload(read_snapshots=True)
        self.calls.upload_volume.assert_called_once()
        (snapshot,) = db_rows.list_snapshots()
        self.assertEqual([snapshot["id"]], list(self.glance.images))
