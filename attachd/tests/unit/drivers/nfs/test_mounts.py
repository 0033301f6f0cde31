# SPDX-License-Identifier: Apache-2.0
"""Commands and tables of mounts; no NFS client is needed."""

import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import command
from attachd.drivers.nfs import mounts
from attachd.linux import commands, share_mounts
from attachd.tests.fixtures import lifetime

SHARE = "storage-1:/volumes"


class MountsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        folder = lifetime.temp_dir(self)
        self.path = folder / "mount point"
        self.table = folder / "mountinfo"
        self.table.write_text("")
        self.enterContext(mock.patch.object(mounts, "_MOUNTS", self.table))
        self.run_tool = self.enterContext(mock.patch.object(command, "run"))
        self.restrict = self.enterContext(
            mock.patch.object(share_mounts, "restrict", return_value="")
        )
        self.answer(0)

    def answer(self, exit_code, stderr=""):
        self.run_tool.side_effect = None
        self.run_tool.return_value = commands.CommandResult(exit_code, "", stderr)

    def fill_table(self):
        escaped = f"{self.path}".replace(" ", "\\040")
        self.table.write_text(f"36 35 0:31 / {escaped} rw - nfs4 {SHARE} rw\n")

    def test_is_mounted_reads_table(self):
        self.assertFalse(mounts.is_mounted(self.path))
        self.fill_table()
        self.assertTrue(mounts.is_mounted(self.path))
        self.assertFalse(mounts.is_mounted(self.path.parent))

    def test_mount_makes_mount_point_and_passes_options(self):
        mounts.mount(SHARE, self.path, "soft,retry=0", 7.0)
        self.assertEqual(0o700, self.path.stat().st_mode & 0o777)
        line = [
            "mount",
            "-t",
            "nfs",
            "-o",
            "soft,retry=0,nosuid,nodev,noexec",
            SHARE,
            f"{self.path}",
        ]
        self.run_tool.assert_called_once_with(line, 7.0)
        self.restrict.assert_called_once_with(self.path)

    def test_mount_that_cannot_be_restricted_raises(self):
        self.restrict.side_effect = PermissionError(1, "Operation not permitted")
        with self.assertRaisesRegex(exception.BackendError, "cannot be restricted: .*permitted"):
            mounts.mount(SHARE, self.path, "", 7.0)

    def test_mount_that_fails_raises_reason(self):
        self.answer(32, "mount.nfs: access denied by server")
        with self.assertRaisesRegex(exception.BackendUnreachable, "access denied by server"):
            mounts.mount(SHARE, self.path, "", 7.0)

    def test_mount_by_other_process_at_same_time_succeeds(self):
        self.answer(32, "mount.nfs: is busy or already mounted")
        self.fill_table()
        mounts.mount(SHARE, self.path, "", 7.0)

    def test_unmount_removes_mount_point(self):
        self.path.mkdir()
        self.assertTrue(mounts.unmount(self.path, 7.0, "--lazy"))
        self.run_tool.assert_called_once_with(["umount", "--lazy", f"{self.path}"], 7.0)
        self.assertFalse(self.path.exists())

    def test_unmount_of_share_in_use_or_of_hanging_share_returns_false(self):
        self.path.mkdir()
        self.fill_table()
        self.answer(32, "umount: target is busy")
        self.assertFalse(mounts.unmount(self.path, 7.0))
        self.run_tool.side_effect = exception.BackendUnreachable("'umount' did not end in 7 s.")
        self.assertFalse(mounts.unmount(self.path, 7.0))
        self.assertTrue(self.path.is_dir())
