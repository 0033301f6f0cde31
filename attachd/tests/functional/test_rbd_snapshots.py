# SPDX-License-Identifier: Apache-2.0
"""Snapshots of images: what hosts do to them, and managers that are killed."""

from concurrent import futures
import dataclasses
import functools
import struct
import threading
from unittest import mock

from attachd import exception
from attachd.ceph import bindings, image_header, object_names
from attachd.drivers import base
from attachd.drivers.rbd import copies
from attachd.tests import concurrency
from attachd.tests.fixtures import initiators
from attachd.tests.functional.rbd_case import GIB, RbdCase, new_id
from attachd.tests.functional.test_rbd_headers import HostileHost
from attachd.tests.selection import full_only

BEFORE, AFTER = b"\1" * 4096, b"\2" * 4096


class SnapshotCase(HostileHost, RbdCase):
    def setUp(self):
        super().setUp()
        self.host = self.useFixture(initiators.RbdHost(self, "a"))
        self.source = self.volume()

    def write(self, data):
        export, info = self.granted(self.source)
        self.host.write(info, 0, data)
        self.driver.revoke(self.source, export, [])

    def read(self, volume):
        export, info = self.granted(volume)
        data = self.host.read(info, 0, 4096)
        self.driver.revoke(volume, export, [])
        return data

    def snapshot(self):
        """Take a snapshot, removed with the test."""
        asked = base.SnapshotRef(new_id(), self.source, 1)
        taken = base.SnapshotRef(asked.id, self.source, 1, self.driver.create_snapshot(asked))
        self.addCleanup(self.driver.delete_snapshot, taken)
        return taken

    def header(self):
        with self.cluster.pool() as pool:
            return image_header.read(pool, self.source.provider["image"]["id"])

    def change_header(self):
        """Write an option of clients into the header, so that it is written anew."""
        with self.cluster.pool() as pool:
            header = object_names.header_name(self.source.provider["image"]["id"])
            arguments = object_names.encode("conf_x") + object_names.encode("1")
            pool.execute(header, "rbd", "metadata_set", struct.pack("<I", 1) + arguments)

    def execute(self, info, method, arguments):
        """Call a method of the header's object class with the key of a host."""
        header = object_names.header_name(self.source.provider["image"]["id"])
        self.connect(info).execute(header, "rbd", method, arguments)


class HostileHostTest(SnapshotCase):
    """A host writes the header of its image."""

    def remove_from_header(self, taken):
        export, info = self.granted(self.source)
        number = struct.pack("<Q", taken.provider["snapshot"])
        self.execute(info, "snapshot_remove", number)
        return export

    def assert_lost(self, taken):
        volume = base.VolumeRef(new_id(), 1)
        for call in (
            lambda: self.driver.create_from_snapshot(volume, taken),
            lambda: self.driver.revert(taken),
        ):
            with self.assertRaisesRegex(exception.BackendError, "lost: a host") as caught:
                call()
            self.assertTrue(caught.exception.final)
        self.assertEqual({self.source.id: GIB}, dict(self.driver.list_volumes()))

    def test_snapshot_that_a_host_has_removed_from_the_header_is_not_used(self):
        taken = self.snapshot()
        export = self.remove_from_header(taken)
        self.driver.revoke(self.source, export, [])
        self.assert_lost(taken)

    def test_header_that_is_written_anew_does_not_hide_the_loss(self):
        taken, kept = self.snapshot(), self.snapshot()
        export = self.remove_from_header(taken)
        self.change_header()
        self.driver.revoke(self.source, export, [])
        self.write(AFTER)  # The grant writes the header anew.
        self.assertEqual(2, len(image_header.snapshots(self.header())))
        self.assert_lost(taken)
        self.driver.create_from_snapshot(volume := base.VolumeRef(new_id(), 1), kept)
        self.addCleanup(self.driver.delete, volume)

    def test_snapshots_of_a_reader_are_refused_while_it_has_access_and_removed_then(self):
        self.write(BEFORE)
        export, info = self.granted(self.source, "ro")
        arguments = object_names.encode("own") + struct.pack("<Q", 2**40)
        self.execute(info, "snapshot_add", arguments)
        asked = base.SnapshotRef(new_id(), self.source, 1)
        with self.assertRaisesRegex(exception.BackendError, "still exported") as caught:
            self.driver.create_snapshot(asked)
        self.assertTrue(caught.exception.final)
        self.driver.revoke(self.source, export, [])
        taken = self.snapshot()
        self.assertEqual([taken.provider["snapshot"]], image_header.snapshots(self.header()))
        self.write(AFTER)
        self.driver.revert(taken)
        self.assertEqual(BEFORE, self.read(self.source))


