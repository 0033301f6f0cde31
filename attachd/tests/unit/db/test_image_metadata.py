# SPDX-License-Identifier: Apache-2.0
"""What is known of the image on a volume."""

import unittest

from attachd import exception
from attachd.db import image_metadata, volume_metadata
from attachd.tests import databases, rows


class ImageMetadataTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        self.volume_id = rows.add_volume()["id"]
        self.other = rows.add_volume()["id"]
        image_metadata.merge(self.other, {"os_type": "untouched"})

    def tearDown(self):
        self.assertEqual({"os_type": "untouched"}, image_metadata.get(self.other))
        super().tearDown()

    def test_merging_keeps_what_is_not_named(self):
        image_metadata.merge(self.volume_id, {"a": "1", "b": "2"})
        after = image_metadata.merge(self.volume_id, {"b": "3", "c": ""})
        self.assertEqual({"a": "1", "b": "3", "c": ""}, after)
        self.assertEqual(after, image_metadata.get(self.volume_id))

    def test_a_long_value_is_kept_whole(self):
        image_metadata.merge(self.volume_id, {"a": "ü" * 65535})
        self.assertEqual({"a": "ü" * 65535}, image_metadata.get(self.volume_id))

    def test_it_is_apart_from_the_users_metadata(self):
        image_metadata.merge(self.volume_id, {"a": "1"})
        self.assertEqual({"b": "2"}, volume_metadata.merge(self.volume_id, {"b": "2"}))
        self.assertEqual({"a": "1"}, image_metadata.get(self.volume_id))

    def test_one_pair_is_removed(self):
        image_metadata.merge(self.volume_id, {"a": "1", "b": "2"})
        image_metadata.delete(self.volume_id, "a")
        self.assertEqual({"b": "2"}, image_metadata.get(self.volume_id))
        with self.assertRaisesRegex(exception.NotFound, "key a"):
            image_metadata.delete(self.volume_id, "a")

    def test_an_unknown_volume_is_told(self):
        for change in (
            lambda: image_metadata.merge("gone", {"a": "1"}),
            lambda: image_metadata.delete("gone", "a"),
        ):
            with self.assertRaises(exception.VolumeNotFound):
                change()
        self.assertEqual({}, image_metadata.get("gone"))
