# SPDX-License-Identifier: Apache-2.0
"""What the kernel knows of a file is what Python's stat() says, and more."""

from pathlib import Path
import stat
import unittest

from attachd.agent.mount import statx


class StatTest(unittest.TestCase):
    """Files of each kind, compared."""

    def test_a_file_is_told_as_stat_tells_it(self):
        for path in (__file__, "/", "/proc", "/dev/null"):
            found = statx.stat_of(path)
            self.assertEqual(Path(path).stat().st_dev, found.device, path)
            self.assertEqual(Path(path).stat().st_ino, found.file[1], path)
            self.assertIsNone(found.block_device)

    def test_block_devices_are_told(self):
        devices = [path for path in Path("/dev").iterdir() if path.is_block_device()]
        for path in devices:
            self.assertTrue(stat.S_ISBLK(path.stat().st_mode))
            self.assertEqual(path.stat().st_rdev, statx.stat_of(path).block_device)

    def test_the_mount_is_told(self):
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        number = next(int(each.split()[0]) for each in lines if each.split()[4] == "/proc")
        self.assertIn(statx.stat_of("/proc").mount, (number, None))
        with Path("/proc/self/status").open() as file:
            self.assertIn(statx.stat_of(f"/proc/self/fd/{file.fileno()}").mount, (number, None))

    def test_what_is_not_there_is_an_error_like_any_other(self):
        self.assertRaises(FileNotFoundError, statx.stat_of, "/no/such/file")
