# SPDX-License-Identifier: Apache-2.0
"""Images that could become volumes, against a fake rbd: what a real cluster does not show."""

import unittest
from unittest import mock

from attachd import exception
from attachd.drivers.rbd import bindings
from attachd.drivers.rbd.driver import RbdDriver
from attachd.tests.unit.drivers import configured
from attachd.tests.unit.drivers.rbd import fake_modules

GIB = 2**30
REFERENCE = {"source-name": "disk"}


class ExistingImagesTest(unittest.TestCase):
    """A pool with one image, which could become a volume."""

    def setUp(self):
        super().setUp()
        self.lib = fake_modules.modules()
        self.enterContext(mock.patch.object(bindings, "load", return_value=self.lib))
        self.driver = configured.driver(RbdDriver)
        cluster = self.driver._cluster
        self.enterContext(mock.patch.object(cluster, "users", return_value={}))
        self.enterContext(mock.patch.object(cluster, "sessions", return_value=[]))
        self.rbd = self.lib.rbd.RBD.return_value
        self.rbd.list2.return_value = [{"name": "disk", "id": "10ab"}]
        image = self.lib.rbd.Image.return_value
        image.size.return_value = GIB
        image.watchers_list.return_value = image.list_snaps.return_value = []
        image.old_format.return_value = False
        image.overlap.return_value = 0
        image.features.return_value = self.lib.rbd.RBD_FEATURE_LAYERING
        self.image = image

    def refusal(self):
        return self.driver.get_manageable(REFERENCE).refusal

    def test_image_without_hindrance_can_be_managed(self):
        self.assertEqual("", self.refusal())

    def test_image_of_first_format_is_refused(self):
        self.image.old_format.return_value = True
        self.assertIn("first format", self.refusal())

    def test_features_are_named(self):
        self.image.features.return_value |= self.lib.rbd.RBD_FEATURE_DATA_POOL | 1 << 20
        self.assertIn("data-pool, 0x100000", self.refusal())

    def test_image_whose_objects_begin_like_those_of_another_is_refused(self):
        self.rbd.list2.return_value.append({"name": "other", "id": "10"})
        self.assertIn("image other", self.refusal())

    def test_image_that_dead_client_had_open_can_be_managed(self):
        self.image.watchers_list.return_value = [{"id": 7, "addr": "127.0.0.1:0/9"}]
        self.assertEqual("", self.refusal())

    def test_image_in_other_pool_or_without_name_is_invalid(self):
        for name in ("other/disk", "/disk", "volumes/", "", None, ["disk"], "missing"):
            self.lib.rbd.Image.side_effect = (
                self.lib.rbd.ImageNotFound("none", 2) if name == "missing" else None
            )
            with self.assertRaises(exception.InvalidInput, msg=name):
                self.driver.get_manageable({"source-name": name})

    def test_pool_may_be_named(self):
        expected = self.driver.get_manageable(REFERENCE)
        self.assertEqual(expected, self.driver.get_manageable({"source-name": "volumes/disk"}))
