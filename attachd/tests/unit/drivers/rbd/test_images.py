# SPDX-License-Identifier: Apache-2.0
"""Images, against a fake rbd: what a real cluster does not show at will."""

import struct
from unittest import mock

from attachd import exception
from attachd.ceph import object_names
from attachd.drivers.rbd import objects
from attachd.tests.unit.drivers.rbd.pool_case import NAME, VOLUME, PoolCase


class ImagesTest(PoolCase):
    """A pool in which a test puts what it needs."""

    def setUp(self):
        super().setUp()
        self.pool.objects["rbd_directory"] = b""
        self.used = mock.Mock()
        self.enterContext(mock.patch.object(self.images.clients, "check_unused", self.used))

    def test_image_whose_objects_begin_like_those_of_another_is_not_kept(self):
        for other in ("10", "10ab77"):
            self.pool.add_header("10ab")
            self.pool.objects[f"rbd_id.{NAME}"] = object_names.encode("10ab")
            self.rbd.list2.return_value = [
                {"name": NAME, "id": "10ab"},
                {"name": "volume-of-cinder", "id": other},
            ]
            with self.assertRaisesRegex(exception.BackendError, "told apart"):
                self.images.create(VOLUME)
            self.assertFalse(objects.exists(self.pool, NAME))

    def test_half_created_image_is_created_again(self):
        def create(*_arguments):
            if "rbd_header.10ab" in self.pool.objects:
                raise self.lib.rbd.ImageExists("exists", 17)
            self.pool.add_header("10ab")
            self.pool.objects[f"rbd_id.{NAME}"] = object_names.encode("10ab")

        self.pool.objects["rbd_header.10ab"] = {}
        self.rbd.create.side_effect = create
        created = self.images.create(VOLUME)
        self.assertEqual(2, self.rbd.create.call_count)
        self.assertEqual("10ab", created["image"]["id"])

    def test_existing_image_is_not_created_again(self):
        self.rbd.create.side_effect = self.lib.rbd.ImageExists("exists", 17)
        created = self.images.create(VOLUME)
        self.assertIn("rbd_header.10ab", self.pool.objects)
        self.assertEqual(created, self.images.create(VOLUME))

    def test_image_with_features_that_hosts_cannot_use_is_not_created(self):
        self.pool.add_header("10ab", features=(64).to_bytes(8, "little"))
        with self.assertRaisesRegex(exception.BackendError, "key features.*rbd_default"):
            self.images.create(VOLUME)

    def test_sizes_have_volumes_of_prefix_also_with_header_that_cannot_be_read(self):
        garbled = "5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a0002"
        self.rbd.list2.return_value += [
            {"name": f"attachd-{garbled}", "id": "10ac"},
            {"name": f"volume-{VOLUME.id}", "id": "10ad"},
        ]
        answers = {"rbd_header.10ab": struct.pack("<BQ", 22, 2**30), "rbd_header.10ac": None}

        def execute(header, _cls, _method, _data, _length, answered):
            answered(None, answers[header])
            return mock.Mock()

        self.pool.aio_execute = execute
        self.assertEqual({VOLUME.id: 2**30, garbled: 0}, self.images.sizes())

    def test_owner_of_lock_is_asked_for_only_if_there_is_one(self):
        with mock.patch.object(self.images.clients, "lock_owner") as lock_owner:
            self.assertIsNone(self.images.lock_owner(VOLUME.id))
            lock_owner.assert_not_called()
            self.pool.answers["get_info"] = b"\1\1\0\0\0\0\1\0\0\0..."
            self.assertIs(lock_owner.return_value, self.images.lock_owner(VOLUME.id))
            lock_owner.assert_called_once_with("10ab")
            self.pool.objects.clear()
            self.assertIsNone(self.images.lock_owner(VOLUME.id))

    def test_image_is_not_deleted_while_a_client_has_it_open(self):
        self.used.side_effect = [None, exception.BackendError("in use", final=True)]
        self.assertRaises(exception.BackendError, self.images.delete, VOLUME)
        self.assertTrue(objects.exists(self.pool, NAME))

    def test_objects_beyond_a_changed_header_are_deleted(self):
        self.pool.add_header("10ab", size=bytes(8))
        beyond = "rbd_data.10ab.0000000000ffffff"
        self.pool.objects |= {beyond: b"", "rbd_data.10ac.0000000000000000": b"another"}
        self.images.delete(VOLUME)
        self.assertEqual(
            ["rbd_data.10ac.0000000000000000", "rbd_directory"], sorted(self.pool.objects)
        )

    def test_image_that_is_being_copied_is_not_deleted(self):
        copy = "attachd-copy.5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a0003"
        self.pool.add_record(copy, source=NAME, cloned=False)
        with self.assertRaisesRegex(exception.BackendError, "being copied") as caught:
            self.images.delete(VOLUME)
        self.assertTrue(caught.exception.final)
