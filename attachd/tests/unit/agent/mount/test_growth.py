# SPDX-License-Identifier: Apache-2.0
"""When a file system is read, and may grow; functional/test_growth.py has real ones."""

import unittest
from unittest import mock

from attachd import exception
from attachd.agent.connectors.base import Device
from attachd.agent.journal import Entry, Journal
from attachd.agent.mount import growth
from attachd.agent.mount.filesystem_state import FilesystemState
from attachd.linux.commands import CommandResult
from attachd.linux.mountinfo import Mount
from attachd.tests.fixtures import lifetime

GIB = 2**30
SMALL = FilesystemState("xfs", GIB, 2 * GIB, 7)


class GrowthTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        self.journal = Journal(self.folder / "host")
        self.entry = self.journal.write(Entry("v", device=Device("/dev/sdx", {})))
        self.mount = Mount(7, 1, 2049, "/mnt/x", False, "xfs", "/dev/sdx")
        self.enterContext(mock.patch.object(growth, "find_mount", lambda _path: self.mount))
        self.size = self.enterContext(mock.patch("attachd.linux.block_device.size"))
        self.size.return_value = 2 * GIB
        self.is_read_only = self.enterContext(
            mock.patch("attachd.linux.block_device.is_read_only", return_value=False)
        )
        self.execute = self.enterContext(mock.patch("attachd.linux.commands.execute"))
        self.execute.return_value = CommandResult(0, f"xfs {GIB} 4096\n", "")

    def update(self, *types, **more):
        return growth.update(self.journal, self.entry, types=types, **more)

    def test_change_of_size_or_mount_is_read_again(self):
        self.assertFalse(growth.is_read(self.entry))
        self.entry = self.update()
        self.assertEqual(SMALL, self.entry.filesystem)
        self.assertEqual(self.entry, self.journal.get(self.entry.id))
        self.assertTrue(growth.is_read(self.entry))
        self.size.return_value = 3 * GIB
        self.assertFalse(growth.is_read(self.entry))
        self.size.return_value, self.mount = 2 * GIB, None
        self.assertTrue(growth.is_read(self.entry))
        self.mount = Mount(8, 1, 2049, "/mnt/x", False, "xfs", "/dev/sdx")
        self.assertFalse(growth.is_read(self.entry))
        self.assertTrue(growth.is_read(Entry("v")))

    def test_program_gets_the_lock_and_the_size(self):
        with self.journal.volume_lock("v"):
            lock = self.journal.held_lock()
            self.update("xfs")
        for call, size in zip(self.execute.call_args_list, ("0", f"{2 * GIB}"), strict=True):
            line, _timeout, locks = call.args
            self.assertEqual((lock,), locks)
            self.assertEqual(("/dev/sdx", "/mnt/x", "7", "xfs", size), line[3:])

    def test_type_that_may_not_grow_is_left(self):
        self.assertIsNone(self.update("ext4", "btrfs").filesystem.error)
        self.assertEqual(1, self.execute.call_count)

    def test_failure_is_kept_in_the_entry(self):
        found = self.update("xfs").filesystem
        self.assertIn("has not let it grow", found.error)
        self.is_read_only.return_value = True
        self.assertIn("read-only", self.update("xfs").filesystem.error)
        self.mount = None
        self.assertIn("while it is mounted", self.update("xfs").filesystem.error)

        def refuse():
            raise exception.HostError(reason="another host has it.")

        found = self.update("xfs", check_growable=refuse).filesystem
        self.assertEqual("another host has it.", found.error)

    def test_error_of_the_program_raises_and_names_the_missing_right(self):
        self.execute.return_value = CommandResult(1, "", "/mnt/x: Operation not permitted")
        with self.assertRaisesRegex(exception.HostError, "not permitted.$"):
            growth.read("/dev/sdx")
        with self.assertRaisesRegex(exception.HostError, "CAP_SYS_RESOURCE"):
            growth.grow("/dev/sdx")

    def test_unmounted_plain_file_is_not_opened(self):
        file, self.mount = self.folder / "file", None
        file.touch()
        self.assertEqual(FilesystemState("", 0, 2 * GIB), growth.read(f"{file}"))
        self.execute.assert_not_called()

    def test_type_without_growth_is_refused_by_name(self):
        self.mount = Mount(7, 1, 2049, "/mnt/x", False, "vfat", "/dev/sdx")
        with self.assertRaisesRegex(exception.HostError, "Use the tools of vfat"):
            growth.grow("/dev/sdx")
