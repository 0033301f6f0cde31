# SPDX-License-Identifier: Apache-2.0
"""The program without a mount; functional/test_growth.py has real file systems."""

import fcntl
from pathlib import Path
import struct
import sys
import unittest
from unittest import mock

from attachd.agent.mount import filesystem_growth
from attachd.tests.fixtures import lifetime

HERE = str(Path(__file__).parent)


class GrowthProgramTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.device = lifetime.temp_dir(self) / "device"
        self.device.write_bytes(bytes(2**17))
        self.ioctl = self.enterContext(mock.patch.object(fcntl, "ioctl"))

    def patch(self, offset, content):
        with self.device.open("r+b") as file:
            file.seek(offset)
            file.write(content)

    def superblock(self):
        return filesystem_growth.read_superblock(self.device)

    def main(self, *arguments):
        self.enterContext(mock.patch.object(sys, "argv", ["program", *arguments]))
        filesystem_growth.main()

    def test_superblocks_are_read(self):
        self.assertEqual(("", 0, 0), self.superblock())
        self.patch(65536 + 0x40, b"_BHRfS_M")
        self.patch(65536 + 0xD1, struct.pack("<Q", 2**40))
        self.assertEqual(("btrfs", 2**40, 4096), self.superblock())
        self.patch(1024 + 0x38, b"\x53\xef")
        self.patch(1024 + 4, struct.pack("<I", 1000))
        self.patch(1024 + 0x18, struct.pack("<I", 2))
        self.assertEqual(("ext2", 4096 * 1000, 4096), self.superblock())
        self.patch(1024 + 0x5C, struct.pack("<II", 0x4, 0x40 | 0x80))
        self.patch(1024 + 0x150, struct.pack("<I", 1))
        self.assertEqual(("ext4", 4096 * (1000 + 2**32), 4096), self.superblock())
        self.patch(0, b"XFSB" + struct.pack(">IQ", 512, 7))
        self.assertEqual(("xfs", 3584, 512), self.superblock())

    def test_hostile_size_of_blocks_is_bounded(self):
        self.patch(1024 + 0x38, b"\x53\xef")
        self.patch(1024 + 0x18, b"\xff" * 4)
        self.assertEqual(("ext2", 0, 65536), self.superblock())

    def test_other_mount_at_the_mountpoint_is_refused(self):
        with self.assertRaisesRegex(SystemExit, f"{HERE} is covered by another mount"):
            self.main(f"{self.device}", HERE, "999999999", "xfs", "4096")
        self.ioctl.assert_not_called()

    def test_missing_mountpoint_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "/no/such/place: No such file"):
            self.main(f"{self.device}", "/no/such/place", "1", "xfs", "0")

    def test_xfs_grows_with_its_ratio_of_inodes(self):
        geometry = struct.pack("=I24xIQ", 4096, 25, 100).ljust(112, b"\0")
        self.ioctl.return_value = geometry
        filesystem_growth.grow(0, "xfs", self.device, 4096 * 200 + 5)
        number, argument = self.ioctl.call_args.args[1:]
        self.assertEqual((0x4010586E, (200, 25)), (number, struct.unpack("=QI4x", argument)))
        self.ioctl.reset_mock()
        filesystem_growth.grow(0, "xfs", self.device, 4096 * 100)
        self.assertEqual(1, self.ioctl.call_count)

    def test_ext4_grows_by_its_number_of_blocks(self):
        self.patch(1024 + 0x38, b"\x53\xef")
        self.patch(1024 + 4, struct.pack("<I", 1000))
        filesystem_growth.grow(0, "ext4", self.device, 2**21)
        self.ioctl.assert_called_once_with(0, 0x40086610, struct.pack("=Q", 2048))

    def test_btrfs_of_several_devices_does_not_grow(self):
        self.ioctl.return_value = struct.pack("=QQ", 2, 2).ljust(1024, b"\0")
        self.assertEqual((0, 0), filesystem_growth.read(0, "btrfs", self.device))
        with self.assertRaisesRegex(SystemExit, "this btrfs cannot grow by one device"):
            filesystem_growth.grow(0, "btrfs", self.device, 2**40)
        self.assertEqual((0, 0), filesystem_growth.read(0, "vfat", self.device))
