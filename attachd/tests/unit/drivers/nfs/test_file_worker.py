# SPDX-License-Identifier: Apache-2.0
"""The operations on a share, and their errors."""

import errno
import fcntl
import os
from pathlib import Path
import sys
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import loop
from attachd.drivers.nfs import file_worker
from attachd.linux import confined
from attachd.tests.fixtures import lifetime

VOLUME_ID = "8f5a1d0a-94a4-4a57-9df9-6e2d6f4f7f11"
COPY_ID = "7f4f0a56-57a4-4d6b-9f0b-7a8b6f8f1c22"
FIRST, SECOND = "57f9a6e4-53b8-4ac9-8f12-a44ca4a5bd01", "57f9a6e4-53b8-4ac9-8f12-a44ca4a5bd02"
DISK = {"source-name": "disk.raw"}


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(os.chdir, Path.cwd())
        self.folder = lifetime.temp_dir(self)
        self.enterContext(mock.patch.object(sys, "argv", ["file_worker", f"{self.folder}"]))
        file_worker._enter_share.cache_clear()
        self.addCleanup(file_worker._enter_share.cache_clear)
        self.files = file_worker._enter_share()
        self.files.prepare()
        self.files.create(VOLUME_ID, 1)


class OperationsTest(Case):
    def test_clone_of_attached_volume_is_refused_and_leaves_nothing(self):
        self.files.link(VOLUME_ID, FIRST)
        with self.assertRaisesRegex(exception.BackendError, "detach it first") as raised:
            self.files.clone(COPY_ID, 1, VOLUME_ID)
        self.assertTrue(raised.exception.final)
        self.assertEqual({VOLUME_ID}, set(self.files.sizes()))

    def test_repeated_clone_of_volume_attached_meanwhile_succeeds(self):
        self.files.clone(COPY_ID, 1, VOLUME_ID)
        self.files.link(VOLUME_ID, FIRST)
        self.files.clone(COPY_ID, 1, VOLUME_ID)

    def test_unlink_of_locked_volume_is_refused_until_lock_ends(self):
        self.files.link(VOLUME_ID, FIRST)
        link = self.folder / "exports" / VOLUME_ID / FIRST
        for name, others in (
            (link, ()),
            (self.folder / "volumes" / VOLUME_ID, ()),
            # A host has made them.
            (link, ("another", "b" * 200, "new\nline")),
        ):
            for other in others:
                os.link(link, link.with_name(other))
            with self.locked(name):
                with self.assertRaisesRegex(exception.BackendError, "still has vol") as raised:
                    self.files.unlink(VOLUME_ID, FIRST, [])
                self.assertFalse(raised.exception.final)
                self.assertIn([VOLUME_ID, FIRST], [[*pair] for pair in self.files.links("")])
        self.files.unlink(VOLUME_ID, FIRST, [])
        self.assertEqual([(VOLUME_ID, "another")], self.files.links(""))

    def test_unlink_of_one_of_two_attachments_ignores_locks(self):
        for name in (FIRST, SECOND):
            self.files.link(VOLUME_ID, name)
        with self.locked(f"exports/{VOLUME_ID}/{SECOND}"):
            self.files.unlink(VOLUME_ID, FIRST, [SECOND])
        self.assertEqual([(VOLUME_ID, SECOND)], self.files.links(VOLUME_ID))

    def test_delete_of_exported_volume_names_few_attachments(self):
        self.files.link(VOLUME_ID, FIRST)
        folder = self.folder / "exports" / VOLUME_ID
        for number in range(100):
            (folder / f"b{number:03}").touch()
        with self.assertRaisesRegex(exception.BackendError, f"{FIRST}.* and 93 more"):
            self.files.delete(VOLUME_ID)
        for path in folder.iterdir():
            path.unlink()
        (folder / "new\nline").touch()
        with self.assertRaisesRegex(exception.BackendError, "1 files of no attachment"):
            self.files.delete(VOLUME_ID)

    def test_unlink_on_server_without_locks_succeeds(self):
        self.files.link(VOLUME_ID, FIRST)
        with mock.patch.object(fcntl, "fcntl", side_effect=OSError(errno.ENOLCK, "no locks")):
            self.files.unlink(VOLUME_ID, FIRST, [])
        self.assertEqual([], self.files.links(""))

    def test_file_becomes_volume_with_its_data_and_file_again(self):
        disk = self.folder / "volumes" / "manageable" / "disk.raw"
        disk.write_bytes(b"data")
        found = self.files.get_manageable("volume", DISK)
        self.assertEqual(
            (DISK, 4, ""), (found["reference"], found["size_bytes"], found["refusal"])
        )
        self.files.manage("volume", COPY_ID, 1, DISK)
        self.assertEqual(2**30, self.files.sizes()[COPY_ID])
        self.files.unmanage("volume", COPY_ID)
        names = {item["reference"]["source-name"] for item in self.files.list_manageable("volume")}
        self.assertEqual({f"volume-{VOLUME_ID}", f"volume-{COPY_ID}"}, names)
        self.assertEqual(b"data", disk.with_name(f"volume-{COPY_ID}").read_bytes()[:4])

    def test_file_with_lock_is_not_managed_until_lock_ends(self):
        disk = self.folder / "volumes" / "manageable" / "disk.raw"
        disk.write_bytes(b"data")
        with self.locked("volumes/manageable/disk.raw"):
            with self.assertRaisesRegex(exception.BackendError, "a lock on it") as raised:
                self.files.manage("volume", COPY_ID, 1, DISK)
            self.assertTrue(raised.exception.final)
            (found,) = [
                item for item in self.files.list_manageable("volume") if not item["volume_id"]
            ]
            self.assertIn("a lock on it", found["refusal"])
        self.files.manage("volume", COPY_ID, 1, DISK)

    def test_file_below_loop_device_of_this_machine_is_not_managed(self):
        disk = self.folder / "volumes" / "manageable" / "disk.raw"
        disk.write_bytes(b"data")
        devices = {f"{disk.resolve()}": [loop.LoopDevice("/dev/loop77", "rw", closing=False)]}
        with (
            mock.patch.object(loop, "over", lambda path: devices.get(f"{path}", [])),
            self.assertRaisesRegex(exception.BackendError, "loop77 is over it"),
        ):
            self.files.manage("volume", COPY_ID, 1, DISK)

    def test_unmanage_of_exported_volume_is_refused(self):
        self.files.link(VOLUME_ID, FIRST)
        with self.assertRaisesRegex(exception.BackendError, "still exported") as raised:
            self.files.unmanage("volume", VOLUME_ID)
        self.assertTrue(raised.exception.final)

    def locked(self, name):
        """Lock one byte for reading, as QEMU does with images."""
        path = self.folder / name

        class Locked:
            def __enter__(self):
                self.descriptor = os.open(path, os.O_RDONLY)
                request = file_worker._FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 100, 1, 0)
                fcntl.fcntl(self.descriptor, fcntl.F_OFD_SETLK, request)

            def __exit__(self, *error):
                os.close(self.descriptor)

        return Locked()


