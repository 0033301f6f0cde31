# SPDX-License-Identifier: Apache-2.0
"""What the kinds of existing objects have in common."""

import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import base, existing
from attachd.drivers.abilities import ManageableObject

VOLUME = base.VolumeRef("0d6f6a5a-6f8b-4b8e-9d8e-0a3c1f7f5c11", 1)
DISK = {"source-name": "disk"}


class ExistingTest(unittest.TestCase):
    def assert_refused(self, says, found, size_bytes=2):
        with self.assertRaisesRegex(exception.BackendError, says) as caught:
            existing.check_usable("image", found, size_bytes)
        self.assertTrue(caught.exception.final)

    def test_object_not_larger_than_volume_is_usable(self):
        for size in (1, 2):
            existing.check_usable("image", ManageableObject(DISK, size), 2)

    def test_object_with_refusal_is_refused_with_name_and_reason(self):
        found = ManageableObject(DISK, 1, "It is empty.")
        self.assert_refused("The image disk cannot be managed. It is empty.", found)

    def test_object_that_has_grown_is_refused(self):
        self.assert_refused("image disk cannot.*has grown", ManageableObject(DISK, 3))

    def test_volume_is_described_as_already_managed(self):
        found = existing.managed("disk", 2, VOLUME.id, "fast")
        self.assertEqual(
            ManageableObject(DISK, 2, "already managed", VOLUME.id, pool="fast"), found
        )
        self.assert_refused("already managed", found)

    def test_reference_without_object_becomes_final_error_with_reason(self):
        with (
            self.assertRaisesRegex(exception.BackendError, "no such image") as caught,
            existing.missing_is_final(),
        ):
            raise existing.invalid(DISK, "There is no such image.")
        self.assertTrue(caught.exception.final)

    def test_invalid_reference_names_field_and_value(self):
        error = existing.invalid(DISK, "There is no such image.")
        self.assertEqual(("ref", DISK), (error.details["field"], error.details["value"]))

    def test_ability_is_that_of_the_objects(self):
        driver = existing.ManageByName()
        driver.existing = mock.create_autospec(existing.ExistingObjects, instance=True)
        driver.existing.list.return_value = [ManageableObject(DISK, 1)]
        driver.existing.get.return_value = ManageableObject(DISK, 1)
        self.assertEqual([ManageableObject(DISK, 1)], list(driver.list_manageable()))
        self.assertEqual(ManageableObject(DISK, 1), driver.get_manageable(DISK))
        for returned, provider in ((None, {}), ({"size": 1}, {"size": 1})):
            driver.existing.manage.return_value = returned
            self.assertEqual(provider, driver.manage(VOLUME, DISK))
            driver.existing.manage.assert_called_with(VOLUME, DISK)
        driver.unmanage(VOLUME)
        driver.existing.unmanage.assert_called_once_with(VOLUME)
