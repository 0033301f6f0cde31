# SPDX-License-Identifier: Apache-2.0
"""Copies, on a fake pool; test_rbd.py has real ones."""

import errno
import unittest
from unittest import mock

from attachd import exception
from attachd.ceph import bindings, image_header, object_names
from attachd.drivers.rbd import copies
from attachd.tests.unit.drivers.rbd import fake_modules

GIB = 2**30
COPY = "attachd-copy.x"


class CopiesTest(unittest.TestCase):
    """A source, and a copy in progress."""

    def setUp(self):
        super().setUp()
        self.lib = fake_modules.modules()
        self.enterContext(mock.patch.object(bindings, "load", return_value=self.lib))
        self.rbd = self.lib.rbd.RBD.return_value
        self.rbd.list2.return_value = []
        self.pool = fake_modules.Pool(self.lib)
        self.pool.add_header("10ab")
        self.pool.create_self_managed_snap = mock.Mock(return_value=4)
        self.pool.remove_self_managed_snap = mock.Mock()
        self.pool.notify = mock.Mock()
        stored = image_header.describe("10ab", image_header.read(self.pool, "10ab"))
        self.source = copies.Source("attachd-source", stored, GIB)
        self.rbd.create.side_effect = self.create
        self.rbd.clone.side_effect = self.create_clone

    def create(self, _pool, name, *_arguments, **_options):
        self.pool.objects[f"rbd_id.{name}"] = object_names.encode("10ac")
        self.pool.add_header("10ac")

    def create_clone(self, _pool, view, *_arguments, **_options):
        self.pool.objects[f"rbd_id.{COPY}"] = object_names.encode("10ad")

    def test_copy_is_a_clone_of_a_view_that_has_the_data_of_the_source(self):
        record = copies.begin(self.pool, COPY, self.source)
        copies.branch(self.pool, COPY, self.source, record)
        view = f"{COPY}.source"
        self.assertEqual(view, self.rbd.create.call_args.args[1])
        prefix = image_header.read(self.pool, "10ac")["object_prefix"]
        self.assertEqual(object_names.encode("rbd_data.10ab"), prefix)
        added = [(name, method) for name, _, method in self.pool.calls if "snapshot" in method]
        self.assertEqual(
            [("rbd_header.10ab", "snapshot_add"), ("rbd_header.10ac", "snapshot_add")], added
        )
        self.pool.notify.assert_called_once_with("rbd_header.10ab", "", mock.ANY)
        self.assertEqual(61, self.rbd.clone.call_args.kwargs["features"])
        kept = copies.read_record(self.pool, COPY)
        self.assertEqual(("10ab", 4, True), (kept.source_id, kept.snapshot, kept.cloned))

    def test_clone_that_was_interrupted_is_made_again_and_a_complete_one_is_kept(self):
        record = copies.begin(self.pool, COPY, self.source)
        self.create_clone(self.pool, "")
        copies.branch(self.pool, COPY, self.source, record)
        self.rbd.clone.assert_called_once()
        again = copies.begin(self.pool, COPY, self.source)
        copies.branch(self.pool, COPY, self.source, again)
        self.rbd.clone.assert_called_once()
        self.pool.create_self_managed_snap.assert_called_once_with()

    def test_later_snapshot_in_header_of_source_does_not_stop_a_copy(self):
        stale = fake_modules.Error("stale", errno.ESTALE)
        self.pool.add_header("10ab", snap_seq=b"\xff" * 8)
        with mock.patch.object(
            self.pool, "execute", side_effect=[(0, bytes(10)), stale, (0, b"")]
        ):
            copies.begin(self.pool, COPY, self.source)
        self.assertEqual(bytes(8), self.pool.objects["rbd_header.10ab"]["snap_seq"])

    def test_client_that_hangs_does_not_stop_a_copy(self):
        self.pool.notify.side_effect = self.lib.rados.TimedOut("timed out", 110)
        self.assertEqual(4, copies.begin(self.pool, COPY, self.source).snapshot)

    def test_copy_whose_snapshot_a_host_has_removed_is_refused(self):
        record = copies.begin(self.pool, COPY, self.source)
        with self.assertRaisesRegex(exception.BackendError, "snapshot 4") as caught:
            copies.check_snapshot(self.pool, "x", record)
        self.assertFalse(caught.exception.final)
        self.pool.add_header("10ab", snapshot_0000000000000004=b"")
        copies.check_snapshot(self.pool, "x", record)

    def test_copy_that_is_given_up_leaves_nothing_of_its_own(self):
        before = sorted(self.pool.objects)
        self.pool.objects["rbd_directory"] = b""
        record = copies.begin(self.pool, COPY, self.source)
        copies.branch(self.pool, COPY, self.source, record)
        copies.remove(self.pool, COPY)
        self.assertEqual([*before, "rbd_directory"], sorted([*self.pool.objects])[::-1])
        self.pool.remove_self_managed_snap.assert_called_once_with(4)
        copies.remove(self.pool, COPY)
        self.pool.remove_self_managed_snap.assert_called_once_with(4)
