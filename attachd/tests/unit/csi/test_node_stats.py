# SPDX-License-Identifier: Apache-2.0
"""Usage and condition of volumes whose device, agent or file system may be gone."""

import threading
import unittest
from unittest import mock

from attachd.agent.connectors.base import Device
from attachd.agent.journal import Entry
from attachd.agent.local_socket import CallError, Code
from attachd.agent.staging import Publication, Staging
from attachd.csi import csi_pb2, node_stats
from attachd.csi.node_stats import StatsReader
from attachd.linux import mountinfo
from attachd.linux.mountinfo import Mount
from attachd.node.agent_client import AgentClient, DeviceInfo
from attachd.tests.fixtures.lifetime import temp_dir
from attachd.tests.wait import TIMEOUT


class StatsReaderTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = temp_dir(self)
        self.agent = mock.create_autospec(AgentClient, instance=True)
        self.agent.get_device.return_value = DeviceInfo("v", "/dev/sdx", "rw", 1, None)
        self.reader = StatsReader(self.agent)
        self.mount(read_only=False)

    def mount(self, *, read_only):
        found = Mount(1, 0, 5, f"{self.folder}", read_only, "ext4", "/dev/sdx")
        self.enterContext(mock.patch.object(mountinfo, "find_at", return_value=found))

    def read(self, fs_type="ext4", **values):
        staging = Staging(f"{self.folder}", fs_type, **values)
        entry = Entry("v", attachment_id="a", device=Device("/dev/sdx", {}), staging=staging)
        return self.reader.read(entry, f"{self.folder}")

    def test_file_system_in_order_has_usage(self):
        usage, problem = self.read()
        self.assertIsNone(problem)
        units = [one.unit for one in usage]
        self.assertEqual([csi_pb2.VolumeUsage.BYTES, csi_pb2.VolumeUsage.INODES], units)
        self.assertEqual(usage[0].total, usage[0].total & ~511)
        self.assertGreaterEqual(usage[0].total, usage[0].used + usage[0].available)

    def test_file_system_that_is_not_mounted_is_abnormal(self):
        with mock.patch.object(mountinfo, "find_at", return_value=None):
            self.assertEqual(([], f"The volume is not mounted at {self.folder}."), self.read())

    def test_file_system_that_became_read_only_is_abnormal(self):
        self.mount(read_only=True)
        self.assertIn("read-only after an error", self.read().problem)
        self.assertIsNone(self.read(read_only=True).problem)
        publication = Publication(f"{self.folder}", read_only=True)
        self.assertIsNone(self.read(publications=(publication,)).problem)

    def test_device_with_error_or_without_attachment_is_abnormal(self):
        self.agent.get_device.return_value = DeviceInfo("v", "/dev/sdx", "rw", 1, "why")
        self.assertEqual("why", self.read().problem)
        self.agent.get_device.side_effect = CallError(Code.NOT_FOUND, "gone")
        self.assertEqual("gone", self.read().problem)

    def test_condition_without_agent_is_not_known(self):
        self.agent.get_device.side_effect = CallError(Code.UNAVAILABLE, "away")
        self.assertIsNone(self.read().problem)

    def test_device_of_block_volume_has_a_size(self):
        with mock.patch.object(node_stats.block_device, "size", return_value=7):
            (usage,), problem = self.read(None)
        self.assertEqual((7, None), (usage.total, problem))

    def test_missing_device_of_block_volume_is_abnormal(self):
        self.assertIn("/dev/sdx", self.read(None).problem)

    def test_file_system_that_hangs_is_abnormal_and_asked_once(self):
        released, asked = threading.Event(), []
        self.addCleanup(released.set)

        def hang(path):
            asked.append(path)
            released.wait(TIMEOUT)
            raise OSError(5, "Input/output error")

        self.enterContext(mock.patch.object(node_stats, "_TIMEOUT", 0.1))
        with mock.patch("os.statvfs", hang):
            for _ in range(2):
                self.assertIn("does not answer", self.read().problem)
        self.assertEqual([f"{self.folder}"], asked)

    def test_file_system_with_error_is_abnormal(self):
        with mock.patch("os.statvfs", side_effect=OSError(5, "Input/output error")):
            self.assertIn("Input/output error", self.read().problem)
