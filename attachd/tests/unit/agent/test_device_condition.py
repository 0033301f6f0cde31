# SPDX-License-Identifier: Apache-2.0
"""Paths and errors of devices are read from sysfs, here from trees like those of real kernels."""

import unittest

from attachd.agent.device_condition import DeviceCondition, DeviceObserver
from attachd.tests.fixtures.lifetime import temp_dir

NONE = DeviceCondition([], None)


def active(*names):
    return [{"name": name, "state": "active"} for name in names]


class DeviceConditionTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.sys = temp_dir(self)
        self.observer = DeviceObserver(self.sys)

    def write(self, path, text):
        file = self.sys / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def link(self, path, target):
        link = self.sys / path
        link.parent.mkdir(parents=True, exist_ok=True)
        (self.sys / target).mkdir(parents=True, exist_ok=True)
        link.symlink_to(self.sys / target)

    def disk(self, name, state="running", errors=0):
        """Make a SCSI disk, or change the one that there is."""
        scsi = f"devices/scsi/{name}"
        if not (self.sys / f"class/block/{name}").exists():
            self.link(f"class/block/{name}/device", scsi)
        self.write(f"{scsi}/state", state)
        self.write(f"{scsi}/ioerr_cnt", hex(errors))

    def multipath(self, *names):
        for name in names:
            self.link(f"class/block/dm-0/slaves/{name}", f"class/block/{name}")

    def read(self, device):
        return self.observer.read(f"/dev/{device}")

    def test_scsi_disk_is_its_only_path(self):
        self.disk("sdb")
        self.assertEqual(DeviceCondition(active("sdb"), None), self.read("sdb"))

    def test_multipath_device_has_the_states_of_its_disks(self):
        self.disk("sdb")
        self.disk("sdc", state="transport-offline")
        self.multipath("sdb", "sdc")
        paths = [*active("sdb"), {"name": "sdc", "state": "failed"}]
        self.assertEqual(DeviceCondition(paths, "sdc is transport-offline"), self.read("dm-0"))

    def test_blocked_disk_has_failed(self):
        self.disk("sdb", state="blocked")
        (path,) = self.read("sdb").paths
        self.assertEqual("failed", path["state"])

    def test_failed_requests_count_from_the_first_report_on(self):
        self.disk("sdb", errors=3)
        self.assertIsNone(self.read("sdb").last_io_error)
        self.disk("sdb", errors=18)
        for _ in range(2):
            said = self.read("sdb").last_io_error
            self.assertRegex(said, r"^sdb: 15 failed requests, the last \d{4}-\d\d-\d\d .* UTC$")

    def test_errors_of_former_disk_of_the_same_name_do_not_count(self):
        self.disk("sdb", errors=18)
        self.read("sdb")
        self.disk("sdb", errors=2)
        self.assertIsNone(self.read("sdb").last_io_error)

    def test_nvme_disk_has_the_controllers_of_its_subsystem_as_paths(self):
        for name, state in (("nvme1", "live"), ("nvme2", "connecting")):
            self.write(f"class/nvme/{name}/state", state)
            self.link(f"devices/nvme-subsystem/{name}", f"class/nvme/{name}")
        self.link("devices/nvme-subsystem/nvme1n1", "class/block/nvme1n1")
        self.link("class/block/nvme1n1/device", "devices/nvme-subsystem")
        paths = [*active("nvme1"), {"name": "nvme2", "state": "failed"}]
        self.assertEqual(DeviceCondition(paths, "nvme2 is connecting"), self.read("nvme1n1"))

    def test_nvme_disk_without_subsystem_has_its_controller_as_path(self):
        self.write("class/nvme/nvme1/state", "live")
        self.link("class/block/nvme1n1/device", "class/nvme/nvme1")
        self.assertEqual(DeviceCondition(active("nvme1"), None), self.read("nvme1n1"))

    def test_loop_device_has_no_paths(self):
        self.write("class/block/loop7/loop/backing_file", "/image")
        self.assertEqual(NONE, self.read("loop7"))

    def test_missing_device_has_nothing(self):
        self.assertEqual(NONE, self.read("sdz"))

    def test_errors_of_file_system_are_shown(self):
        self.write("fs/ext4/loop7/errors_count", 0)
        self.write("fs/ext4/loop7/last_error_time", 0)
        self.assertEqual(NONE, self.read("loop7"))
        self.write("fs/ext4/loop7/errors_count", 2)
        self.write("fs/ext4/loop7/last_error_time", 1764000000)
        expected = "ext4: 2 errors, the last 2025-11-24 16:00:00 UTC"
        self.assertEqual(expected, self.read("loop7").last_io_error)

    def test_condition_of_many_broken_paths_fits_into_a_report(self):
        names = [f"sd{number}" for number in range(100)]
        for name in names:
            self.disk(name, state="offline")
        self.multipath(*names)
        found = self.read("dm-0")
        self.assertEqual((64, 255), (len(found.paths), len(found.last_io_error)))
