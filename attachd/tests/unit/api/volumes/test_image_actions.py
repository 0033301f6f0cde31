# SPDX-License-Identifier: Apache-2.0
"""Fields of images that are made of volumes; tests/functional has the actions."""

import unittest

from attachd.api.volumes import image_actions
from attachd.db.volumes import volume_metadata
from attachd.objects import Volume
from attachd.tests.fixtures import databases, db_rows


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
