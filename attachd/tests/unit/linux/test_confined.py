# SPDX-License-Identifier: Apache-2.0
"""Names that another machine has replaced, also between two steps."""

import contextlib
import errno
import os
from pathlib import Path
import stat
import unittest
from unittest import mock

from attachd.linux import confined
from attachd.tests.fixtures import hostile_names, lifetime, requirements


class ConfinedDirectoryTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        folder = lifetime.temp_dir(self)
        self.root = folder / "root"
        self.root.mkdir()
        self.tree = confined.ConfinedDirectory(self.root)
        self.tree.make_folder(self.root / "inner", 0o700)
        self.file = self.root / "inner" / "file"
        self.file.write_bytes(b"own")
        self.outside = folder / "outside"
        self.outside.mkdir(mode=0o755)
        (self.outside / "file").write_bytes(b"other")

    def opened(self, path, flags=os.O_RDWR):
        descriptor = self.tree.open(path, flags)
        self.addCleanup(os.close, descriptor)
        return descriptor

    def call_all(self, folder, name="file"):
        """Call each method on a name; return the names of those that did not raise."""
        path = folder / name
        own = self.opened(self.root / "own", os.O_RDWR | os.O_CREAT)
        calls = {
            "open": lambda: os.close(self.tree.open(path, os.O_RDWR)),
            "create": lambda: os.close(self.tree.open(path, os.O_RDWR | os.O_CREAT)),
            "stat": lambda: self.tree.stat(path),
            "list": lambda: self.tree.list(folder),
            "make_folder": lambda: self.tree.make_folder(path, 0o700),
            "make_this_folder": lambda: self.tree.make_folder(folder, 0o700),
            "link": lambda: self.tree.link(own, folder / "new"),
            "rename": lambda: self.tree.rename(path, self.root / "gone"),
            "rename_to": lambda: self.tree.rename(self.root / "own", path),
            "list_sizes": lambda: self.tree.list_sizes(folder),
            "unlink": lambda: self.tree.unlink(path),
            "remove_folder": lambda: self.tree.remove_folder(path),
            "sync": lambda: self.tree.sync(folder),
        }
        succeeded = []
        for method, call in calls.items():
            with contextlib.suppress(OSError):
                call()
                succeeded.append(method)
        return succeeded

    def test_files_are_created_linked_renamed_and_removed(self):
        new, link = self.root / "new", self.root / "inner" / "link"
        descriptor = self.opened(new, os.O_RDWR | os.O_CREAT)
        self.assertEqual(0o600, stat.S_IMODE(os.fstat(descriptor).st_mode))
        for _ in range(2):
            self.tree.link(descriptor, link)
        self.assertTrue(link.samefile(new))
        with self.assertRaisesRegex(FileExistsError, "Another file"):
            self.tree.link(descriptor, self.file)
        self.tree.rename(link, self.root / "renamed")
        self.assertEqual([self.root / name for name in ("inner", "new", "renamed")],
                         self.tree.list(self.root))  # fmt: skip
        os.ftruncate(descriptor, 5)
        (self.root / "pointer").symlink_to("new")
        os.mkfifo(self.root / "fifo")
        self.assertEqual({"new": 5, "renamed": 5}, self.tree.list_sizes(self.root))
        for _ in range(2):
            self.tree.unlink(new)
        self.assertIsNone(self.tree.stat(new))
        self.tree.sync(self.root)
        self.tree.unlink(self.file)
        self.tree.remove_folder(self.root / "inner")
        with self.assertRaises(FileNotFoundError):
            self.tree.open(self.file, os.O_RDONLY)

    def test_folder_that_is_a_link_is_not_entered(self):
        (self.root / "link").symlink_to(self.outside)
        before = hostile_names.snapshot(self.outside)
        self.assertEqual([], self.call_all(self.root / "link"))
        with self.assertRaisesRegex(OSError, "symbolic link"):
            self.tree.list(self.root / "link")
        self.assertEqual(before, hostile_names.snapshot(self.outside))

    def test_other_file_systems_are_not_entered(self):
        requirements.require_root(self)
        requirements.share_mounts(self)
        (self.root / "mount").mkdir()
        hostile_names.bind(self, self.outside, self.root / "mount")
        before = hostile_names.snapshot(self.outside)
        self.assertEqual([], self.call_all(self.root / "mount"))
        with self.assertRaisesRegex(OSError, "Another file system"):
            self.tree.list(self.root / "mount")
        self.assertEqual(before, hostile_names.snapshot(self.outside))

    def test_path_out_of_the_directory_is_refused(self):
        for path in (
            self.root / ".." / "outside" / "file",
            self.root / "inner" / ".." / ".." / "x",
        ):
            with self.assertRaisesRegex(OSError, "outside"):
                self.tree.open(path, os.O_RDONLY)
        with self.assertRaises(ValueError):
            self.tree.open(self.outside / "file", os.O_RDONLY)

    def test_only_regular_files_are_opened(self):
        requirements.require_root(self)
        for kind, make in hostile_names.KINDS.items():
            with self.subTest(kind):
                path = self.root / kind
                make(path, self.outside / "file")
                for flags in (os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT):
                    with self.assertRaisesRegex(OSError, "a regular file is expected"):
                        self.tree.open(path, flags)
        self.assertEqual(b"other", (self.outside / "file").read_bytes())

    def test_link_that_cannot_be_read_is_removed_and_renamed_itself(self):
        for name in ("first", "second"):
            (self.root / name).symlink_to(self.outside / "file")
        self.tree.unlink(self.root / "first")
        self.tree.rename(self.root / "second", self.root / "third")
        self.assertTrue((self.root / "third").is_symlink())
        self.assertEqual(b"other", (self.outside / "file").read_bytes())

    def test_names_swapped_during_calls_lead_nowhere(self):
        before = hostile_names.snapshot(self.outside)
        opened = refused = 0
        with hostile_names.swapping(self.root / "inner", self.outside):
            for _ in range(3000):
                try:
                    descriptor = self.tree.open(self.file, os.O_RDWR)
                except OSError as error:
                    self.assertIn(error.errno, (errno.ELOOP, errno.ENOENT, errno.ENOTDIR))
                    refused += 1
                    continue
                opened += 1
                self.assertEqual(b"own", os.pread(descriptor, 5, 0))
                os.close(descriptor)
                with contextlib.suppress(OSError):
                    self.tree.make_folder(self.root / "inner" / "made", 0o700)
                    self.tree.unlink(self.root / "inner" / "nothing")
        self.assertGreater(min(opened, refused), 0)
        self.assertEqual(before, hostile_names.snapshot(self.outside))

    def test_kernel_without_openat2_is_named(self):
        def syscall(*_arguments):
            return -1

        with (
            mock.patch.object(confined._LIBC, "syscall", syscall, create=True),
            mock.patch.object(confined.ctypes, "get_errno", return_value=errno.ENOSYS),
            self.assertRaisesRegex(OSError, r"Linux 5\.6 or later"),
        ):
            self.tree.open(self.file, os.O_RDONLY)


class ReopenTest(unittest.TestCase):
    def test_file_is_reopened_though_its_name_is_another_file(self):
        path = lifetime.temp_dir(self) / "file"
        path.write_bytes(b"checked")
        found = os.open(path, os.O_PATH)
        self.addCleanup(os.close, found)
        path.unlink()
        path.write_bytes(b"swapped")
        descriptor = confined.reopen(found, Path("name"), os.O_RDONLY)
        self.addCleanup(os.close, descriptor)
        self.assertEqual(b"checked", os.read(descriptor, 9))
