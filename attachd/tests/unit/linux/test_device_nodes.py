# SPDX-License-Identifier: Apache-2.0
"""Devices and files; functional/test_open_handles.py has real ones with devices on top."""

from pathlib import Path
import stat
import unittest

from attachd import exception
from attachd.linux import device_nodes


class NodesTest(unittest.TestCase):
    """The device or file of a path."""

    def test_file_matches_itself_by_other_path(self):
        node = device_nodes.stat_device(__file__)
        self.assertIsNone(node.number)
        with Path(__file__).open() as file:
            self.assertTrue(node.matches(device_nodes.statx(f"/proc/self/fd/{file.fileno()}")))
        self.assertFalse(node.matches(device_nodes.statx("/")))
        self.assertEqual([node], node.with_partitions())

    def test_stat_device_of_other_kind_raises(self):
        self.assertRaises(exception.HostError, device_nodes.stat_device, "/dev/null")
        self.assertRaises(OSError, device_nodes.stat_device, "/dev/no-such-device")

    def test_device_matches_by_number(self):
        for path in Path("/dev").glob("loop[0-9]*"):
            if path.is_block_device():
                node = device_nodes.stat_device(f"{path}")
                self.assertEqual(path.name, node.sysfs_dir.resolve().name)
                self.assertEqual([node.number], node.device_numbers())
                self.assertTrue(node.matches(device_nodes.statx(path)))

    def test_read_line_of_missing_file_is_empty(self):
        self.assertEqual("", device_nodes.read_line(Path("/no/such/file")))


class StatTest(unittest.TestCase):
    """Comparison of files of each kind."""

    def test_statx_agrees_with_stat(self):
        for path in (__file__, "/", "/proc", "/dev/null"):
            found = device_nodes.statx(path)
            self.assertEqual(Path(path).stat().st_dev, found.device, path)
            self.assertEqual(Path(path).stat().st_ino, found.file[1], path)
            self.assertIsNone(found.block_device)

    def test_statx_returns_block_device_number(self):
        devices = [path for path in Path("/dev").iterdir() if path.is_block_device()]
        for path in devices:
            self.assertTrue(stat.S_ISBLK(path.stat().st_mode))
            self.assertEqual(path.stat().st_rdev, device_nodes.statx(path).block_device)

    def test_statx_returns_mount_id(self):
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        number = next(int(line.split()[0]) for line in lines if line.split()[4] == "/proc")
        self.assertIn(device_nodes.statx("/proc").mount, (number, None))
        with Path("/proc/self/status").open() as file:
            self.assertIn(
                device_nodes.statx(f"/proc/self/fd/{file.fileno()}").mount, (number, None)
            )

    def test_statx_of_missing_file_raises(self):
        self.assertRaises(FileNotFoundError, device_nodes.statx, "/no/such/file")
