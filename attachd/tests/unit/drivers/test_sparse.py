# SPDX-License-Identifier: Apache-2.0
"""Sparse files of volumes: creation, privacy, growth and copies."""

import os
from pathlib import Path
import stat
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import base, sparse
from attachd.tests.fixtures import lifetime

COPY = base.VolumeRef("7f4f0a56-57a4-4d6b-9f0b-7a8b6f8f1c22", 2)
VOLUME = base.VolumeRef("0d6f6a5a-6f8b-4b8e-9d8e-0a3c1f7f5c11", 1)


class SparseFilesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        folder = lifetime.temp_dir(self)
        self.files = sparse.SparseFiles(folder / "deep" / "volumes")
        self.files.prepare()

    def test_volume_files_are_private(self):
        self.addCleanup(os.umask, os.umask(0))
        self.files.create(VOLUME)
        modes = [
            stat.S_IMODE(path.stat().st_mode)
            for path in (self.files.folder, self.files.path(VOLUME.id))
        ]
        self.assertEqual([0o700, 0o600], modes)

    def test_prepare_makes_folder_private(self):
        self.files.folder.chmod(0o755)
        self.files.prepare()
        self.assertEqual(0o700, stat.S_IMODE(self.files.folder.stat().st_mode))

    def test_discard_is_possible_where_the_file_system_frees_blocks(self):
        (self.files.folder / ".discard").write_text("of a process that was killed")
        self.assertTrue(self.files.can_discard())
        with mock.patch.object(sparse.holes, "punch", side_effect=OSError(95, "not supported")):
            self.assertFalse(self.files.can_discard())
        self.assertEqual({}, self.files.sizes())
        self.assertFalse(sparse.SparseFiles(self.files.folder / "missing").can_discard())

    def test_create_allocates_no_blocks(self):
        self.files.create(VOLUME)
        status = self.files.path(VOLUME.id).stat()
        self.assertEqual(sparse.GIB, status.st_size)
        self.assertLess(status.st_blocks * 512, 2**20)

    def test_create_syncs_file_and_folder(self):
        with mock.patch.object(os, "fsync") as fsync:
            self.files.create(VOLUME)
        self.assertEqual(2, fsync.call_count)

    def test_create_again_keeps_data_and_larger_size(self):
        self.files.create(VOLUME)
        self.files.extend(VOLUME.id, 2)
        path = self.files.path(VOLUME.id)
        with path.open("r+b") as file:
            file.write(b"kept")
        self.files.create(VOLUME)
        self.assertEqual((2 * sparse.GIB, b"kept"), (path.stat().st_size, path.open("rb").read(4)))

    def test_clone_gets_its_name_when_complete(self):
        self.files.create(VOLUME)
        with self.files.path(VOLUME.id).open("r+b") as file:
            file.write(b"bytes")
        seen = []
        real = sparse.copying.copy

        def copy(reading, writing, *others):
            name = Path(f"/proc/self/fd/{writing}").readlink().name
            seen.append((name, self.files.path(COPY.id).exists(), os.fstat(writing).st_size))
            real(reading, writing, *others)

        part = self.files.folder / f".{COPY.id}.part"
        part.write_bytes(b"left by a copy that was interrupted")
        with mock.patch.object(sparse.copying, "copy", copy):
            self.files.clone(COPY, VOLUME.id)
        self.assertEqual([(f".{COPY.id}.part", False, 0)], seen)
        path = self.files.path(COPY.id)
        self.assertEqual(
            (2 * sparse.GIB, b"bytes"), (path.stat().st_size, path.open("rb").read(5))
        )
        self.assertEqual({COPY.id, VOLUME.id}, {item.name for item in path.parent.iterdir()})

    def clone_while(self, replace):
        """Clone, and call ``replace`` with the incomplete file and another when it is written."""
        self.files.create(VOLUME)
        part = self.files.folder / f".{COPY.id}.part"
        other, grow = part.with_name("other"), sparse.grow
        other.write_bytes(b"of another volume")

        def grow_and_replace(file, size):
            grow(file, size)
            replace(part, other)

        with mock.patch.object(sparse, "grow", grow_and_replace):
            self.files.clone(COPY, VOLUME.id)

    def test_file_swapped_for_a_copy_does_not_become_the_volume(self):
        def swap(part, other):
            part.rename(part.with_name("aside"))
            other.replace(part)

        self.clone_while(swap)
        self.assertEqual(2 * sparse.GIB, self.files.path(COPY.id).stat().st_size)

    def test_copy_that_is_replaced_does_not_become_the_volume(self):
        with self.assertRaisesRegex(exception.BackendError, "removed or replaced meanwhile"):
            self.clone_while(lambda part, other: other.replace(part))
        self.assertFalse(self.files.path(COPY.id).exists())

    def test_clone_interrupted_before_its_incomplete_name_is_removed_is_repeated(self):
        self.files.create(VOLUME)
        unlink, calls = os.unlink, []

        def fail_once(*args, **settings):
            calls.append(args)
            if len(calls) > 1:
                raise OSError(5, "I/O error")
            unlink(*args, **settings)

        with (
            mock.patch.object(os, "unlink", fail_once),
            self.assertRaisesRegex(exception.BackendError, "I/O") as caught,
        ):
            self.files.clone(COPY, VOLUME.id)
        self.assertFalse(caught.exception.final)
        self.files.clone(COPY, VOLUME.id)
        self.assertEqual(1, self.files.path(COPY.id).stat().st_nlink)
        self.assertEqual(2, len([*self.files.folder.iterdir()]))

    def test_clone_again_copies_nothing(self):
        self.files.create(VOLUME)
        self.files.clone(COPY, VOLUME.id)
        with mock.patch.object(sparse.copying, "copy", side_effect=AssertionError):
            self.files.clone(COPY, VOLUME.id)

    def test_clone_that_fails_leaves_no_file(self):
        self.files.create(VOLUME)
        full = OSError(28, "No space left on device")
        busy = exception.BackendError("It is written to.")
        for error, says in ((full, "No space"), (busy, "is written to")):
            with (
                mock.patch.object(sparse, "grow", side_effect=error),
                self.assertRaisesRegex(exception.BackendError, says) as caught,
            ):
                self.files.clone(COPY, VOLUME.id)
            self.assertTrue(caught.exception.final)
            self.assertEqual([VOLUME.id], [path.name for path in self.files.folder.iterdir()])

    def test_delete_removes_partial_copy(self):
        self.files.create(VOLUME)
        part = self.files.folder / f".{COPY.id}.part"
        part.write_bytes(b"begun" * 1000)
        self.assertEqual(1.0, self.files.stats("x").allocated_gib)
        self.files.delete(COPY.id)
        self.assertFalse(part.exists())

    def test_create_failure_without_file_is_final(self):
        error = OSError(28, "No space left on device")
        full = mock.patch.object(self.files.tree, "open", side_effect=error)
        with full, self.assertRaisesRegex(exception.BackendError, "No space left") as caught:
            self.files.create(VOLUME)
        self.assertTrue(caught.exception.final)

    def test_create_failure_with_file_is_not_final(self):
        broken = mock.patch.object(os, "fsync", side_effect=OSError(5, "Input/output error"))
        with broken, self.assertRaisesRegex(exception.BackendError, "Input/output") as caught:
            self.files.create(VOLUME)
        self.assertFalse(caught.exception.final)

    def test_create_does_not_follow_symbolic_link(self):
        victim = self.files.folder.parent / "victim"
        victim.write_bytes(b"")
        self.files.path(VOLUME.id).symlink_to(victim)
        with self.assertRaises(exception.BackendError):
            self.files.create(VOLUME)
        self.assertEqual(0, victim.stat().st_size)

    def test_create_with_too_large_size_raises(self):
        with self.assertRaises(exception.BackendError):
            self.files.create(base.VolumeRef(VOLUME.id, 2**32))
        with self.assertRaises(exception.BackendError):
            self.files.create(base.VolumeRef(VOLUME.id, 2**64))

    def test_path_with_invalid_id_raises(self):
        for bad in ("../up", "/etc/passwd", "a/b", ".", "..", "", "a\0b", "a b", "-x"):
            with self.subTest(bad), self.assertRaises(exception.BackendError) as caught:
                self.files.path(bad)
            self.assertTrue(caught.exception.final)

    def test_extend_missing_volume_raises_error_naming_it(self):
        for call in (lambda: self.files.extend(VOLUME.id, 2), lambda: self.files.existing("x")):
            with self.assertRaisesRegex(exception.BackendError, "missing") as caught:
                call()
            self.assertTrue(caught.exception.final)

    def test_uncreatable_folder_is_named(self):
        blocker = self.files.folder / "file"
        blocker.write_bytes(b"")
        with self.assertRaisesRegex(exception.BackendError, "file/inner"):
            sparse.make_folder(blocker / "inner", 0o700)

    def test_stats_sum_provisioned_sizes(self):
        self.files.create(VOLUME)
        self.files.create(base.VolumeRef("another", 3))
        report = self.files.stats("file")
        self.assertEqual(("file", 4.0), (report.protocol, report.allocated_gib))
        self.assertGreater(report.free_gib, 0)

    def test_stats_without_folder_raises(self):
        self.files.folder.rmdir()
        with self.assertRaises(exception.BackendError):
            self.files.stats("file")


class FileDataTest(unittest.TestCase):
    def test_errors_of_the_file_are_those_of_the_backend(self):
        path = lifetime.temp_dir(self) / "volume"
        path.write_bytes(b"data")
        with path.open("rb") as file:
            data = sparse.FileData(file.fileno())
            self.assertEqual(b"at", data.read(1, 2))
            for work in (
                lambda: data.read(2, 3),  # behind the end
                lambda: data.write(2, b"abc"),
                lambda: data.write(0, b"a"),  # open for reading alone
            ):
                self.assertRaises(exception.BackendError, work)