class ErrorsTest(Case):
    def call(self, name, *arguments):
        return file_worker._call(name, arguments)

    def test_result_is_returned(self):
        self.assertEqual({"result": {VOLUME_ID: 2**30}}, self.call("sizes"))

    def test_error_of_share_that_is_away_shows_it(self):
        for number in (errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.EHOSTUNREACH):
            error = OSError(number, os.strerror(number))
            for target in ("scandir", "statvfs"):
                with mock.patch.object(os, target, side_effect=error):
                    self.assertEqual(number, self.call("stats")["unreachable"])

    def test_error_of_share_that_is_away_during_create_shows_it(self):
        stale = OSError(errno.ESTALE, "stale")
        with (
            mock.patch.object(os, "open", side_effect=stale),
            mock.patch.object(os, "stat", side_effect=stale),  # of the check for what is left
        ):
            answer = self.call("create", COPY_ID, 1)
        self.assertEqual((errno.ESTALE, False), (answer["unreachable"], answer["final"]))

    def test_error_of_full_share_is_not_that_of_one_away(self):
        full = OSError(errno.ENOSPC, "full")
        with mock.patch.object(confined.ConfinedDirectory, "open", side_effect=full):
            answer = self.call("create", COPY_ID, 1)
        self.assertEqual((0, True), (answer["unreachable"], answer["final"]))
        self.assertIn("full", answer["error"])

    def test_error_of_volume_that_is_missing_is_final(self):
        answer = self.call("link", COPY_ID, FIRST)
        self.assertEqual((0, True), (answer["unreachable"], answer["final"]))
