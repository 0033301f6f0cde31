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
STALE = fake_modules.Error("stale", errno.ESTALE)
"""What a header answers that names a later snapshot."""


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

    def number_snapshots(self, *numbers):
        """Have the pool give out these ids."""
        self.pool.create_self_managed_snap.side_effect = numbers

    def answer(self, *errors):
        """Have headers raise errors for the snapshots that they are to name; None: name it."""
        remaining, execute = [*errors], self.pool.execute

        def answer(name, kind, method, arguments):
            if method == "snapshot_add" and (error := remaining.pop(0)):
                raise error
            return execute(name, kind, method, arguments)

        self.enterContext(mock.patch.object(self.pool, "execute", answer))
        return remaining

    def latest(self):
        return int.from_bytes(self.pool.objects["rbd_header.10ab"][image_header.LATEST], "little")

    def test_snapshot_after_which_another_one_was_named_is_taken_again(self):
        self.number_snapshots(4, 6)
        self.pool.add_header("10ab", snap_seq=(5).to_bytes(8, "little"))
        self.answer(STALE, None)
        record = copies.begin(self.pool, COPY, self.source)
        self.assertEqual(6, record.snapshot)
        self.assertEqual(record, copies.read_record(self.pool, COPY))
        self.pool.remove_self_managed_snap.assert_called_once_with(4)
        self.assertEqual(5, self.latest())

    def test_later_snapshot_that_a_host_has_written_does_not_stop_a_copy(self):
        self.number_snapshots(4, 6)
        keys = {f"snapshot_{number:016x}": b"" for number in (3, 2**40)}
        self.pool.add_header("10ab", snap_seq=b"\xff" * 8, **keys)
        self.answer(STALE, None)
        self.assertEqual(6, copies.begin(self.pool, COPY, self.source).snapshot)
        self.assertEqual(3, self.latest())

    def test_header_that_changes_while_it_is_corrected_is_read_again(self):
        self.number_snapshots(4, 6, 7)
        self.pool.add_header("10ab", snap_seq=b"\xff" * 8)
        self.answer(STALE, STALE, None)
        for code in (errno.ERANGE, errno.EOVERFLOW):
            self.pool.writes_fail_with.append(fake_modules.Error("changed", code))
        with mock.patch.object(copies, "_ATTEMPTS", 2), self.assertRaises(exception.BackendError):
            copies.begin(self.pool, COPY, self.source)
        self.assertEqual(1, len(self.pool.writes_fail_with))
        self.assertEqual(2**64 - 1, self.latest())
        self.assertEqual(7, copies.begin(self.pool, COPY, self.source).snapshot)

    def test_header_that_always_names_later_snapshots_is_an_error(self):
        self.number_snapshots(*range(1, 1000))
        self.answer(*[STALE] * 1000)
        with self.assertRaisesRegex(exception.BackendError, "attachd-source.*Try again") as caught:
            copies.begin(self.pool, COPY, self.source)
        self.assertFalse(caught.exception.final)

    def test_snapshot_whose_naming_was_killed_is_taken_again(self):
        self.number_snapshots(4, 6)
        self.answer(OSError("killed"), None, None)
        with self.assertRaises(OSError):
            copies.begin(self.pool, COPY, self.source)
        self.assertEqual(6, copies.begin(self.pool, COPY, self.source).snapshot)
        self.pool.remove_self_managed_snap.assert_called_once_with(4)

    def test_clients_are_notified_again_of_a_snapshot_whose_naming_was_killed_after_it(self):
        record = copies.begin(self.pool, COPY, self.source)
        self.pool.add_header("10ab", snapshot_0000000000000004=b"")
        self.pool.notify.reset_mock()
        self.assertEqual(record, copies.begin(self.pool, COPY, self.source))
        self.pool.notify.assert_called_once_with("rbd_header.10ab", "", mock.ANY)

    def test_snapshots_of_a_header_that_is_written_anew_are_all_named(self):
        found = [(f"snap.{number}", copies.Record("x", "10ab", number)) for number in (3, 4, 5)]
        keys = {f"snapshot_{number:016x}": b"" for number in (3, 9)}
        self.pool.add_header("10ab", snap_seq=(9).to_bytes(8, "little"), **keys)
        remaining = self.answer(STALE, None, None)
        copies.add_again(self.pool, "10ab", found)
        self.assertEqual([], remaining)
        self.assertEqual(9, self.latest())

    def test_snapshot_that_another_process_has_named_already_is_taken(self):
        exists = fake_modules.Error("exists", errno.EEXIST)
        remaining = self.answer(exists, exists)
        with self.assertRaises(fake_modules.Error):
            copies.begin(self.pool, COPY, self.source)
        self.number_snapshots(6)
        self.pool.add_header("10ab", snapshot_0000000000000006=b"")
        self.assertEqual(6, copies.begin(self.pool, COPY, self.source).snapshot)
        self.assertEqual([], remaining)

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
        self.pool.objects |= {"rbd_directory": b"", copies.RECORDS: {}}
        before = sorted(self.pool.objects)
        record = copies.begin(self.pool, COPY, self.source)
        copies.branch(self.pool, COPY, self.source, record)
        copies.remove(self.pool, COPY)
        self.assertEqual(before, sorted(self.pool.objects))
        self.assertEqual({}, self.pool.objects[copies.RECORDS])
        self.pool.remove_self_managed_snap.assert_called_once_with(4)
        copies.remove(self.pool, COPY)
        self.pool.remove_self_managed_snap.assert_called_once_with(4)
