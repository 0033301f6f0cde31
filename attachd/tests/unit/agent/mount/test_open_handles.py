# SPDX-License-Identifier: Apache-2.0
"""Texts about users of devices; functional/test_open_handles.py has real devices and mounts."""

import ctypes
import mmap
import os
from pathlib import Path
import tempfile
import unittest
from unittest import mock

from attachd import exception
from attachd.agent.mount import open_handles
from attachd.linux import device_nodes, mountinfo
from attachd.tests.fixtures import requirements

_MAP_FIXED = 0x10
"""As in Linux, include/uapi/asm-generic/mman-common.h."""


class UsersTest(unittest.TestCase):
    """Users that are visible without the rights of root."""

    def test_missing_device_is_unused(self):
        open_handles.check_unused("/dev/no-such-device")

    def test_check_unused_of_directory_raises(self):
        with self.assertRaisesRegex(exception.HostError, "is no block device"):
            open_handles.check_unused("/proc")

    def test_open_plain_file_is_in_use(self):
        open_handles.check_unused(__file__)
        with (
            Path(__file__).open(),
            self.assertRaisesRegex(exception.DeviceBusy, f"process {os.getpid()} "),
        ):
            open_handles.check_unused(__file__)

    def test_list_uses_returns_files_of_process(self):
        with tempfile.NamedTemporaryFile() as file:
            local = [use for use in open_handles._list_uses() if use.process == f"{os.getpid()}"]
            name = Path("/proc/self/comm").read_text().strip()
            expected = f"process {os.getpid()} ({name}: open {file.name})"
            self.assertIn(expected, [item.describe() for item in local])
            whats = {item.what for item in local}
            self.assertLessEqual({"working directory", "root", "program", "open"}, whats)

    def test_shared_mappings_are_found_with_their_mode(self):
        with tempfile.NamedTemporaryFile() as file:
            file.truncate(4096)
            node = device_nodes.stat_device(file.name)
            self.assertEqual([], open_handles.list_shared_mappings([node]))
            with (
                Path(file.name).open("rb") as reading,
                Path(file.name).open("r+b") as writing,
                mmap.mmap(reading.fileno(), 0, prot=mmap.PROT_READ),
                mmap.mmap(writing.fileno(), 0, prot=mmap.PROT_READ),
            ):
                uses = open_handles.list_shared_mappings([node])
                self.assertEqual([f"{os.getpid()}"] * 2, [use.process for use in uses])
                writable = sorted(use.is_open_for_writing() for use in uses)
                self.assertEqual([False, True], writable)
            self.assertFalse(any(use.is_open_for_writing() for use in uses))  # Not mapped now.

    def test_mapping_at_the_addresses_of_a_former_one_has_its_own_mode(self):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        with tempfile.NamedTemporaryFile() as file:
            file.truncate(mmap.PAGESIZE)
            node, address, seen = device_nodes.stat_device(file.name), None, []
            for mode in (os.O_RDONLY, os.O_RDWR, os.O_RDONLY):
                opened = os.open(file.name, mode)
                flags = mmap.MAP_SHARED | (_MAP_FIXED if address else 0)
                address = libc.mmap(address, mmap.PAGESIZE, mmap.PROT_READ, flags, opened, 0)
                (use,) = open_handles.list_shared_mappings([node])
                seen.append(use.is_open_for_writing())
                libc.munmap(address, mmap.PAGESIZE)
                os.close(opened)
            self.assertEqual([False, True, False], seen)

    def test_list_mount_users_names_mounts_on_top(self):
        requirements.require_mount_namespaces(self)
        found = open_handles.list_mount_users(mountinfo.find_at("/"))
        self.assertTrue([item for item in found if item.endswith(" at /proc")], found)
        self.assertTrue([item for item in found if f"process {os.getpid()} (" in item], found)

    def test_devices_on_top_are_read_from_sysfs(self):
        # Neither device mapper nor MD is in each kernel that tests run on.
        with tempfile.TemporaryDirectory() as folder:
            holders = Path(folder) / "8:16" / "holders"
            for name, label in (("dm-3", "group-volume"), ("md0", None)):
                (holders / name / "dm").mkdir(parents=True)
                if label:
                    (holders / name / "dm" / "name").write_text(f"{label}\n")
            device = device_nodes.DeviceNode("/dev/sdb", os.makedev(8, 16), None)
            with mock.patch.object(device_nodes, "_NUMBERS", Path(folder)):
                found = open_handles._devices_on_top([device])
        expected = ["/dev/dm-3 (group-volume) on top of /dev/sdb", "/dev/md0 on top of /dev/sdb"]
        self.assertEqual(expected, found)

    def test_format_users_limits_and_counts(self):
        result = open_handles.format_users([f"process {number}" for number in range(30)])
        self.assertTrue(result.endswith("process 11, 18 more"), result)
        self.assertEqual("a, b", open_handles.format_users(["a", "b", "a"]))
