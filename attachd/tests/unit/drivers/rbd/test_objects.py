# SPDX-License-Identifier: Apache-2.0
"""Objects of images, on a fake pool."""

import unittest
from unittest import mock

from attachd import exception
from attachd.ceph import bindings, object_names
from attachd.drivers import base
from attachd.drivers.rbd import objects
from attachd.tests.unit.drivers.rbd import fake_modules


class ObjectsTest(unittest.TestCase):
    """An image with the data of two objects."""

    def setUp(self):
        super().setUp()
        self.lib = fake_modules.modules()
        self.enterContext(mock.patch.object(bindings, "load", return_value=self.lib))
        self.listed = self.lib.rbd.RBD.return_value.list2
        self.listed.return_value = [{"name": "a", "id": "10ab"}]
        self.pool = fake_modules.Pool(self.lib)
        self.pool.add_header("10ab")
        names = ("rbd_data.10ab.0000000000000000", "rbd_data.10ab.00000000000000ff")
        self.pool.objects |= dict.fromkeys(names, b"data")
        self.pool.objects |= {"rbd_id.a": object_names.encode("10ab"), "rbd_directory": b""}
        self.pool.objects["rbd_data.10ab7.0000000000000000"] = b"of another image"

    def left(self):
        return sorted(self.pool.objects)

    def test_data_is_removed_by_numbers_or_by_list(self):
        objects.remove_data(self.pool, "10ab", 1)
        self.assertIn("rbd_data.10ab.00000000000000ff", self.left())
        objects.remove_data(self.pool, "10ab", None)
        data = [name for name in self.left() if name.startswith("rbd_data")]
        self.assertEqual(["rbd_data.10ab7.0000000000000000"], data)

    def test_object_that_cannot_be_removed_is_an_error(self):
        request = mock.Mock(**{"get_return_value.return_value": -5})
        with (
            mock.patch.object(self.pool, "aio_remove", return_value=request),
            self.assertRaises(self.lib.rados.OSError) as caught,
        ):
            objects.remove_data(self.pool, "10ab", 1)
        self.assertEqual(5, caught.exception.errno)

    def test_taken_over_removal_removes_nothing(self):
        before = self.left()
        refuse = mock.Mock(side_effect=exception.BackendError("Another process has taken over."))
        with base.ownership(refuse):
            for remove in (
                lambda: objects.remove_data(self.pool, "10ab", 256),
                lambda: objects.remove_names(self.pool, "a"),
                lambda: objects.rename(self.pool, "a", "b"),
            ):
                self.assertRaises(exception.BackendError, remove)
        self.assertEqual(before, self.left())

    def test_names_are_removed_and_data_stays(self):
        objects.remove_names(self.pool, "a")
        self.assertEqual(4, len(self.left()))
        self.assertEqual([("rbd_directory", "rbd", "dir_remove_image")], self.pool.calls)
        self.listed.return_value = []
        objects.remove_names(self.pool, "a")
        self.assertFalse(objects.exists(self.pool, "a"))

    def test_rename_is_completed_after_each_step(self):
        objects.rename(self.pool, "a", "b")
        self.assertEqual([("rbd_directory", "rbd", "dir_rename_image")], self.pool.calls)
        self.assertEqual("10ab", objects.read_id(self.pool, "b"))
        self.assertFalse(objects.exists(self.pool, "a"))
        # The directory was changed, and the old name was not removed.
        self.listed.return_value = [{"name": "b", "id": "10ab"}]
        self.pool.objects["rbd_id.a"] = object_names.encode("10ab")
        objects.rename(self.pool, "a", "b")
        self.assertFalse(objects.exists(self.pool, "a"))
        self.assertTrue(objects.exists(self.pool, "b"))

    def test_id_that_begins_like_another_is_found(self):
        for other in ("10", "10ab77"):
            ids = {"a": "10ab", "volume-of-cinder": other, "first-format": ""}
            self.assertEqual("volume-of-cinder", objects.find_similar(ids, "a"))
        self.assertEqual("", objects.find_similar({"a": "10ab", "b": "10ac"}, "a"))
