# SPDX-License-Identifier: Apache-2.0
"""Images, against a fake rbd: what a real cluster does not show at will."""

import struct
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import base
from attachd.drivers.rbd import bindings, images
from attachd.drivers.rbd.cluster import Session
from attachd.drivers.rbd.driver import RbdDriver
from attachd.tests.unit.drivers import configured
from attachd.tests.unit.drivers.rbd import fake_modules

VOLUME = base.VolumeRef("5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a0001", 1)
NAME = f"attachd-{VOLUME.id}"


class ImagesTest(unittest.TestCase):
    """A pool in which a test puts what it needs."""

    def setUp(self):
        super().setUp()
        self.lib = fake_modules.modules()
        self.enterContext(mock.patch.object(bindings, "load", return_value=self.lib))
        self.driver = configured.driver(RbdDriver)
        (self.images,) = self.driver._pools
        self.rbd = self.lib.rbd.RBD.return_value
        self.rbd.list2.return_value = [{"name": NAME, "id": "10ab"}]
        self.image = self.lib.rbd.Image.return_value
        self.image.watchers_list.return_value = []
        self.image.list_snaps.return_value = []
        self.pool = self.lib.rados.Rados.return_value.open_ioctx.return_value
        self.pool.read.side_effect = self.lib.rados.ObjectNotFound("none", 2)

    def test_image_whose_objects_begin_like_those_of_another_is_not_kept(self):
        for other in ("10", "10ab77"):
            self.rbd.list2.return_value = [
                {"name": NAME, "id": "10ab"},
                {"name": "volume-of-cinder", "id": other},
            ]
            with self.assertRaisesRegex(exception.BackendError, "told apart"):
                self.images.create(VOLUME)
            self.rbd.remove.assert_called_with(self.pool, NAME)

    def test_half_created_image_is_created_again(self):
        self.rbd.create.side_effect = [self.lib.rbd.ImageExists("exists", 17), None]
        self.lib.rbd.Image.side_effect = self.lib.rbd.ImageNotFound("none", 2)
        self.images.create(VOLUME)
        self.rbd.remove.assert_called_once_with(self.pool, NAME)
        self.assertEqual(2, self.rbd.create.call_count)

    def test_existing_image_is_not_created_again(self):
        self.rbd.create.side_effect = self.lib.rbd.ImageExists("exists", 17)
        self.images.create(VOLUME)
        self.rbd.remove.assert_not_called()

    def test_sizes_have_volumes_of_prefix_whose_image_was_not_deleted(self):
        deleted = "5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a0002"
        self.rbd.list2.return_value += [
            {"name": f"attachd-{deleted}", "id": "10ac"},
            {"name": f"volume-{VOLUME.id}", "id": "10ad"},
        ]
        answers = {"rbd_header.10ab": struct.pack("<BQ", 22, 2**30), "rbd_header.10ac": None}

        def execute(header, _cls, _method, _data, _length, answered):
            answered(None, answers[header])
            return mock.Mock()

        self.pool.aio_execute.side_effect = execute
        self.assertEqual({VOLUME.id: 2**30}, self.images.sizes())

    def test_lock_owner_is_client_of_exclusive_lock_alone(self):
        lockers = [("client.4106", "auto 1", "127.0.0.1:0/9")]
        locked = {"tag": "internal", "exclusive": True, "lockers": lockers}
        owner = images.Watch(4106, "127.0.0.1:0/9")
        for found, expected in (([], None), (locked, owner), ({**locked, "tag": "own"}, None)):
            self.image.list_lockers.return_value = found
            self.assertEqual(expected, self.images.lock_owner(VOLUME.id))
        self.lib.rbd.Image.side_effect = self.lib.rbd.ImageNotFound("none", 2)
        self.assertIsNone(self.images.lock_owner(VOLUME.id))

    def test_image_is_not_deleted_while_a_client_has_it_open(self):
        self.image.watchers_list.return_value = [{"id": 7, "addr": "127.0.0.1:0/9"}]
        session = Session(7, "client.admin", ("127.0.0.1:0/9",))
        with (
            mock.patch.object(self.driver._cluster, "sessions", return_value=[session]),
            self.assertRaisesRegex(exception.BackendError, r"127\.0\.0\.1:0/9") as caught,
        ):
            self.images.delete(VOLUME.id)
        self.assertTrue(caught.exception.final)
        self.rbd.remove.assert_not_called()

    def test_image_is_deleted_when_watch_of_dead_manager_has_expired(self):
        watches = [[{"id": 7, "addr": "127.0.0.1:0/9"}], [], []]
        self.image.watchers_list.side_effect = watches
        with (
            mock.patch.object(self.driver._cluster, "sessions", return_value=[]),
            mock.patch.object(images.time, "sleep"),
        ):
            self.images.delete(VOLUME.id)
        self.rbd.remove.assert_called_with(self.pool, NAME)

    def test_image_with_snapshots_is_not_deleted(self):
        self.rbd.remove.side_effect = self.lib.rbd.ImageHasSnapshots("snapshots", 39)
        with self.assertRaisesRegex(exception.BackendError, "snapshots") as caught:
            self.images.delete(VOLUME.id)
        self.assertTrue(caught.exception.final)
