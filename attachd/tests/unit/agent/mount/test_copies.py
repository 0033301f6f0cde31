# SPDX-License-Identifier: Apache-2.0
"""What copies are told from, without a mount; functional/test_copies.py has real ones."""

import unittest
from unittest import mock

from attachd import exception
from attachd.agent.mount import copies
from attachd.agent.mount.mount_rules import DEFAULTS, MountRules
from attachd.agent.mount.probe import Contents
from attachd.linux.commands import CommandResult
from attachd.linux.mountinfo import Mount
from attachd.tests.fixtures import lifetime

REFUSED = CommandResult(32, "", "mount: /mnt/x: cannot mount /dev/sdb read-only.")


class CopiesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        self.device = self.folder / "device"
        self.device.write_bytes(bytes(2**17))
        self.enterContext(mock.patch.object(copies, "_BTRFS", self.folder / "btrfs"))

    def patch(self, offset, content):
        with self.device.open("r+b") as file:
            file.seek(offset)
            file.write(content)

    def check_clean(self, fs_type, rules=DEFAULTS):
        copies.check_clean(f"{self.device}", fs_type, rules)

    def test_marks_of_journals_are_read(self):
        for fs_type, offset, option in (
            ("ext3", 1024 + 0x60, "noload"),
            ("ext4", 1024 + 0x60, "noload"),
            ("btrfs", 65536 + 0x60, "rescue=nologreplay"),
        ):
            with self.subTest(fs_type):
                self.check_clean(fs_type)
                self.patch(offset, b"\x04")
                with self.assertRaisesRegex(exception.HostError, f"mount-options {option}$"):
                    self.check_clean(fs_type)
                self.check_clean(fs_type, MountRules((), f"noatime,{option}"))
                self.check_clean("ext2")
                self.patch(offset, b"\x00")

    def test_refusal_of_the_kernel_is_recognized(self):
        self.assertTrue(copies.is_refused_as_unclean("xfs", REFUSED))
        self.assertFalse(copies.is_refused_as_unclean("minix", REFUSED))
        other = CommandResult(32, "", "mount: /mnt/read-only: wrong fs type")
        self.assertFalse(copies.is_refused_as_unclean("xfs", other))

    def test_mounted_btrfs_with_the_same_uuid_is_named(self):
        uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f"
        self.patch(65536 + 0x20, bytes(range(16)))
        copies.check_unique(f"{self.device}", "btrfs")
        devices = self.folder / "btrfs" / uuid / "devices"
        devices.mkdir(parents=True)
        (devices / "sdz").touch()
        with self.assertRaisesRegex(exception.HostError, f"{uuid}.* from sdz.*btrfstune -m"):
            copies.check_unique(f"{self.device}", "btrfs")
        copies.check_unique(f"{self.device}", "ext4")
        # It is mounted itself.
        (devices / "device").touch()
        copies.check_unique(f"{self.device}", "btrfs")
        (devices / "device").unlink()
        features = self.folder / "btrfs" / "features"
        features.mkdir()
        (features / "temp_fsid").touch()
        copies.check_unique(f"{self.device}", "btrfs")

    def test_mounted_xfs_of_the_same_disk_is_named(self):
        mounts = [Mount(1, 0, 2049, "/mnt/a", False, "xfs", "/dev/sda")]
        self.enterContext(mock.patch("attachd.linux.mountinfo.list_mounts", return_value=mounts))
        numbers = self.folder / "numbers"
        numbers.mkdir()
        (numbers / "8:1").symlink_to(self.folder / "sda1")
        self.enterContext(mock.patch.object(copies, "_NUMBERS", numbers))
        identity = self.enterContext(mock.patch("attachd.linux.block_device.identity"))
        identity.return_value = ""
        copies.check_no_other_path(f"{self.device}", [])
        copies.check_no_other_path(f"{self.device}", ["/dev/sdx"])
        with self.assertRaisesRegex(exception.HostError, "same volume as /dev/sda1.* /mnt/a"):
            copies.check_no_other_path(f"{self.device}", ["/dev/sda1"])
        identity.return_value = "naa.6001"
        with self.assertRaisesRegex(exception.HostError, "same volume as /dev/sda1.* /mnt/a"):
            copies.check_no_other_path(f"{self.device}", [])

    def test_advice_is_for_lvm_alone(self):
        lvm = Contents(None, "", "a physical volume of LVM (LVM2_member)")
        self.assertIn("vgimportclone", copies.advice(lvm))
        self.assertEqual("", copies.advice(Contents(None, "", "swap space")))

    def test_device_that_cannot_be_read_raises(self):
        with self.assertRaisesRegex(exception.HostError, "cannot be read"):
            copies.read_number(f"{self.folder / 'missing'}", 0, 4)
