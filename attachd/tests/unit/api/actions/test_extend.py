# SPDX-License-Identifier: Apache-2.0
"""Letting volumes grow, and what those who use them say of it."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.actions import extend
from attachd.api.volumes import backend_calls
from attachd.tests import asking, rows


class ExtendTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        asking.report()
        self.manager_api = self.enterContext(mock.patch.object(backend_calls, "manager_api"))

    def extend(self, volume, size, *roles, version=mv.LATEST):
        extend.extend(asking.context(*roles), volume["id"], {"new_size": size}, version)
        return rows.volume(volume["id"])

    def attached(self):
        volume = rows.add_volume()
        rows.add_attachment(volume["id"], "attached")
        return volume

    def test_extend_available_volume_marks_and_sends(self):
        row = self.extend(rows.add_volume(), "2")
        self.assertEqual(("extending", 2), (row["status"], row["new_size_gib"]))
        self.manager_api.extend_volume.assert_called_once()

    def test_extend_in_use_volume_since_3_42(self):
        volume = self.attached()
        with self.assertRaisesRegex(exception.InvalidVolume, "must be available to extend"):
            self.extend(volume, 2, version=mv.Version(3, 41))
        self.assertEqual("extending", self.extend(volume, 2, version=mv.Version(3, 42))["status"])

    def test_extend_to_smaller_size_is_refused(self):
        for size in (2, 1):
            with self.assertRaisesRegex(exception.InvalidInput, "greater than current"):
                self.extend(rows.add_volume(size_gib=2), size)

    def test_extend_in_wrong_status_names_status(self):
        reserved = rows.add_volume()
        rows.add_attachment(reserved["id"])
        for volume in (reserved, *map(rows.add_volume, ("error", "creating", "extending"))):
            status = rows.volume(volume["id"])["status"]
            with self.subTest(status), self.assertRaisesRegex(exception.InvalidVolume, status):
                self.extend(volume, 2)
        self.manager_api.extend_volume.assert_not_called()

    def test_extend_without_free_capacity_is_refused(self):
        volume = rows.add_volume()
        with self.assertRaisesRegex(exception.NoValidBackend, "GiB are asked for"):
            self.extend(volume, 200)
        self.assertEqual("available", rows.volume(volume["id"])["status"])

    def test_extend_for_reader_is_forbidden(self):
        with self.assertRaisesRegex(exception.Forbidden, "volume:extend"):
            self.extend(rows.add_volume(), 2, "reader")

    def test_extend_beyond_limits_of_type_is_refused(self):
        kind = asking.add_type(extra_specs={"provisioning:max_vol_size": "3"})
        volume = rows.add_volume(volume_type_id=kind["id"])
        with self.assertRaisesRegex(exception.InvalidInput, "at most 3 GiB"):
            self.extend(volume, 4)
        self.assertEqual("extending", self.extend(volume, 3)["status"])


class CompletionTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)

    def refused(self, state):
        volume_id = rows.add_volume(state, new_size_gib=5)["id"]
        before = rows.volume(volume_id)
        with self.assertRaises(exception.InvalidVolume) as caught:
            extend.complete_extend(asking.context(*asking.ADMIN), volume_id)
        self.assertEqual(before, rows.volume(volume_id))
        return str(caught.exception)

    def test_complete_extend_of_volume_not_extending_names_status(self):
        self.assertIn("not being extended, its status is available", self.refused("ready"))
        self.assertIn("error_extending", self.refused("error_extending"))

    def test_complete_extend_of_extending_volume_is_refused(self):
        self.assertIn("needs no confirmation", self.refused("extending"))

    def test_complete_extend_without_admin_is_forbidden(self):
        with self.assertRaisesRegex(exception.Forbidden, "extend_volume_completion"):
            extend.complete_extend(asking.context(), rows.add_volume("extending")["id"])