class AtOnceTest(SnapshotCase):
    """Snapshots and copies of a volume at the same time, by two managers, while it is used."""

    def test_each_is_of_one_moment_and_the_volume_is_never_without_a_valid_header(self):
        self.write(BEFORE)
        drivers, opened, ended = [self.driver, self.new_driver()], 0, threading.Event()

        def use():
            nonlocal opened
            name = f"{self.backend.options()['rbd_prefix']}{self.source.id}"
            with self.cluster.pool() as pool:
                while not ended.is_set():
                    with bindings.load().rbd.Image(pool, name, read_only=True) as image:
                        self.assertEqual(BEFORE, image.read(0, 4096))
                    opened += 1

        copies = [base.VolumeRef(new_id(), 1) for _ in range(6)]
        snapshots = [base.SnapshotRef(new_id(), self.source, 1) for _ in range(6)]
        calls = [functools.partial(drivers[0].clone, copy, self.source) for copy in copies]
        calls += [functools.partial(drivers[1].create_snapshot, item) for item in snapshots]
        with futures.ThreadPoolExecutor(1) as pool:
            using = pool.submit(use)
            try:
                answers = concurrency.run_at_once(*calls)
            finally:
                ended.set()
            using.result()
        self.assertEqual([], [answer for answer in answers if isinstance(answer, Exception)])
        self.assertGreater(opened, 0)
        numbers = [answer["snapshot"] for answer in answers[len(copies) :]]
        self.assertEqual(sorted(numbers), sorted(image_header.snapshots(self.header())))
        for copy, answer in zip(copies, answers, strict=False):
            volume = base.VolumeRef(copy.id, 1, answer)
            self.assertEqual(BEFORE, self.read(volume))
            self.driver.delete(volume)
        for number, item in zip(numbers, snapshots, strict=True):
            self.driver.delete_snapshot(dataclasses.replace(item, provider={"snapshot": number}))
        self.assertEqual([], image_header.snapshots(self.header()))


