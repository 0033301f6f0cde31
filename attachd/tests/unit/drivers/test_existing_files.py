# SPDX-License-Identifier: Apache-2.0
"""Existing files: which are refused, and crashes between the steps."""

import os
import stat
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import base, existing_files, loop, sparse
from attachd.tests.fixtures import lifetime, requirements

VOLUME = base.VolumeRef("0d6f6a5a-6f8b-4b8e-9d8e-0a3c1f7f5c11", 1)
OTHER = base.VolumeRef("0d6f6a5a-6f8b-4b8e-9d8e-0a3c1f7f5c12", 1)
NAME = f"volume-{VOLUME.id}"
DISK = {"source-name": "disk.raw"}
DATA = b"data" * 1024


class ExistingFilesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.volumes = sparse.SparseFiles(lifetime.temp_dir(self) / "volumes")
        self.volumes.prepare()
        self.files = existing_files.ExistingFiles(self.volumes, lambda _volume: None)
        self.files.prepare()
        self.disk = self.files.folder / "disk.raw"
        self.disk.write_bytes(DATA)

    def refusal(self, reference=DISK):
        return self.files.get(reference).refusal

    def assert_not_managed(self, says):
        self.assertRegex(self.refusal(), says)
        with self.assertRaisesRegex(exception.BackendError, says) as caught:
            self.files.manage(VOLUME, DISK)
        self.assertTrue(caught.exception.final)
        self.assertEqual({}, self.volumes.sizes())

    def test_folder_is_private(self):
        self.assertEqual(0o700, stat.S_IMODE(self.files.folder.stat().st_mode))

    def test_file_becomes_volume_of_whole_gib_with_its_data(self):
        inode = self.disk.stat().st_ino
        self.files.manage(VOLUME, DISK)
        path = self.volumes.path(VOLUME.id)
        status = path.stat()
        self.assertEqual((inode, sparse.GIB), (status.st_ino, status.st_size))
        with path.open("rb") as file:
            self.assertEqual(DATA + bytes(4096), file.read(len(DATA) + 4096))
        self.assertFalse(self.disk.exists())

    def test_file_of_whole_gib_is_unchanged_after_manage_and_unmanage(self):
        os.truncate(self.disk, sparse.GIB)
        before = self.disk.stat()
        self.files.manage(VOLUME, DISK)
        self.files.unmanage(VOLUME)
        after = (self.files.folder / NAME).stat()
        for name in ("st_ino", "st_size", "st_mode", "st_blocks", "st_mtime_ns"):
            self.assertEqual(getattr(before, name), getattr(after, name), name)

    def test_list_returns_volumes_and_files(self):
        self.volumes.create(VOLUME)
        for name in (b".hidden", b"two\nlines", b"\xff"):
            (self.files.folder / os.fsdecode(name)).write_bytes(DATA)
        (self.files.folder / "folder").mkdir()
        (self.files.folder / "link").symlink_to("/etc/hostname")
        found = {item.reference["source-name"]: item for item in self.files.list()}
        self.assertEqual({NAME, "disk.raw"}, found.keys())
        self.assertEqual((VOLUME.id, sparse.GIB), _known(found[NAME]))
        self.assertEqual("already managed", found[NAME].refusal)
        self.assertEqual(("", len(DATA)), _known(found["disk.raw"]))
        self.assertEqual("", found["disk.raw"].refusal)

    def test_reference_out_of_folder_is_refused(self):
        for name in ("/etc/hostname", "../x", ".hidden", "", "a/b", "a\0b", None, "missing"):
            with self.subTest(name), self.assertRaisesRegex(exception.InvalidInput, "ref"):
                self.files.get({"source-name": name})
        with self.assertRaisesRegex(exception.InvalidInput, "source-name"):
            self.files.get({"source-id": "1"})

    def test_symbolic_link_is_refused(self):
        self.disk.unlink()
        self.disk.symlink_to("/etc/hostname")
        self.assert_not_managed("no regular file")

    def test_empty_file_is_refused(self):
        self.disk.write_bytes(b"")
        self.assert_not_managed("empty")

    def test_file_with_another_name_is_refused(self):
        other = self.volumes.folder.parent / "other"
        other.hardlink_to(self.disk)
        self.assert_not_managed("2 names")
        other.unlink()
        self.assertEqual("", self.refusal())

    def test_open_file_is_refused(self):
        for mode in ("rb", "r+b"):
            with self.disk.open(mode):
                self.assert_not_managed("has it open")
        self.assertEqual("", self.refusal())

    def test_file_below_loop_device_is_refused(self):
        requirements.require_root(self)
        requirements.require_device(self, "/dev/loop-control")
        with self.disk.open("rb") as file:
            device = loop.attach(file.fileno(), self.disk, "ro")
        try:
            self.assert_not_managed(f"{device.path} is over it")
        finally:
            loop.detach(self.disk)

    def test_file_that_leases_cannot_check_is_refused(self):
        with mock.patch("fcntl.fcntl", side_effect=OSError(22, "Invalid argument")):
            self.assert_not_managed("cannot be detected")

    def test_file_without_rights_is_refused(self):
        denied = PermissionError(13, "Permission denied")
        with mock.patch.object(self.volumes.tree, "open", side_effect=denied):
            self.assert_not_managed("may not read and write")

    def test_file_that_has_grown_is_refused(self):
        os.truncate(self.disk, sparse.GIB + 1)
        with self.assertRaisesRegex(exception.BackendError, "has grown"):
            self.files.manage(VOLUME, DISK)
        self.assertEqual(sparse.GIB + 1, self.disk.stat().st_size)

    def test_manage_interrupted_before_link_leaves_file(self):
        with (
            mock.patch.object(os, "link", side_effect=OSError(5, "I/O error")),
            self.assertRaisesRegex(exception.BackendError, "I/O") as caught,
        ):
            self.files.manage(VOLUME, DISK)
        self.assertTrue(caught.exception.final)
        self.assertEqual("", self.refusal())
        self.files.manage(VOLUME, DISK)
        self.assertEqual({VOLUME.id: sparse.GIB}, self.volumes.sizes())

    def test_manage_with_unknown_result_is_not_final_and_is_repeated(self):
        with (
            mock.patch.object(self.volumes.tree, "sync", side_effect=OSError(5, "I/O error")),
            self.assertRaisesRegex(exception.BackendError, "I/O") as caught,
        ):
            self.files.manage(VOLUME, DISK)
        self.assertFalse(caught.exception.final)
        self.files.manage(VOLUME, DISK)
        self.assertEqual({VOLUME.id: sparse.GIB}, self.volumes.sizes())

    def test_manage_interrupted_before_unlink_is_repeated(self):
        unlink = self.volumes.tree.unlink

        def fail(path):
            if path == self.disk:
                raise OSError(5, "I/O error")
            unlink(path)

        with (
            mock.patch.object(self.volumes.tree, "unlink", fail),
            self.assertRaisesRegex(exception.BackendError, "I/O") as caught,
        ):
            self.files.manage(VOLUME, DISK)
        self.assertFalse(caught.exception.final)
        self.files.manage(VOLUME, DISK)
        self.assertFalse(self.disk.exists())
        self.assertEqual(1, self.volumes.path(VOLUME.id).stat().st_nlink)

    def test_file_swapped_while_it_is_managed_does_not_become_the_volume(self):
        other, grow = self.disk.with_name("other"), sparse.grow
        other.write_bytes(DATA)

        def swap_and_grow(file, size):
            self.disk.rename(self.disk.with_name("aside"))
            other.replace(self.disk)
            grow(file, size)

        with mock.patch.object(sparse, "grow", swap_and_grow):
            self.files.manage(VOLUME, DISK)
        self.assertEqual(sparse.GIB, self.volumes.path(VOLUME.id).stat().st_size)
        self.assertEqual(len(DATA), self.disk.stat().st_size)

    def assert_not_managed_if(self, link):
        """Manage the file, and have its first new name be given by a function; it is refused."""
        with (
            mock.patch.object(self.volumes.tree, "link", link),
            self.assertRaisesRegex(exception.BackendError, "another request") as caught,
        ):
            self.files.manage(VOLUME, DISK)
        self.assertTrue(caught.exception.final)
        self.assertFalse(self.volumes.part(VOLUME.id).exists())
        self.assertFalse(self.volumes.path(VOLUME.id).exists())

    def test_file_that_becomes_another_volume_meanwhile_is_refused(self):
        link = self.volumes.tree.link
        # As it was before the first call opened the file.
        unused = mock.patch.object(self.files, "_describe_use", return_value="")

        def link_late(*arguments):
            with mock.patch.object(self.volumes.tree, "link", link), unused:
                self.files.manage(OTHER, DISK)
            link(*arguments)

        self.assert_not_managed_if(link_late)
        self.assertEqual({OTHER.id: sparse.GIB}, self.volumes.sizes())
        self.assertEqual(1, self.volumes.path(OTHER.id).stat().st_nlink)

    def test_file_that_another_call_begins_to_manage_is_refused_until_that_has_ended(self):
        link, other = self.volumes.tree.link, self.volumes.part(OTHER.id)

        def link_both(descriptor, path):
            link(descriptor, other)
            link(descriptor, path)

        self.assert_not_managed_if(link_both)
        self.assert_not_managed("2 names")
        self.volumes.delete(OTHER.id)
        self.files.manage(VOLUME, DISK)
        self.assertEqual(1, self.volumes.path(VOLUME.id).stat().st_nlink)

    def test_manage_that_was_killed_at_any_step_is_repeated_or_undone(self):
        for repeated in (True, False):
            for step in range(20):
                self.disk.write_bytes(DATA)
                if not self.is_killed(step):
                    break
                is_managed = self.volumes.path(VOLUME.id).exists()
                if repeated:
                    self.files.manage(VOLUME, DISK)
                    self.assertEqual(1, self.volumes.path(VOLUME.id).stat().st_nlink)
                self.volumes.delete(VOLUME.id)
                self.assertEqual([self.files.folder], [*self.volumes.folder.iterdir()])
                self.assertTrue(repeated or is_managed or not self.refusal())
            self.assertGreater(step, 4)
            self.volumes.delete(VOLUME.id)

    def is_killed(self, step):
        """Manage the file and be killed before a change; return whether there is such a change."""
        remaining = iter([None] * step)

        def check():
            if next(remaining, SystemExit) is SystemExit:
                raise SystemExit

        with base.ownership(check):
            try:
                self.files.manage(VOLUME, DISK)
            except SystemExit:
                return True
        return False

    def test_unmanage_never_replaces_a_file(self):
        self.volumes.create(VOLUME)
        other = self.files.folder / NAME
        other.write_bytes(DATA)
        with self.assertRaisesRegex(exception.BackendError, "another file"):
            self.files.unmanage(VOLUME)
        self.assertEqual(DATA, other.read_bytes())
        self.assertEqual({VOLUME.id: sparse.GIB}, self.volumes.sizes())

    def test_taken_over_process_moves_nothing(self):
        def taken_over():
            raise exception.BackendError("Another process works on it.")

        with base.ownership(taken_over), self.assertRaises(exception.BackendError):
            self.files.manage(VOLUME, DISK)
        self.assertEqual((len(DATA), {}), (self.disk.stat().st_size, self.volumes.sizes()))
        self.volumes.create(VOLUME)
        with base.ownership(taken_over), self.assertRaises(exception.BackendError):
            self.files.unmanage(VOLUME)
        self.assertEqual({VOLUME.id: sparse.GIB}, self.volumes.sizes())


def _known(item):
    return item.volume_id, item.size_bytes
