# SPDX-License-Identifier: Apache-2.0
"""A test case of the driver rbd on a fake pool that has one volume."""

import unittest
from unittest import mock

from attachd.ceph import bindings, object_names
from attachd.drivers import base
from attachd.drivers.rbd.driver import RbdDriver
from attachd.tests.unit.drivers import configured
from attachd.tests.unit.drivers.rbd import fake_modules

VOLUME = base.VolumeRef("5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a0001", 1)
NAME = f"attachd-{VOLUME.id}"


class PoolCase(unittest.TestCase):
    """The volume has the image id 10ab.

    :ivar lib: the modules of Ceph
    :ivar images: of the driver
    :ivar pool: what is in it
    """

    def setUp(self):
        super().setUp()
        self.lib = fake_modules.modules()
        self.enterContext(mock.patch.object(bindings, "load", return_value=self.lib))
        self.driver = configured.driver(RbdDriver)
        (self.images,) = self.driver._pools
        self.rbd = self.lib.rbd.RBD.return_value
        self.rbd.list2.return_value = [{"name": NAME, "id": "10ab"}]
        self.pool = fake_modules.Pool(self.lib)
        self.pool.add_header("10ab")
        self.pool.objects[f"rbd_id.{NAME}"] = object_names.encode("10ab")
        opened = mock.MagicMock(**{"return_value.__enter__.return_value": self.pool})
        self.enterContext(mock.patch.object(self.images, "open_pool", opened))
