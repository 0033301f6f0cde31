# SPDX-License-Identifier: Apache-2.0
"""What follows when a header is not the one that is stored, on a fake pool."""

import dataclasses
from unittest import mock

from attachd import exception
from attachd.ceph import image_header
from attachd.tests.unit.drivers.rbd.pool_case import NAME, VOLUME, PoolCase


class HeaderCheckTest(PoolCase):
    """A volume whose header is stored."""

    def setUp(self):
        super().setUp()
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
        with mock.patch.object(self.images.views, "add_snapshots") as add:
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
