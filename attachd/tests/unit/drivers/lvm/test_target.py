# SPDX-License-Identifier: Apache-2.0
"""Names of backends in the names of targets."""

import testtools

from attachd.drivers.lvm import configfs
from attachd.drivers.lvm.lio import Lio


class TargetTest(testtools.TestCase):
    def test_backend_is_part_of_names_of_targets(self):
        target = Lio(configfs.Tree(configfs.ROOT), "My_Backend:1")
        self.assertEqual("my-backend-1", target.backend)
        self.assertIn(":my-backend-1:id-ro", target._name("id", "ro"))
