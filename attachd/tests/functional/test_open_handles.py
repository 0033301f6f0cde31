# SPDX-License-Identifier: Apache-2.0
"""Tests of finding the users of a device, by any path and in any namespace."""

import os
from pathlib import Path
import stat
from unittest import mock

from attachd import exception
from attachd.agent.mount import mounts, open_handles
from attachd.linux import device_nodes
from attachd.tests.fixtures import requirements
from attachd.tests.fixtures.loop_devices import MIB, LoopDeviceCase, attach
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until


@full_only("hosts")
class UsersTest(LoopDeviceCase):
    """Each kind of user, and then none."""

    def test_open_handles_of_unused_device_are_empty(self):
        device = self.device()
        open_handles.check_unused(device)
        open_handles.check_unused(device)

    def test_open_handles_name_process_with_open_device(self):
        device = self.device()
        other = self.folder / "another name"
        os.mknod(other, stat.S_IFBLK | 0o600, Path(device).stat().st_rdev)
        for path in (device, other):
            process = self.process("sh", "-c", f"exec 3<'{path}'; echo ready; exec sleep 600")
            self.used(device, rf"process {process.pid} \(\w+: open {path}\)")
            self.end(process)
            open_handles.check_unused(device)

    def test_open_handles_name_process_with_mapped_device(self):
        device = self.device()
        process = self.mapping(device, "O_RDONLY")
        self.used(device, rf"process {process.pid} \(.*: mapped {device}\)")
        self.end(process)
        open_handles.check_unused(device)

    def test_open_handles_name_mount(self):
        device, folder = self.formatted(), self.place()
        mounts.mount(device, folder, mode="rw")
        self.used(device, f"the mount of {device} at {folder}")
        mounts.unmount(folder)
        open_handles.check_unused(device)

    def test_open_handles_name_mount_in_other_namespace(self):
        device, folder = self.formatted(), self.place()
        Path(folder).mkdir()
        requirements.require_mount_namespaces(self)
        unshare = requirements.require_tool(self, "unshare")
        script = f"mount {device} {folder} && echo ready && exec sleep 600"
        process = self.process(unshare, "--mount", "sh", "-c", script)
        self.assertFalse(mounts.is_mounted(device, folder))
        result = rf"the mount of {device} at {folder} of process {process.pid} \(\w+\)"
        self.used(device, result)
        self.end(process)
        self.await_unused(device)

    def test_open_handles_name_loop_device(self):
        device = self.device()
        self.addCleanup(open_handles.check_unused, device)
        loop = attach(device)
        self.addCleanup(self.run_tool, "losetup", "--detach", loop)
        self.used(device, f"{loop} on top of {device}")

    def test_open_handles_name_swap(self):
        for tool in ("mkswap", "swapon", "swapoff"):
            requirements.require_tool(self, tool)
        device = self.device()
        self.run_tool("mkswap", device)
        self.addCleanup(open_handles.check_unused, device)
        self.run_tool("swapon", "--priority", "0", device)
        self.addCleanup(self.run_tool, "swapoff", device)
        self.used(device, f"swap on {device}")

    def test_open_handles_include_partitions(self):
        # Not each kernel reads partition tables, but partitions can be added.
        device, folder = self.device(32 * MIB, "--partscan"), self.place()
        self.run_tool(requirements.require_tool(self, "addpart"), device, "1", "2048", "40960")
        part = f"{device}p1"
        self.await_(Path(part).is_block_device)
        self.run_tool("mkfs.ext4", "-q", part)
        self.await_unused(device)
        mounts.mount(part, folder, mode="rw")
        self.used(device, f"the mount of {part} at {folder}")
        mounts.unmount(folder)
        with Path(part).open("rb"):
            self.used(device, rf"process {os.getpid()} \(.*: open {part}\)")
        open_handles.check_unused(device)

    def test_open_handles_name_users_of_removed_device(self):
        device, folder = self.formatted(), self.place()
        numbers = open_handles.list_numbers(device)
        mounts.mount(device, folder, mode="rw")
        process = self.process("sh", "-c", f"exec 3<'{folder}'; echo ready; exec sleep 600")
        open_handles.check_removed_unused(device, numbers)  # It exists.
        # As if the kernel had removed it, which it does with disks of SCSI only.
        self.enterContext(mock.patch.object(device_nodes, "_NUMBERS", self.folder))
        users = f"the mount of .* at {folder}, .*process .* open {folder}"
        self.removed_used(device, numbers, users)
        mounts.cut(folder, device)
        self.removed_used(device, numbers, rf"process {process.pid} \(\w+: open /\)")
        self.end(process)
        open_handles.check_removed_unused(device, numbers)

    def removed_used(self, device, numbers, result):
        with self.assertRaisesRegex(exception.DeviceBusy, f"{device} is in use by {result}"):
            open_handles.check_removed_unused(device, numbers)

    def used(self, device, result):
        with self.assertRaisesRegex(exception.DeviceBusy, f"{device} is in use by {result}"):
            open_handles.check_unused(device)

    def await_unused(self, device):
        def unused():
            try:
                open_handles.check_unused(device)
            except exception.DeviceBusy:
                return False
            return True

        self.await_(unused)

    def await_(self, condition):
        wait_until(condition)
