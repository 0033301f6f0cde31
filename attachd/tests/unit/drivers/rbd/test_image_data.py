# SPDX-License-Identifier: Apache-2.0
"""The data of images, of which the names of the objects follow."""

from unittest import mock

from attachd import exception
from attachd.ceph import image_header
from attachd.drivers import base
from attachd.drivers.rbd import image_data
from attachd.tests.unit.drivers.rbd.pool_case import VOLUME, PoolCase

_STORED = image_header.Stored(id="10ab", header={"order": "16"})  # 4 MiB
_OBJECT = 4 * 2**20


class ObjectDataTest(PoolCase):
    def setUp(self):
        super().setUp()
        data = {"rbd_data.10ab.0000000000000001": b"abc", "rbd_data.10ab.0000000000000002": b"x"}

        def read(name, length, offset):
            if name not in data:
                raise self.lib.rados.ObjectNotFound("none", 2)
            return data[name][offset : offset + length]

        self.pool.read = mock.Mock(side_effect=read)

    def opened(self, stored=_STORED):
        return image_data.open_for_reading(self.images, VOLUME.id, stored)

    def test_objects_are_read_and_padded(self):
        with self.opened() as data:
            self.assertEqual(b"\0\0abc\0", data.read(_OBJECT - 2, 6))
            self.assertEqual(bytes(5) + b"x\0", data.read(2 * _OBJECT - 5, 7))
            self.assertEqual(bytes(10), data.read(0, 10))

    def test_writes_are_refused(self):
        with self.opened() as data, self.assertRaises(exception.BackendError):
            data.write(0, b"x")

    def test_striped_image_is_not_read(self):
        stored = image_header.Stored(id="10ab", header={"order": "16", "stripe_unit": "00"})
        with self.assertRaisesRegex(exception.BackendError, "striped"), self.opened(stored):
            pass


class NewImageTest(PoolCase):
    def test_new_image_is_written_flushed_and_closed(self):
        image = self.lib.rbd.Image.return_value
        with image_data.open_new(self.images, VOLUME.id, "name") as data:
            data.write(5, b"abc")
        image.write.assert_called_once_with(b"abc", 5)
        self.assertEqual(["write", "flush", "close"], [call[0] for call in image.method_calls])

    def test_failed_write_closes_image(self):
        image = self.lib.rbd.Image.return_value
        image.write.side_effect = self.lib.rbd.Error("bad", 5)
        with (
            self.assertRaises(exception.BackendError),
            image_data.open_new(self.images, VOLUME.id, "name") as data,
        ):
            data.write(5, b"abc")
        image.close.assert_called_once_with()

    def test_lost_ownership_stops_writes(self):
        def refuse():
            raise exception.BackendError("Another process works on the volume.")

        with (
            image_data.open_new(self.images, VOLUME.id, "name") as data,
            base.ownership(refuse),
            self.assertRaises(exception.BackendError),
        ):
            data.write(5, b"abc")
        self.lib.rbd.Image.return_value.write.assert_not_called()
