# SPDX-License-Identifier: Apache-2.0
"""Locations of images, as the Image service names them."""

import unittest

from attachd.drivers.rbd import image_clones


class LocationTest(unittest.TestCase):
    def test_url_of_a_snapshot_is_read(self):
        expected = image_clones.Location("f", "a/b", "i", "snap")
        self.assertEqual(expected, image_clones.parse("rbd://f/a%2Fb/i/snap"))

    def test_other_urls_are_none(self):
        for url in ("", "rbd://", "rbd://i", "rbd://f/p/i", "rbd://f/p/i/s/x", "rbd://f//i/s"):
            with self.subTest(url):
                self.assertIsNone(image_clones.parse(url))
        self.assertIsNone(image_clones.parse("http://f/p/i/s"))
