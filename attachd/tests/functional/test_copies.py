# SPDX-License-Identifier: Apache-2.0
"""Copies of file systems on the host that has the original, made while that was in use or not."""

import os
from pathlib import Path
import shutil

from attachd import exception
from attachd.agent.connectors.base import Device
from attachd.agent.journal import Entry, Journal
from attachd.agent.mount import format_and_mount, mounts
from attachd.agent.mount.mount_rules import MountRules
from attachd.tests.fixtures import requirements
from attachd.tests.fixtures.loop_devices import MIB, LoopDeviceCase, attach
from attachd.tests.selection import full_only

SIZES = {"ext4": 16 * MIB, "xfs": 300 * MIB, "btrfs": 128 * MIB}
WITHOUT_JOURNAL = {"ext4": "noload", "xfs": "norecovery", "btrfs": "rescue=nologreplay"}
RULES = MountRules(("btrfs",))


@full_only("hosts")
class CopyTest(LoopDeviceCase):
    """The original is mounted for writing all the time."""

    def setUp(self):
        super().setUp()
        self.original = {}

    def mounted(self, kind):
        """Mount an original with a file; the file system knows of it in its journal only."""
        requirements.require_tool(self, f"mkfs.{kind}")
        device, folder = self.formatted(kind, SIZES[kind]), Path(self.place(f"{kind}-original"))
        mounts.mount(device, f"{folder}", mode="rw", rules=RULES)
        self.original[kind] = (device, folder)
        return device, folder

    def write(self, folder):
        with (folder / "file").open("w") as file:
            file.write("data")
            file.flush()
            os.fsync(file.fileno())

    def copy(self, kind, *flags, clean=False):
        """Return a device with a copy of the original, which is in use unless it is clean."""
        device, folder = self.mounted(kind)
        self.write(folder)
        if clean:
            mounts.unmount(f"{folder}")
        self.run_tool("sync", device)
        made = self.device(0, *flags, content=self.file_of(device))
        if clean:
            mounts.mount(device, f"{folder}", mode="rw", rules=RULES)
        return made

    def read(self, device, mode, rules=RULES):
        """Mount a device, read the file, and unmount it."""
        folder = self.place(f"copy-{Path(device).name}")
        mounts.mount(device, folder, mode=mode, rules=rules)
        try:
            if mode == "rw":
                (Path(folder) / "more").write_text("more")
            return (Path(folder) / "file").read_text()
        finally:
            mounts.unmount(folder)

    def test_writable_copy_is_mounted_beside_its_original(self):
        for kind in SIZES:
            for clean in (True, False):
                with self.subTest(f"{kind}, clean: {clean}"):
                    self.assertEqual("data", self.read(self.copy(kind, clean=clean), "rw"))
                    device, folder = self.original[kind]
                    self.assertTrue(mounts.is_mounted(device, f"{folder}"))
                    self.assertFalse((folder / "more").exists())
                    mounts.unmount(f"{folder}")

    def test_clean_copy_is_read_beside_its_original(self):
        for kind in SIZES:
            with self.subTest(kind):
                device = self.copy(kind, "--read-only", clean=True)
                self.assertEqual("data", self.read(device, "ro"))
                mounts.unmount(f"{self.original[kind][1]}")

    def test_unclean_copy_that_is_only_read_is_refused_with_the_next_step(self):
        for kind in SIZES:
            with self.subTest(kind):
                device = self.copy(kind, "--read-only")
                option = WITHOUT_JOURNAL[kind]
                with self.assertRaisesRegex(
                    exception.HostError,
                    f"{device} was copied while it was in use.*mode rw.*--mount-options {option}",
                ):
                    self.read(device, "ro")
                self.assertFalse(os.path.ismount(self.place(f"copy-{Path(device).name}")))
                folder = self.place(f"asked-{kind}")
                rules = MountRules(("btrfs",), option)
                mounts.mount(device, folder, mode="ro", rules=rules)
                self.assertTrue(mounts.is_mounted(device, folder))
                mounts.unmount(folder)
                mounts.unmount(f"{self.original[kind][1]}")

    def test_same_xfs_by_another_device_is_not_mounted_twice(self):
        device, folder = self.mounted("xfs")
        other = attach(self.file_of(device))
        self.addCleanup(self.run_tool, "losetup", "--detach", other)
        message = f"{other} is the same volume as {device}, which is mounted at {folder}"
        with self.assertRaisesRegex(exception.HostError, message):
            mounts.mount(other, self.place(), mode="rw")
        self.assertFalse(os.path.ismount(self.place()))

    def test_device_of_another_attachment_of_the_volume_is_no_copy(self):
        journal = Journal(self.folder / "host")
        first, folder = self.mounted("xfs")
        self.run_tool("sync", first)
        # As with network storage, where nothing but the journal shows that both are one.
        second = self.device(0, content=self.file_of(first))
        for path, mountpoint in ((first, f"{folder}"), (second, self.place())):
            entry = journal.write(Entry("v", device=Device(path, {}), mountpoint=mountpoint))
        with self.assertRaisesRegex(exception.HostError, f"{second} is the same volume"):
            format_and_mount.mount_volume(journal, entry, str, mode="rw")
        entry = journal.write(entry, volume_id="w")
        format_and_mount.mount_volume(journal, entry, str, mode="rw")
        self.assertTrue(mounts.is_mounted(second, self.place()))

    def test_copy_of_a_physical_volume_names_vgimportclone(self):
        device = self.device()
        self.run_tool(
            requirements.require_tool(self, "pvcreate"),
            "-q",
            "--config",
            f'devices {{ filter=["a|{device}|", "r|.*|"] use_devicesfile=0 }}',
            device,
        )
        with self.assertRaisesRegex(exception.HostError, "LVM2_member.*vgimportclone"):
            mounts.mount(device, self.place(), mode="rw")

    def test_read_only_xfs_on_writable_device_names_the_command(self):
        device = self.copy("xfs")
        before = shutil.copyfile(self.file_of(device), self.folder / "before").read_bytes()
        with self.assertRaisesRegex(exception.HostError, f"blockdev --setro {device}"):
            self.read(device, "ro")
        self.assertEqual(before, self.file_of(device).read_bytes())
