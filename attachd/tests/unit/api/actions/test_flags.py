# SPDX-License-Identifier: Apache-2.0
"""Whether servers may boot from a volume, and hosts write to it."""

import unittest

from attachd import exception
from attachd.api.actions import flags
from attachd.tests import asking, rows


class BootableTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)

    def test_it_is_set_and_taken_back(self):
        volume_id = rows.add_volume()["id"]
        for said, expected in (("true", True), (False, False), ("on", True), ("0", False)):
            flags.set_bootable(asking.context(), volume_id, {"bootable": said})
            self.assertIs(expected, rows.volume(volume_id)["bootable"])

    def test_not_in_maintenance(self):
        volume_id = rows.add_volume("maintenance")["id"]
        with self.assertRaises(exception.InvalidVolume):
            flags.set_bootable(asking.context(), volume_id, {"bootable": True})

    def test_a_reader_may_not(self):
        volume_id = rows.add_volume()["id"]
        with self.assertRaisesRegex(exception.Forbidden, "volume:update"):
            flags.set_bootable(asking.context("reader"), volume_id, {"bootable": True})


class ReadonlyTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)

    def test_it_is_set_and_taken_back(self):
        volume_id = rows.add_volume()["id"]
        for said, expected in (("True", "True"), (False, "False"), (True, "True")):
            flags.update_readonly_flag(asking.context(), volume_id, {"readonly": said})
            self.assertEqual({"readonly": expected}, rows.volume(volume_id)["admin_metadata"])

    def test_a_reader_may_not(self):
        volume_id = rows.add_volume()["id"]
        with self.assertRaisesRegex(exception.Forbidden, "update_readonly_flag"):
            flags.update_readonly_flag(asking.context("reader"), volume_id, {"readonly": True})

    def test_another_projects_volume_is_not_there(self):
        volume_id = rows.add_volume(project_id=asking.OTHER_PROJECT)["id"]
        for act, body in (
            (flags.update_readonly_flag, {"readonly": True}),
            (flags.set_bootable, {"bootable": True}),
        ):
            with self.assertRaises(exception.VolumeNotFound):
                act(asking.context(), volume_id, body)
