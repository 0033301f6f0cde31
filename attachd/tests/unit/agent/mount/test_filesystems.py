# SPDX-License-Identifier: Apache-2.0
"""File systems on plain files, which the tools accept, too; functional/ has real devices."""

import subprocess
import unittest
import uuid

from attachd import exception
from attachd.agent.mount import filesystems, probe
from attachd.tests.fixtures import fake_host, lifetime, requirements

_MIB = 2**20


class FilesystemsTest(unittest.TestCase):
    """File systems that are made, and refused requests."""

    def setUp(self):
        super().setUp()
        for tool in ("blkid", "mkfs.ext4", "mkfs.minix", "setpriv", "tune2fs", "wipefs"):
            requirements.require_tool(self, tool)
        fake_host.hide_other_processes(self)
        self.path = lifetime.temp_dir(self) / "device"
        self.path.write_bytes(bytes(8 * _MIB))
        self.device = str(self.path)
        self.uuid = str(uuid.uuid4())
        self.progress = []

    def test_create_on_empty_device_sets_type_and_uuid(self):
        self.assertIsNone(filesystems.get_type(self.device))
        fake_host.make_filesystem(self.device, "ext4", self.progress.append, uuid=self.uuid)
        self.assertEqual("ext4", filesystems.get_type(self.device))
        self.assertEqual(self.uuid, probe.detect(self.device).uuid)

    def test_xfs_remnant_is_known_by_uuid(self):
        requirements.require_tool(self, "mkfs.xfs")
        with self.path.open("wb") as file:
            file.truncate(300 * _MIB)
        fake_host.make_filesystem(self.device, "xfs", self.progress.append, uuid=self.uuid)
        self.assertEqual(probe.Contents("xfs", self.uuid, "xfs"), probe.detect(self.device))
        self.assertTrue(filesystems.is_own_remnant(self.device, "xfs", self.uuid))
        self.assertFalse(filesystems.is_own_remnant(self.device, "xfs", str(uuid.uuid4())))
        filesystems.wipe(self.device, self.progress.append)
        probe.check_empty(self.device, self.progress.append)

    def test_device_with_data_is_refused_and_kept(self):
        self.path.write_bytes(bytes(5 * _MIB) + b"precious" + bytes(3 * _MIB - 8))
        before = self.path.read_bytes()
        with self.assertRaisesRegex(exception.HostError, f"carries data .at byte {5 * _MIB}"):
            fake_host.make_filesystem(self.device, "ext4", self.progress.append)
        self.assertEqual(before, self.path.read_bytes())

    def test_device_with_filesystem_is_refused_and_kept(self):
        fake_host.make_filesystem(self.device, "ext4", self.progress.append)
        before = self.path.read_bytes()
        with self.assertRaisesRegex(exception.HostError, "carries ext4"):
            fake_host.make_filesystem(self.device, "ext4", self.progress.append)
        self.assertEqual(before, self.path.read_bytes())
        self.assertFalse(filesystems.is_own_remnant(self.device, "ext4", self.uuid))

    def test_own_remnant_is_distinguished_from_other_data(self):
        for left in ("nothing", "a superblock", "blocks without one"):
            self.leave(left)
            self.assertTrue(filesystems.is_own_remnant(self.device, "ext4", self.uuid), left)
            filesystems.wipe_signatures(self.device)
            self.assertTrue(filesystems.is_own_remnant(self.device, "ext4", self.uuid), left)
            filesystems.create(self.device, "ext4", self.progress.append, self.uuid)
            self.assertEqual("ext4", filesystems.get_type(self.device), left)
            subprocess.run(
                [requirements.require_tool(self, "e2fsck"), "-fn", self.device],
                check=True,
                capture_output=True,
            )

    def test_wipe_removes_interrupted_filesystem(self):
        for left in ("nothing", "a superblock", "blocks without one"):
            self.leave(left)
            filesystems.wipe(self.device, self.progress.append)
            self.assertEqual(bytes(8 * _MIB), self.path.read_bytes(), left)

    def test_remnant_without_uuid_is_known_by_type(self):
        fake_host.make_filesystem(self.device, "ext4", self.progress.append)
        self.assertFalse(filesystems.is_own_remnant(self.device, "minix", self.uuid))
        filesystems.wipe(self.device, self.progress.append)
        subprocess.run(
            [requirements.require_tool(self, "mkfs.minix"), self.device],
            check=True,
            capture_output=True,
        )
        self.assertTrue(filesystems.is_own_remnant(self.device, "minix", self.uuid))

    def leave(self, what):
        self.path.write_bytes(bytes(8 * _MIB))
        if what != "nothing":
            fake_host.make_filesystem(self.device, "ext4", self.progress.append, uuid=self.uuid)
        if what == "blocks without one":
            data = self.path.read_bytes()
            self.path.write_bytes(bytes(4096) + data[4096:])
            self.assertIsNone(filesystems.get_type(self.device))

    def test_filesystem_mounted_since_is_no_remnant(self):
        self.leave("a superblock")
        self.assertTrue(filesystems.is_own_remnant(self.device, "ext4", self.uuid))
        with self.path.open("r+b") as file:  # As mounting records it.
            file.seek(1024 + 0x2C)
            file.write(b"\1\2\3\4")
        self.assertFalse(filesystems.is_own_remnant(self.device, "ext4", self.uuid))

    def test_type_of_partition_table_is_data(self):
        swap = requirements.require_tool(self, "mkswap")
        subprocess.run([swap, self.device], check=True, capture_output=True)
        self.assertEqual("data", filesystems.get_type(self.device))
        self.assertFalse(filesystems.is_own_remnant(self.device, "ext4", self.uuid))
        with self.assertRaisesRegex(exception.HostError, "swap space"):
            fake_host.make_filesystem(self.device, "ext4", self.progress.append)

    def test_mkfs_command_of_invalid_type_raises(self):
        self.assertEqual("mkfs.ext4", filesystems.mkfs_command("ext4"))
        for kind in ("", "../ext4", "ext4 -F", "-F", "ext4\n", "EXT4", "e" * 40):
            with self.assertRaisesRegex(exception.HostError, "no kind of a file system"):
                fake_host.make_filesystem(self.device, kind, self.progress.append)
        with self.assertRaisesRegex(exception.HostError, "have the command mkfs.nosuch"):
            fake_host.make_filesystem(self.device, "nosuch", self.progress.append)

    def test_is_type_knows_names_of_blkid(self):
        self.assertTrue(filesystems.is_type("vfat", "fat"))
        self.assertTrue(filesystems.is_type("xfs", "xfs"))
        self.assertFalse(filesystems.is_type("xfs", "ext4"))

    def test_create_failure_raises_with_mkfs_message(self):
        self.path.write_bytes(bytes(4096))
        with self.assertRaisesRegex(exception.HostError, r"mkfs\.ext4 failed on .*device"):
            fake_host.make_filesystem(self.device, "ext4", self.progress.append)

    def test_device_in_use_is_refused(self):
        with self.path.open("rb"), self.assertRaises(exception.DeviceBusy):
            fake_host.make_filesystem(self.device, "ext4", self.progress.append)
