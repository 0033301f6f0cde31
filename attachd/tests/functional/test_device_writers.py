# SPDX-License-Identifier: Apache-2.0
"""Tests of stopping the writers of a device: what was not written before does not arrive."""

import errno
import os
from pathlib import Path
import subprocess

from attachd import exception
from attachd.agent.mount import mounts
from attachd.agent.mount.device_writers import DeviceWriters
from attachd.linux import block_device
from attachd.tests.fixtures import lifetime, requirements
from attachd.tests.fixtures.loop_devices import MIB, LoopDeviceCase
from attachd.tests.selection import full_only

BLOCK = 4096


@full_only("hosts")
class DeviceWritersTest(LoopDeviceCase):
    """Each kind of writer of a device, whose file is what has reached the backend."""

    def setUp(self):
        super().setUp()
        self.writers = DeviceWriters(lifetime.temp_dir(self))

    def stop(self, device):
        self.writers.stop(device, lambda: True)

    def content(self, device):
        return self.file_of(device).read_bytes()

    def assert_refused(self, file):
        with self.assertRaises(OSError) as raised:
            os.pwrite(file, b"late" * 1024, BLOCK)
        self.assertEqual(errno.EPERM, raised.exception.errno)

    def open(self, path, flags=os.O_RDWR):
        file = os.open(path, flags)
        self.addCleanup(os.close, file)
        return file

    def test_process_with_open_device_is_refused_and_lives(self):
        device = self.device()
        file = self.open(device)
        os.pwrite(file, b"soon" * 1024, 0)  # It is in the cache of the kernel.
        for _ in range(2):
            self.stop(device)
            self.assert_refused(file)
        self.assertTrue(self.writers.are_stopped(device))
        content = self.content(device)
        self.assertEqual(b"soon" * 1024 + b"\0" * BLOCK, content[: 2 * BLOCK])
        self.writers.resume(device)
        self.assertFalse(self.writers.are_stopped(device))
        os.pwrite(file, b"anew" * 1024, BLOCK)

    def test_process_with_mapping_for_writing_is_killed(self):
        device = self.device()
        reader, writer = (self.mapping(device, mode) for mode in ("O_RDONLY", "O_RDWR"))
        self.stop(device)
        self.assertEqual((None, -9), (reader.poll(), writer.wait()))

    def test_file_system_is_shut_down_and_its_cache_is_lost(self):
        for kind, size in (("ext4", 16 * MIB), ("xfs", 320 * MIB)):
            with self.subTest(kind):
                device, folder = self.formatted(kind, size), self.place(kind)
                mounts.mount(device, folder, mode="rw")
                self.check_file_system(device, Path(folder))

    def check_file_system(self, device, folder):
        with (folder / "file").open("wb", buffering=0) as file:
            file.write(b"synced-data!" * 1024)
            os.fsync(file.fileno())
            file.write(b"cached-data!" * 1024)
            self.stop(device)
            self.assertRaises(OSError, os.fsync, file.fileno())
            self.assertRaises(OSError, file.write, b"late")
        before = self.content(device)
        self.assertIn(b"synced-data!", before)
        self.assertNotIn(b"cached-data!", before)
        self.stop(device)
        subprocess.run(["sync"], check=True)
        mounts.unmount(f"{folder}")
        self.assertEqual(before, self.content(device))
        with self.assertRaises(exception.HostError):
            mounts.mount(device, f"{folder}", mode="rw")

    def test_file_system_is_shut_down_in_other_namespace_and_if_hidden(self):
        requirements.require_mount_namespaces(self)
        unshare = requirements.require_tool(self, "unshare")
        device, folder = self.formatted(), self.place()
        Path(folder).mkdir()
        script = (
            f"mount {device} {folder} && cd {folder} && exec 3>file && "
            "%s echo ready && read -r line; echo $line >&3; echo $?"
        )
        for hide in ("", f"umount --lazy {folder} &&", f"mount -t tmpfs none {folder} &&"):
            with self.subTest(hide):
                process = self.process(
                    unshare, "--mount", "sh", "-c", script % hide, stdin=subprocess.PIPE
                )
                self.addCleanup(process.stdin.close)
                self.stop(device)
                output, _ = process.communicate("late\n")
                self.assertNotEqual("0", output.strip())
                self.assertEqual(0, subprocess.run(["ls", folder], check=False).returncode)
                self.writers.resume(device)

    def test_partition_and_device_on_top_are_stopped(self):
        device, folder = self.device(32 * MIB, "--partscan"), self.place()
        self.run_tool(requirements.require_tool(self, "addpart"), device, "1", "2048", "40960")
        part = f"{device}p1"
        top = self.device(parent=part)
        self.run_tool("mkfs.ext4", "-q", top)
        mounts.mount(top, folder, mode="rw")
        files = [self.open(path) for path in (device, part, top)]
        self.stop(device)
        for file in files:
            self.assert_refused(file)
        with self.assertRaises(OSError):
            (Path(folder) / "file").write_text("late")
        self.writers.resume(device)
        for file in files:
            os.pwrite(file, b"anew", 0)

    def test_file_system_that_cannot_be_reached_is_an_error(self):
        device, folder = self.formatted(), self.place()
        mounts.mount(device, folder, mode="rw")
        self.run_tool("mount", "-t", "tmpfs", "none", folder)
        self.addCleanup(subprocess.run, ["umount", folder], check=False, capture_output=True)
        file = self.open(device)
        with self.assertRaisesRegex(
            exception.HostError, f"shut down: {folder} is covered by another mount"
        ):
            self.stop(device)
        self.assert_refused(file)
        self.run_tool("umount", folder)
        self.stop(device)

    def test_other_file_system_whose_source_has_the_name_of_the_device_goes_on(self):
        requirements.require_mount_namespaces(self)
        unshare = requirements.require_tool(self, "unshare")
        device, other, folder = self.device(), self.formatted(), self.place()
        Path(folder).mkdir()
        # In this namespace, what is mounted from "other" seems to be the device.
        number = Path(device).stat().st_rdev
        script = (
            f"mount {other} {folder} && mount -t tmpfs none /dev && "
            f"mknod {other} b {os.major(number)} {os.minor(number)} && echo ready; exec sleep 600"
        )
        self.process(unshare, "--mount", "sh", "-c", script)
        mounts.mount(other, folder, mode="rw")
        self.stop(device)
        (Path(folder) / "file").write_text("data")

    def test_swap_is_an_error(self):
        for tool in ("mkswap", "swapon", "swapoff"):
            requirements.require_tool(self, tool)
        device = self.device()
        self.run_tool("mkswap", device)
        self.run_tool("swapon", "--priority", "0", device)
        self.addCleanup(self.run_tool, "swapoff", device)
        with self.assertRaisesRegex(exception.HostError, f"The kernel writes to swap on {device}"):
            self.stop(device)

    def test_device_that_is_not_the_right_one_is_left_alone(self):
        device = self.device()
        self.writers.stop(device, lambda: False)
        self.assertFalse(block_device.is_read_only(device))

    def test_read_only_device_is_not_taken_for_a_stopped_one(self):
        device = self.device()
        block_device.make_read_only(device)
        self.assertFalse(self.writers.are_stopped(device))
        self.writers.resume(device)
        self.assertTrue(block_device.is_read_only(device))

    def test_device_that_is_gone_is_stopped(self):
        self.stop(f"{self.folder / 'none'}")