class OverlapTest(SnapshotCase):
    """Something happens to a volume while a snapshot of it has a record and no view."""

    def setUp(self):
        super().setUp()
        self.other = self.new_driver()
        self.write(BEFORE)

    def before_view(self, function):
        """Call a function before the first view is made; return what it returns, in a list."""
        make_view, results = copies.make_view, []

        def replaced(*arguments):
            if not results:
                results.append(None)  # The function may make a view, too.
                results[0] = function()
            make_view(*arguments)

        self.enterContext(mock.patch.object(copies, "make_view", replaced))
        return results

    def take(self):
        """Take a snapshot by the other driver, beside the one that is taken or managed."""
        asked = base.SnapshotRef(new_id(), self.source, 1)
        return dataclasses.replace(asked, provider=self.other.create_snapshot(asked))

    def assert_usable(self, *snapshots):
        expected = sorted(item.provider["snapshot"] for item in snapshots)
        self.assertEqual(expected, sorted(image_header.snapshots(self.header())))
        for item in snapshots:
            notes = self.driver.create_from_snapshot(base.VolumeRef(id_ := new_id(), 1), item)
            volume = base.VolumeRef(id_, 1, notes)
            self.assertEqual(BEFORE, self.read(volume))
            self.driver.delete(volume)
            self.driver.delete_snapshot(item)
        self.assertEqual([], image_header.snapshots(self.header()))

    def test_snapshot_beside_one_without_view_leaves_both_usable(self):
        results = self.before_view(self.take)
        first = self.snapshot()
        self.write(AFTER)
        self.assert_usable(first, *results)

    def test_snapshot_beside_one_without_view_is_taken_of_an_attached_volume(self):
        export, info = self.granted(self.source)
        results = self.before_view(self.take)
        first = self.snapshot()
        self.host.write(info, 0, AFTER)
        self.driver.revoke(self.source, export, [])
        self.assert_usable(first, *results)

    def test_snapshot_beside_a_clone_without_view_leaves_both_usable(self):
        results = self.before_view(self.take)
        copy = base.VolumeRef(new_id(), 1)
        copy = dataclasses.replace(copy, provider=self.driver.clone(copy, self.source))
        self.addCleanup(self.driver.delete, copy)
        self.assertEqual(BEFORE, self.read(copy))
        self.assert_usable(*results)

    def test_snapshot_beside_one_that_is_being_managed_leaves_both_usable(self):
        name = f"{self.backend.options()['rbd_prefix']}{self.source.id}"
        with self.cluster.pool() as pool, bindings.load().rbd.Image(pool, name) as image:
            image.create_snap("then")
        results = self.before_view(self.take)
        asked = base.SnapshotRef(new_id(), self.source, 1)
        notes = self.driver.manage_snapshot(asked, {"source-name": "then"})
        self.assert_usable(dataclasses.replace(asked, provider=notes), *results)

    def test_header_that_is_written_anew_has_a_snapshot_without_view(self):
        def attach():
            self.change_header()
            self.write(BEFORE)

        self.before_view(attach)
        self.assert_usable(self.snapshot())

    def test_snapshot_that_was_killed_before_its_view_is_kept_and_repeated_or_deleted(self):
        repeated, deleted = (base.SnapshotRef(new_id(), self.source, 1) for _ in range(2))
        for asked in (repeated, deleted):
            with mock.patch.object(copies, "make_view", side_effect=SystemExit):
                self.assertRaises(SystemExit, self.driver.create_snapshot, asked)
        between = self.take()
        self.write(AFTER)
        self.driver.delete_snapshot(deleted)
        notes = self.driver.create_snapshot(repeated)
        self.assert_usable(dataclasses.replace(repeated, provider=notes), between)


@full_only("storage")
class KilledTest(SnapshotCase):
    """A manager that is killed before each change; another one repeats the call, or undoes it."""

    def test_killed_snapshot_is_repeated_or_undone_and_leaves_nothing(self):
        asked = base.SnapshotRef(new_id(), self.source, 1)
        before = self.backend.orphans()
        for method in ("create_snapshot", "delete_snapshot"):
            if method == "delete_snapshot":
                self.driver.create_snapshot(asked)
            for number in self.each_death(method, asked):
                if method == "create_snapshot":
                    self.driver.create_snapshot(asked)
                    self.assertEqual({asked.id: self.source.id}, self.driver.list_snapshots())
                self.driver.delete_snapshot(asked)
                self.assertEqual({}, self.driver.list_snapshots())
                self.assertEqual(before, self.backend.orphans(), (method, number))
                self.assertEqual([], image_header.snapshots(self.header()))
                if method == "delete_snapshot":
                    self.driver.create_snapshot(asked)
        self.driver.delete_snapshot(asked)

    def test_killed_volume_of_snapshot_is_repeated_or_undone_and_leaves_nothing(self):
        self.write(BEFORE)
        taken, volume = self.snapshot(), base.VolumeRef(new_id(), 2)
        before = self.backend.orphans()
        for number in self.each_death("create_from_snapshot", volume, taken):
            if number % 2:
                notes = self.driver.create_from_snapshot(volume, taken)
                self.assertEqual(BEFORE, self.read(base.VolumeRef(volume.id, 2, notes)))
            self.driver.delete(volume)
            self.assertEqual(before, self.backend.orphans(), number)
        self.driver.delete(volume)

    def test_killed_revert_is_repeated(self):
        self.write(BEFORE)
        first, latest = self.snapshot(), self.snapshot()
        for number in self.each_death("revert", latest):
            self.driver.revert(latest)
            self.assertEqual(BEFORE, self.read(self.source), number)
            self.write(AFTER)
        self.driver.create_from_snapshot(volume := base.VolumeRef(new_id(), 1), first)
        self.addCleanup(self.driver.delete, volume)
