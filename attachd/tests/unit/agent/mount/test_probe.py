# SPDX-License-Identifier: Apache-2.0
"""Search for data on devices; sparse files stand for devices."""

import errno
import os
from pathlib import Path
import subprocess
import unittest
from unittest import mock

from attachd import exception
from attachd.agent.mount import probe
from attachd.tests.fixtures import lifetime, loop_devices, requirements

_GIB, _MIB, _KIB = 2**30, 2**20, 2**10
_BETWEEN = 2 * _GIB + 5000
"""A place in a large device that is near no end, and at no round number."""


class ContentsTest(unittest.TestCase):
    """Files with and without data."""

    def setUp(self):
        super().setUp()
        requirements.require_tool(self, "blkid")
        self.folder = lifetime.temp_dir(self)
        self.progress = []

    def test_device_of_zeros_is_empty(self):
        for size in (512, 64 * _KIB, 3 * _MIB + 512, 5 * _GIB):
            probe.check_empty(self.device(size), self.progress.append)

    def test_small_device_with_one_byte_has_data(self):
        size = 3 * _MIB + 512
        for place in (0, 511, 512, _MIB, 3 * _MIB - 1, size - 1):
            self.refuses(self.device(size, place))

    def test_large_device_with_few_bytes_has_data(self):
        size = 5 * _GIB + 512
        for place in (0, _GIB - 1, _BETWEEN, size - 1):
            self.refuses(self.device(size, place))

    def test_holes_are_not_read(self):
        device = self.device(2**40)
        with Path(device).open("r+b") as file:
            file.seek(2**39)
            file.write(bytes(3 * _MIB))
        with mock.patch.object(probe, "_read", side_effect=probe._read) as read:
            probe.check_empty(device, self.progress.append)
        read_bytes = sum(call.args[3] for call in read.call_args_list)
        self.assertLessEqual(3 * _MIB, read_bytes)
        self.assertGreater(10 * _MIB, read_bytes)

    def test_device_without_list_of_holes_is_read_whole(self):
        device, place = self.device(40 * _MIB), 35 * _MIB + 5000
        real = os.lseek

        def lseek(file, offset, whence):
            if whence == os.SEEK_DATA:
                raise OSError(errno.EINVAL, "Invalid argument")
            return real(file, offset, whence)

        with mock.patch.object(probe.os, "lseek", lseek):
            with mock.patch.object(probe, "_read", side_effect=probe._read) as read:
                probe.check_empty(device, self.progress.append)
            self.assertLessEqual(40, read.call_count)
            self.refuses(self.device(40 * _MIB, place))

    def test_check_empty_reports_work_left(self):
        device = self.device(8 * _GIB)
        with Path(device).open("r+b") as file:
            file.write(bytes(4 * _MIB))
        with mock.patch.object(probe.time, "monotonic", side_effect=range(0, 1000, 60)):
            probe.check_empty(device, self.progress.append)
        searching = f"Searching for data on {device}"
        self.assertIn(f"{searching}: 25% of 0.0 GiB, 0:03:00 left", self.progress)
        self.assertIn(f"{searching}: 100% of 0.0 GiB, 0:00:00 left", self.progress)

    def test_detect_names_signature(self):
        swap = self.device(_MIB)
        subprocess.run(
            [requirements.require_tool(self, "mkswap"), swap], check=True, capture_output=True
        )
        self.assertEqual(probe.Contents(None, "", "swap space"), probe.detect(swap))
        with self.assertRaisesRegex(exception.HostError, "carries swap space: no file system"):
            probe.check_empty(swap, self.progress.append)
        self.assertIsNone(probe.detect(self.device(_MIB)))

    def test_parse_contents_describes_blkid_values(self):
        result = {
            "a partition table (gpt)": {"PTTYPE": "gpt"},
            "an encrypted disk (crypto_LUKS)": {"TYPE": "crypto_LUKS", "USAGE": "crypto"},
            "a physical volume of LVM (LVM2_member)": {"TYPE": "LVM2_member", "USAGE": "raid"},
            "a member of a RAID (linux_raid_member)": {"TYPE": "linux_raid_member"},
            "raid of type isw_raid_member": {"TYPE": "isw_raid_member", "USAGE": "raid"},
        }
        for name, found in result.items():
            self.assertEqual(probe.Contents(None, "", name), probe._parse_contents(found))
        found = probe._parse_contents({"TYPE": "xfs", "USAGE": "filesystem", "UUID": "u"})
        self.assertEqual(probe.Contents("xfs", "u", "xfs"), found)

    def test_unreadable_device_is_not_empty(self):
        for device in ("/no/such/device", str(self.folder)):
            for ask in (probe.detect, lambda item: probe.check_empty(item, print)):
                with self.assertRaisesRegex(exception.HostError, "cannot be read"):
                    ask(device)

    def test_erase_makes_device_empty_again(self):
        large = 5 * _GIB
        for size, places in ((3 * _MIB, (0, _MIB)), (large, (5, _BETWEEN, large - 1))):
            device = self.device(size, *places)
            probe.erase(device, self.progress.append)
            probe.check_empty(device, self.progress.append)
            self.assertEqual(size, Path(device).stat().st_size)

    def refuses(self, device):
        with self.assertRaisesRegex(exception.HostError, "carries data .at byte"):
            probe.check_empty(device, self.progress.append)

    def device(self, size, *places):
        path = self.folder / "device"
        with path.open("wb") as file:
            file.truncate(size)
            for place in places:
                file.seek(place)
                file.write(b"\1")
        return str(path)


class LoopDevicesTest(loop_devices.LoopDeviceCase):
    """Loop devices over sparse files of more than 4 GiB."""

    def setUp(self):
        super().setUp()
        self.loop = self.device(5 * _GIB)

    def check(self):
        with mock.patch.object(probe, "_read", side_effect=probe._read) as read:
            probe.check_empty(self.loop, lambda _text: None)
        return sum(call.args[3] for call in read.call_args_list)

    def test_holes_below_loop_device_are_not_read(self):
        self.assertGreater(_MIB, self.check())

    def test_unwritten_bytes_of_loop_device_are_data(self):
        with Path(self.loop).open("r+b") as device:
            device.seek(_BETWEEN)
            device.write(b"data")
            device.flush()  # into the cache of the device, not into the file below
            with self.assertRaisesRegex(exception.HostError, "carries data .at byte"):
                self.check()

    def test_holes_of_other_file_at_the_path_are_not_used(self):
        self.loop = self.device(32 * _MIB)
        other = self.folder / "other"
        with other.open("wb") as file:
            file.truncate(32 * _MIB)
        with Path(self.loop).open("r+b") as device:
            device.seek(17 * _MIB + 5000)
            device.write(b"data")
        with (
            mock.patch.object(probe.device_nodes, "read_line", return_value=f"{other}"),
            self.assertRaisesRegex(exception.HostError, "carries data .at byte"),
        ):
            self.check()
