# SPDX-License-Identifier: Apache-2.0
"""Data that belongs to no volume, on a fake pool."""

import unittest
from unittest import mock

from attachd.ceph import bindings
from attachd.drivers.rbd import stray_data
from attachd.tests.unit.drivers.rbd import fake_modules


class StrayDataTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.lib = fake_modules.modules()
        self.enterContext(mock.patch.object(bindings, "load", return_value=self.lib))
        self.rbd = self.lib.rbd.RBD.return_value
        self.rbd.list2.return_value = [
            {"name": "volume", "id": "10ab"},
            {"name": "of-another-service", "id": "10ac"},
        ]
        self.rbd.trash_list.return_value = [{"id": "10ad"}]
        self.pool = fake_modules.Pool(self.lib)

    def find(self, *names):
        self.pool.objects = dict.fromkeys(names, b"")
        return [orphan.name for orphan in stray_data.find(self.pool, "volumes", {"10ab": 256})]

    def test_data_of_images_and_other_objects_is_none(self):
        names = [f"rbd_data.{image}.00000000000000ff" for image in ("10ab", "10ac", "10ad")]
        beyond = ["rbd_data.10ac.ffffffffffffffff", "rbd_data.7.10ff.0000000000000000"]
        self.assertEqual([], self.find(*names, *beyond, "rbd_header.10ff", "rbd_data.x"))

    def test_data_beyond_end_of_volume_and_data_of_no_image_is_found(self):
        beyond, unknown = "rbd_data.10ab.0000000000000100", "rbd_data.10ff.0000000000000000"
        found = self.find(beyond, "rbd_data.10ab.0000000000000000", unknown)
        self.assertEqual(2, len(found))
        self.assertIn("up to 0000000000000100", found[0])
        self.assertIn("of no image, objects rbd_data.10ff.*", found[1])

    def test_data_under_names_that_no_client_uses_is_found(self):
        for image in ("10ab", "10ff"):
            for rest in ("hidden", "", "7.0000000000000000", "00000000000000000", "a\nb"):
                self.assertEqual(1, len(self.find(f"rbd_data.{image}.{rest}")), rest)
