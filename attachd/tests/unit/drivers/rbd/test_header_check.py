# SPDX-License-Identifier: Apache-2.0
"""What follows when a header is not the one that is stored, on a fake pool."""

import dataclasses
import unittest
from unittest import mock

from attachd import exception
from attachd.ceph import bindings, image_header, object_names
from attachd.drivers import base
from attachd.drivers.rbd.driver import RbdDriver
from attachd.tests.unit.drivers import configured
from attachd.tests.unit.drivers.rbd import fake_modules

VOLUME = base.VolumeRef("5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a0001", 1)
NAME = f"attachd-{VOLUME.id}"


class HeaderCheckTest(unittest.TestCase):
    """A volume whose header is stored."""

    def setUp(self):
        super().setUp()
        self.lib = fake_modules.modules()
        self.enterContext(mock.patch.object(bindings, "load", return_value=self.lib))
        self.driver = configured.driver(RbdDriver)
        (self.images,) = self.driver._pools
        self.lib.rbd.RBD.return_value.list2.return_value = [{"name": NAME, "id": "10ab"}]
        self.pool = fake_modules.Pool(self.lib)
        self.pool.add_header("10ab")
        self.pool.objects[f"rbd_id.{NAME}"] = object_names.encode("10ab")
        opened = mock.MagicMock(**{"return_value.__enter__.return_value": self.pool})
        self.enterContext(mock.patch.object(self.images, "open_pool", opened))
        self.users = mock.Mock(return_value=[])
        self.check = self.driver._headers
        self.check._list_users = self.users
        stored = image_header.describe("10ab", image_header.read(self.pool, "10ab"))
        self.volume = dataclasses.replace(VOLUME, provider={"image": stored})

    def test_header_as_it_is_stored_is_accepted_without_asking_for_users(self):
        self.assertEqual("10ab", self.check.check(self.volume)["id"])
        self.users.assert_not_called()

    def test_changed_header_is_refused_while_there_are_users_and_written_anew_without(self):
        self.users.return_value = [mock.Mock(entity="client.x")]
        self.pool.add_header("10ab", migration=b"x")
        with self.assertRaisesRegex(exception.BackendError, "migration. Detach") as caught:
            self.check.check(self.volume)
        self.assertTrue(caught.exception.final)
        self.users.return_value = []
        self.check.check(self.volume)
        self.assertNotIn("migration", image_header.read(self.pool, "10ab"))

    def test_snapshots_of_copies_in_progress_stay_in_a_header_that_is_written_anew(self):
        self.pool.add_header("10ab", migration=b"x")
        with mock.patch.object(self.images, "add_snapshots") as add:
            self.check.check(self.volume)
        add.assert_called_once_with(self.pool, "10ab")

    def test_size_of_an_extension_is_accepted(self):
        self.pool.add_header("10ab", size=(2**31).to_bytes(8, "little"))
        self.users.return_value = [mock.Mock(entity="client.x")]
        self.assertRaises(exception.BackendError, self.check.check, self.volume)
        self.check.check(self.volume, 2)

    def test_image_of_another_id_than_stored_is_refused(self):
        for provider in ({}, {"image": {"id": "10ac", "header": {}}}):
            volume = dataclasses.replace(VOLUME, provider=provider)
            with self.assertRaisesRegex(exception.BackendError, "not the one") as caught:
                self.check.check(volume)
            self.assertTrue(caught.exception.final)

    def test_missing_image_is_a_final_error(self):
        del self.pool.objects[f"rbd_id.{NAME}"]
        with self.assertRaisesRegex(exception.BackendError, "missing") as caught:
            self.check.check(self.volume)
        self.assertTrue(caught.exception.final)
        self.check.check_releasable(self.volume)

    def test_snapshots_of_hosts_are_not_left_in_a_released_image(self):
        self.pool.add_header("10ab", snapshot_0000000000000007=b"x")
        self.check.check(self.volume)
        self.assertEqual([7], image_header.snapshots(image_header.read(self.pool, "10ab")))
        self.check.check_releasable(self.volume)
        self.assertEqual([], image_header.snapshots(image_header.read(self.pool, "10ab")))

    def test_exported_volume_is_refused(self):
        self.users.return_value = [mock.Mock(entity="client.x")]
        with self.assertRaisesRegex(exception.BackendError, "client.x") as caught:
            self.check.check_releasable(self.volume)
        self.assertTrue(caught.exception.final)
