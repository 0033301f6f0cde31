# SPDX-License-Identifier: Apache-2.0
"""Checks and messages without a mount; functional/test_mounts.py has real mounts."""

from pathlib import Path
import unittest

import fixtures

from attachd import exception
from attachd.agent.mount import mounts
from attachd.tests.fixtures import lifetime


class MountsTest(unittest.TestCase):
    """Commands and mountpoints."""

    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        self.device = str(self.folder / "device")
        Path(self.device).write_bytes(bytes(2**20))

    def test_missing_tools_are_named_with_packages(self):
        self.assertEqual([], mounts.missing_tools(["sh"]))
        self.assertEqual(["no-such-command"], mounts.missing_tools(["sh", "no-such-command"]))
        environment = fixtures.MonkeyPatch("attachd.linux.commands.which", lambda _item: None)
        environment.setUp()
        self.addCleanup(environment.cleanUp)
        expected = ["mkfs.xfs (package xfsprogs)", "mkfs.ext4 (package e2fsprogs)"]
        self.assertEqual(expected, mounts.missing_tools(["mkfs.xfs", "mkfs.ext4"]))
        self.assertEqual(
            [],
            [
                missing_tool
                for missing_tool in mounts.missing_tools(mounts.TOOLS)
                if "(" not in missing_tool
            ],
        )

    def test_mount_at_relative_path_raises(self):
        with self.assertRaisesRegex(exception.HostError, "mnt is no absolute path"):
            mounts.mount(self.device, "mnt", mode="rw")

    def test_mount_without_filesystem_suggests_mkfs(self):
        with self.assertRaisesRegex(exception.HostError, "has no file system.* --mkfs ext4"):
            mounts.mount(self.device, f"{self.folder / 'there'}", mode="rw")
        self.assertFalse((self.folder / "there").exists())

    def test_unmount_without_mount_succeeds(self):
        for folder in (self.folder, self.folder / "missing"):
            mounts.unmount(f"{folder}")
            mounts.check_unmountable(f"{folder}")
            self.assertFalse(mounts.is_mounted(self.device, f"{folder}"))

    def test_unmount_of_other_device_keeps_mount(self):
        mounts.unmount("/proc", device=self.device)
        self.assertTrue(Path("/proc/self").exists())
        self.assertFalse(mounts.is_mounted(self.device, "/proc"))
        with self.assertRaisesRegex(exception.HostError, "proc is mounted at /proc already"):
            mounts.mount(self.device, "/proc", mode="rw")
