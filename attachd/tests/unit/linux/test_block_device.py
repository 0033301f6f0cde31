# SPDX-License-Identifier: Apache-2.0
"""Properties of block devices and files that the kernel reports."""

import errno
from pathlib import Path
import unittest
from unittest import mock

import fixtures

from attachd import exception
from attachd.agent.connectors.qemu import loop_devices
from attachd.linux import block_device, commands
from attachd.tests.fixtures import requirements
from attachd.tests.fixtures.lifetime import temp_dir


class FileTest(fixtures.TestWithFixtures):
    """Files and other paths."""

    def test_flush_and_check_written_of_file_succeed(self):
        path = self.useFixture(fixtures.TempDir()).path + "/file"
        self.assertFalse(block_device.exists(path))
        Path(path).write_bytes(bytes(700))
        self.assertTrue(block_device.exists(path))
        self.assertEqual(700, block_device.size(path))
        self.assertFalse(block_device.is_read_only(path))
        block_device.flush(path)

    def test_missing_device_raises(self):
        for call in (
            block_device.size,
            block_device.is_read_only,
            block_device.flush,
            block_device.check_written,
        ):
            with self.assertRaisesRegex(exception.HostError, "/dev/no-such"):
                call("/dev/no-such")
        self.assertFalse(block_device.exists("/dev/null"))


class HoldersTest(fixtures.TestWithFixtures):
    """Devices on top of a device, in a directory like the kernel's."""

    def test_parent_disk_of_multipath_path_is_multipath_device(self):
        folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MonkeyPatch("attachd.linux.block_device._BLOCK", folder))
        for disk, above, uuid in (("sdx", "dm-1", "mpath-3600"), ("sdy", "dm-2", "LVM-abc")):
            made = folder / disk / "holders" / above / "dm"
            made.mkdir(parents=True)
            (made / "uuid").write_text(f"{uuid}\n")
        for path, whole in (("sdx", "dm-1"), ("sdy", "sdy"), ("sdz", "sdz")):
            self.assertEqual(f"/dev/{whole}", block_device.parent_disk(f"/dev/{path}"))


class IdentityTest(fixtures.TestWithFixtures):
    """The identifiers of a disk, in a directory like the kernel's."""

    def test_identity_is_read_for_each_kind_of_disk(self):
        folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MonkeyPatch("attachd.linux.block_device._BLOCK", folder))
        for name, place in (("sdx", "device/wwid"), ("nvme0n1", "wwid"), ("dm-1", "dm/uuid")):
            file = folder / name / place
            file.parent.mkdir(parents=True)
            file.write_text(f"of-{name}\n")
            self.assertEqual(f"of-{name}", block_device.identity(f"/dev/{name}"))
        self.assertEqual("", block_device.identity("/dev/loop0"))


class DeviceTest(fixtures.TestWithFixtures):
    """A loop device."""

    def test_make_read_only_lets_device_refuse_writes(self):
        requirements.require_root(self)
        requirements.share_mounts(self)
        requirements.require_device(self, "/dev/loop-control")
        image = Path(self.useFixture(fixtures.TempDir()).path).resolve() / "image"
        image.write_bytes(bytes(2**20))
        path = loop_devices.attach(image, writable=True).path
        self.addCleanup(loop_devices.detach, image, lock=0)
        self.assertEqual(2**20, block_device.size(path))
        self.assertFalse(block_device.is_read_only(path))
        # The device would stay read-only with its next file.
        self.addCleanup(commands.run, "blockdev", "--setrw", path)
        block_device.make_read_only(path)
        self.assertTrue(block_device.is_read_only(path))
        block_device.make_read_only(path)
        self.assertRaises(OSError, Path(path).write_bytes, b"x")
        block_device.flush(path)
        block_device.check_written(path)
        self.assertEqual([], block_device.list_components(path))


class KernelState:
    """The state of a SCSI disk, with what the kernel refuses."""

    def __init__(self, state):
        self._state = state

    def read_text(self):
        return self._state

    def write_text(self, state):
        if not state.endswith("\n") or (self._state, state) == ("transport-offline", "offline\n"):
            raise OSError(errno.EINVAL, "Invalid argument")
        self._state = state.strip()


class DiscardTest(fixtures.TestWithFixtures):
    def test_can_discard_reads_limit_of_kernel(self):
        folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MonkeyPatch("attachd.linux.block_device._BLOCK", folder))
        limit = folder / "sdz" / "queue" / "discard_max_bytes"
        self.assertFalse(block_device.can_discard("/dev/sdz"))
        limit.parent.mkdir(parents=True)
        for text, expected in (("0\n", False), ("2147450880\n", True)):
            limit.write_text(text)
            self.assertIs(expected, block_device.can_discard("/dev/sdz"))


class OfflineTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = temp_dir(self)
        self.enterContext(mock.patch.object(block_device, "_BLOCK", self.folder))
        for name, directory in (("sda", "scsi_device"), ("nvme0n1", "nvme")):
            (self.folder / name / "device" / directory).mkdir(parents=True)
            (self.folder / name / "device" / "state").write_text("running\n")

    def test_scsi_disk_is_set_offline_as_the_kernel_takes_it(self):
        for before in ("running", "blocked", "transport-offline", "offline"):
            state = KernelState(before)
            with mock.patch.object(block_device, "_state_file", return_value=state):
                self.assertTrue(block_device.set_offline("/dev/sda"), before)
            self.assertEqual("offline", state.read_text())

    def test_scsi_disk_is_set_offline(self):
        self.assertFalse(block_device.is_offline("/dev/sda"))
        self.assertTrue(block_device.set_offline("/dev/sda"))
        self.assertTrue(block_device.is_offline("/dev/sda"))

    def test_other_device_is_not_touched(self):
        for name in ("nvme0n1", "loop0"):
            self.assertFalse(block_device.set_offline(f"/dev/{name}"))
            self.assertFalse(block_device.is_offline(f"/dev/{name}"))
        self.assertEqual("running\n", (self.folder / "nvme0n1/device/state").read_text())
