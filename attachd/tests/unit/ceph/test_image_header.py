# SPDX-License-Identifier: Apache-2.0
"""Headers of images, on a fake pool."""

import unittest
from unittest import mock

from attachd.ceph import bindings, image_header
from attachd.drivers.rbd import header_check
from attachd.tests.unit.drivers.rbd import fake_modules

GIB = 2**30


class HeaderTest(unittest.TestCase):
    """An image of one GiB, of which the keys are stored."""

    def setUp(self):
        super().setUp()
        self.lib = fake_modules.modules()
        self.enterContext(mock.patch.object(bindings, "load", return_value=self.lib))
        self.pool = fake_modules.Pool(self.lib)
        self.pool.add_header("10ab")
        self.stored = image_header.describe("10ab", image_header.read(self.pool, "10ab"))

    def changes(self, *sizes):
        keys = image_header.read(self.pool, "10ab")
        return [*image_header.find_changes(self.stored, keys, sizes or [GIB])]

    def test_stored_keys_are_those_that_stay_the_same(self):
        expected = {"features": "3d" + "00" * 7, "order": "16"}
        kept = dict(self.stored["header"])
        self.assertEqual("10ab", bytes.fromhex(kept.pop("object_prefix")).decode()[-4:])
        self.assertEqual(expected, kept)

    def test_what_honest_clients_write_is_no_change(self):
        names = ("flags", "snap_seq", "access_timestamp")
        keys = dict.fromkeys(names, (1).to_bytes(8, "little"))
        self.pool.add_header("10ab", **keys, snapshot_0000000000000007=b"x")
        self.assertEqual([], self.changes())

    def test_each_other_key_is_a_change(self):
        for key in ("migration", "parent", "order", "snapshot_limit", "metadata_conf_x"):
            self.pool.add_header("10ab", **{key: b"x"})
            self.assertEqual([key], self.changes())
        self.pool.add_header("10ab")
        self.assertEqual(["size"], self.changes(2 * GIB))
        self.assertEqual([], self.changes(2 * GIB, GIB))

    def test_value_with_which_no_client_opens_the_image_is_a_change(self):
        for key, value in (
            ("flags", b"x"),
            ("flags", b"\4".ljust(8, b"\0")),
            ("snap_seq", b""),
            ("access_timestamp", b"x"),
        ):
            self.pool.add_header("10ab", **{key: value})
            self.assertEqual([key], self.changes())

    def test_missing_header_lacks_all(self):
        del self.pool.objects["rbd_header.10ab"]
        self.assertEqual(["features", "object_prefix", "order", "size"], self.changes())

    def test_key_that_rados_cuts_off_at_zero_byte_does_not_pass_for_another(self):
        names = ["features", "features", "object_prefix", "order"]
        listed = mock.Mock(return_value=([(name, b"") for name in names], 0))
        with mock.patch.object(self.pool, "get_omap_vals", listed):
            self.assertIn("too long", f"{self.changes()}")

    def test_keys_that_are_no_text_or_too_many_are_a_change(self):
        undecodable = (value.decode() for value in [b"\xff"])
        with mock.patch.object(self.pool, "get_omap_vals", return_value=(undecodable, 0)):
            self.assertIn("no text", f"{self.changes()}")
        self.pool.add_header("10ab", **{f"z{number}": b"" for number in range(2000)})
        self.assertIn(len(self.changes()), range(200, 300))

    def test_long_keys_and_values_are_a_change_and_end_the_reading(self):
        for key, value in (("a" * 200, b""), ("features", b"x" * 5000), ("z", b"x" * 5000)):
            self.pool.add_header("10ab", **{key: value, "zz": b""})
            changes = self.changes()
            self.assertIn("too long", f"{changes}")
            self.assertLess(max(map(len, changes)), 150)
            self.assertNotIn("zz", changes)

    def test_lock_that_cannot_be_read_is_a_change(self):
        error = fake_modules.Error("garbled", 5)
        with mock.patch.object(self.pool, "execute", side_effect=error):
            self.assertEqual(["lock.rbd_lock"], self.changes())

    def test_lockers_are_counted(self):
        self.assertEqual(0, image_header.count_lockers(self.pool, "10ab"))
        self.assertEqual(0, image_header.count_lockers(self.pool, "10ac"))
        self.pool.answers["get_info"] = b"\1\1\0\0\0\0\2\0\0\0..."
        self.assertEqual(2, image_header.count_lockers(self.pool, "10ab"))
        error = fake_modules.Error("not permitted", 1)
        with mock.patch.object(self.pool, "execute", side_effect=error):
            self.assertRaises(fake_modules.Error, image_header.count_lockers, self.pool, "10ab")

    def test_header_that_is_written_anew_has_what_is_stored(self):
        for damaged in ({"migration": b"x"}, {"snapshot_0000000000000007": b"x"}):
            self.pool.add_header("10ab", **damaged)
            header_check.write_anew(self.pool, self.stored, 2 * GIB)
            self.assertEqual([], self.changes(2 * GIB))
            keys = image_header.read(self.pool, "10ab")
            self.assertEqual(b"\3", keys["flags"][:1])
            self.assertEqual([], image_header.snapshots(keys))
        self.pool.objects.clear()
        header_check.write_anew(self.pool, self.stored, GIB)
        self.assertEqual([], self.changes())

    def test_image_with_data_elsewhere_or_other_features_is_unusable(self):
        for key in ("parent", "migration", "data_pool_id", "order", "object_prefix"):
            self.pool.add_header("10ab", **{key: b"\x63"})
            self.assertEqual(
                key, image_header.find_unusable("10ab", image_header.read(self.pool, "10ab"))
            )
        self.pool.add_header("10ab", features=(64).to_bytes(8, "little"))
        keys = image_header.read(self.pool, "10ab")
        self.assertEqual("features", image_header.find_unusable("10ab", keys))

    def test_objects_are_counted_by_size_and_order(self):
        for size, expected in ((GIB, 256), (GIB + 1, 257), (0, 0)):
            self.pool.add_header("10ab", size=size.to_bytes(8, "little"))
            keys = image_header.read(self.pool, "10ab")
            self.assertEqual(expected, image_header.count_objects(keys))
