# SPDX-License-Identifier: Apache-2.0
"""Images that could become volumes, against a fake rbd: what a real cluster does not show."""

import unittest
from unittest import mock

from attachd import exception
from attachd.ceph import bindings
from attachd.drivers.rbd.driver import RbdDriver
from attachd.drivers.rbd.image_clients import Watch
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
        self.pool = fake_modules.Pool(self.lib)
        self.pool.add_header("10ab")
        (images,) = self.driver._pools
        opened = mock.MagicMock(**{"return_value.__enter__.return_value": self.pool})
        self.enterContext(mock.patch.object(images, "open_pool", opened))
        self.watches = mock.Mock(return_value=[])
        self.enterContext(mock.patch.object(images.clients, "list_watches", self.watches))

    def refusal(self):
        return self.driver.get_manageable(REFERENCE).refusal

    def test_image_without_hindrance_can_be_managed(self):
        self.assertEqual("", self.refusal())

    def test_image_of_first_format_is_refused(self):
        self.rbd.list2.return_value = [{"name": "disk", "id": ""}]
        self.assertIn("first format", self.refusal())

    def test_features_are_named(self):
        features = 1 | self.lib.rbd.RBD_FEATURE_DATA_POOL | 1 << 20
        self.pool.add_header("10ab", features=features.to_bytes(8, "little"))
        self.assertIn("data-pool, 0x100000", self.refusal())

    def test_header_that_names_other_data_is_refused_and_image_not_opened(self):
        for key in ("parent", "migration", "metadata_conf_x", "object_prefix"):
            self.pool.add_header("10ab", **{key: b"x"})
            self.assertIn("flatten" if key == "parent" else key, self.refusal())
        self.lib.rbd.Image.assert_not_called()

    def test_snapshots_are_refused(self):
        self.pool.add_header("10ab", snapshot_0000000000000007=b"")
        self.assertIn("snapshots (7)", self.refusal())

    def test_image_whose_objects_begin_like_those_of_another_is_refused(self):
        self.rbd.list2.return_value.append({"name": "other", "id": "10"})
        self.assertIn("image other", self.refusal())

    def test_image_that_dead_client_had_open_can_be_managed(self):
        self.watches.return_value = [Watch(7, "127.0.0.1:0/9")]
        self.assertEqual("", self.refusal())

    def test_image_in_other_pool_or_without_name_is_invalid(self):
        for name in ("other/disk", "/disk", "volumes/", "", None, ["disk"], "missing"):
            with self.assertRaises(exception.InvalidInput, msg=name):
                self.driver.get_manageable({"source-name": name})

    def test_pool_may_be_named(self):
        expected = self.driver.get_manageable(REFERENCE)
        self.assertEqual(expected, self.driver.get_manageable({"source-name": "volumes/disk"}))
