# SPDX-License-Identifier: Apache-2.0
"""What is known of the image on a volume, by actions."""

import unittest

from attachd import exception
from attachd.api.actions import image_metadata
from attachd.tests import asking, rows


class ImageMetadataTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.ctx = asking.context()
        self.volume_id = rows.add_volume()["id"]

    def merge(self, volume_id, *roles, **pairs):
        return image_metadata.merge(asking.context(*roles), volume_id, {"metadata": pairs})

    def test_pairs_are_set_shown_and_removed(self):
        self.merge(self.volume_id, os_type="linux")
        self.assertEqual(
            {"metadata": {"os_type": "linux", "min_disk": "1"}},
            self.merge(self.volume_id, min_disk="1"),
        )
        image_metadata.remove(self.ctx, self.volume_id, {"key": "os_type"})
        shown = image_metadata.show(asking.context("reader"), self.volume_id)
        self.assertEqual({"metadata": {"min_disk": "1"}}, shown)
        with self.assertRaisesRegex(exception.NotFound, "os_type"):
            image_metadata.remove(self.ctx, self.volume_id, {"key": "os_type"})

    def test_what_has_none_is_not_found(self):
        with self.assertRaisesRegex(exception.NotFound, self.volume_id):
            image_metadata.show(self.ctx, self.volume_id)

    def test_a_reader_only_looks(self):
        with self.assertRaisesRegex(exception.Forbidden, "image_metadata:set"):
            self.merge(self.volume_id, "reader", a="b")
        with self.assertRaisesRegex(exception.Forbidden, "image_metadata:remove"):
            image_metadata.remove(asking.context("reader"), self.volume_id, {"key": "a"})

    def test_not_in_maintenance(self):
        volume_id = rows.add_volume("maintenance")["id"]
        with self.assertRaises(exception.InvalidVolume):
            self.merge(volume_id, a="b")
        with self.assertRaises(exception.InvalidVolume):
            image_metadata.remove(self.ctx, volume_id, {"key": "a"})

    def test_another_projects_volume_is_not_there(self):
        volume_id = rows.add_volume(project_id=asking.OTHER_PROJECT)["id"]
        for act in (
            lambda: self.merge(volume_id, a="b"),
            lambda: image_metadata.remove(self.ctx, volume_id, {"key": "a"}),
            lambda: image_metadata.show(self.ctx, volume_id),
        ):
            with self.assertRaises(exception.VolumeNotFound):
                act()
