# SPDX-License-Identifier: Apache-2.0
"""The program on directories; functional/test_node_volumes.py has file systems of volumes."""

import contextlib
import io
import os
from pathlib import Path
import signal
import stat
import sys
import unittest
from unittest import mock

from attachd.agent.mount import file_groups
from attachd.tests.fixtures import lifetime, requirements

GROUP = 40_000


def state(path):
    """Return the group and the mode of what has a path."""
    found = path.lstat()
    return found.st_gid, stat.S_IMODE(found.st_mode)


class FileGroupsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        top = lifetime.temp_dir(self)
        self.outside = top / "outside"
        self.outside.touch(mode=0o600)
        self.root = top / "root"
        self.root.mkdir(mode=0o700)
        for name in ("a", "a/b", "c"):
            (self.root / name).mkdir(mode=0o755)
        self.files = [self.root / name for name in ("a/1", "a/b/2", "c/3", "4")]
        for file in self.files:
            file.touch(mode=0o700)
        (self.root / "a" / "link").symlink_to(self.outside)
        os.mkfifo(self.root / "fifo", 0o600)

    def grant(self):
        """Return what the program prints."""
        root = os.open(self.root, os.O_RDONLY)
        (mount_id,) = (
            line.split()[1]
            for line in Path(f"/proc/self/fdinfo/{root}").read_text().splitlines()
            if line.startswith("mnt_id:")
        )
        os.close(root)
        return self.main(f"{self.root}", mount_id, f"{GROUP}")

    def main(self, *arguments):
        with (
            mock.patch.object(sys, "argv", ["program", *arguments]),
            contextlib.redirect_stdout(io.StringIO()) as output,
        ):
            file_groups.main()
        return output.getvalue()

    def assert_granted(self):
        for path in (self.root, *(self.root / name for name in ("a", "a/b", "c"))):
            self.assertEqual(GROUP, state(path)[0], path)
            self.assertEqual(0o2770, state(path)[1] & 0o2770, path)
        for path in self.files:
            self.assertEqual((GROUP, 0o760), state(path))
        self.assertEqual((GROUP, 0o660), state(self.root / "fifo"))
        self.assertEqual((os.getegid(), 0o600), state(self.outside))

    def test_all_but_links_get_group_and_rights(self):
        self.files[0].chmod(0o4700)
        self.assertEqual("0\n", self.grant())
        self.assert_granted()
        inside = self.root / "a" / "new"
        inside.touch()
        self.assertEqual(GROUP, state(inside)[0])

    def test_granted_root_directory_is_all_that_is_read(self):
        self.grant()
        os.chown(self.files[0], -1, GROUP + 1)
        self.grant()
        self.assertEqual(GROUP + 1, state(self.files[0])[0])
        self.root.chmod(0o700)
        self.grant()
        self.assert_granted()

    def test_killed_program_is_repeated(self):
        kills = 0
        while self._is_killed(kills):
            self.assertFalse(self._is_root_granted(), kills)
            kills += 1
        # Four files, three directories, the FIFO, and the root directory.
        self.assertEqual(9, kills)
        self.assert_granted()

    def _is_killed(self, number):
        """Return whether a copy was killed before a change, which is counted from 0."""
        for path in (self.root, *self.root.rglob("*")):
            os.chown(path, -1, os.getegid(), follow_symlinks=False)
        copy = os.fork()
        if copy == 0:
            try:
                left = iter(range(number))

                def kill(*_arguments):
                    if next(left, None) is None:
                        os.kill(os.getpid(), signal.SIGKILL)

                real = os.chown
                with mock.patch.object(os, "chown", lambda *arguments: (kill(), real(*arguments))):
                    self.grant()
            finally:
                os._exit(0)
        return os.WIFSIGNALED(os.waitpid(copy, 0)[1])

    def _is_root_granted(self):
        root = os.open(self.root, os.O_RDONLY)
        try:
            return file_groups.is_granted(root, GROUP)
        finally:
            os.close(root)

    def test_name_that_becomes_link_is_not_followed(self):
        real = file_groups._open

        def replace(name, parent, flags):
            if name in {"c", "1"}:
                os.rename(name, f"{self.root.parent}/{name}", src_dir_fd=parent)
                os.symlink(self.root.parent, name, dir_fd=parent)
            return real(name, parent, flags)

        with mock.patch.object(file_groups, "_open", replace):
            self.grant()
        self.assertEqual((os.getegid(), 0o600), state(self.outside))
        self.assertNotEqual(GROUP, state(self.root.parent)[0])
        self.assertNotEqual(GROUP, state(self.root.parent / "c")[0])

    def test_file_that_refuses_is_counted(self):
        real = os.chown

        def refuse(path, *numbers):
            if Path(path).readlink() == self.files[1]:
                raise PermissionError(1, "Operation not permitted")
            real(path, *numbers)

        with mock.patch.object(os, "chown", refuse):
            self.assertEqual("1\n", self.grant())
        self.assertTrue(self._is_root_granted())

    def test_failure_names_file_and_leaves_root_directory(self):
        real = os.chown

        def fail(path, *numbers):
            if Path(path).readlink() == self.files[1]:
                raise OSError(5, "Input/output error", f"{self.files[1]}")
            real(path, *numbers)

        with (
            mock.patch.object(os, "chown", fail),
            self.assertRaisesRegex(SystemExit, f"{self.files[1]}: Input/output error"),
        ):
            self.grant()
        self.assertFalse(self._is_root_granted())

    def test_other_mount_at_the_mountpoint_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "is covered by another mount"):
            self.main(f"{self.root}", "999999999", f"{GROUP}")
        self.assertFalse(self._is_root_granted())
