# SPDX-License-Identifier: Apache-2.0
"""Removal of strays, with recorded commands."""

import unittest
from unittest import mock

from attachd import exception
from attachd.agent import stray_removal
from attachd.agent.connectors.brick import BrickConnector
from attachd.agent.connectors.qemu import loop_devices, volume_device
from attachd.agent.journal import Journal
from attachd.agent.mount import open_handles
from attachd.agent.strays import ExportedDevice, Kind
from attachd.linux import block_device, commands, device_nodes
from attachd.linux.device_nodes import DeviceNode
from attachd.tests.fixtures import lifetime

IQN = "iqn.2026-01.internal.attachd:volume-1a2b3c4d-5e6f-4071-8293-a4b5c6d7e8f9"


class RemovalTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.journal = Journal(lifetime.temp_dir(self))
        self.missing = self.patch(commands, "list_missing", return_value=[])
        self.run = self.patch(commands, "run")
        self.exists = self.patch(block_device, "exists", return_value=True)
        self.flush = self.patch(block_device, "flush")
        self.users = self.patch(open_handles, "find_users", return_value="")
        self.disconnect = self.patch(BrickConnector, "disconnect")

    def patch(self, owner, name, **settings):
        return self.enterContext(mock.patch.object(owner, name, autospec=True, **settings))

    def remove(self, device, **options):
        with self.journal.volume_lock("v"):
            stray_removal.remove(self.journal, device, **options)

    def test_device_in_use_stays_and_users_are_named(self):
        self.users.return_value = "process 7 (dd: open /dev/rbd0)"
        device = ExportedDevice(Kind.RBD, "volumes/attachd-v", ("/dev/rbd0",))
        with self.assertRaisesRegex(exception.HostError, "In use: /dev/rbd0 by process 7"):
            self.remove(device)
        self.run.assert_not_called()

    def test_device_without_node_counts_as_used(self):
        device = ExportedDevice(Kind.NVME, "nqn.x", ("/dev/nvme0n1",))
        with mock.patch.object(block_device, "exists", return_value=False):
            self.assertIn("/dev/nvme0n1, which is missing", stray_removal.find_users(device))

    def test_missing_command_is_named(self):
        self.missing.return_value = ["rbd (package ceph-common)"]
        with self.assertRaisesRegex(exception.HostError, "ceph-common"):
            self.remove(ExportedDevice(Kind.RBD, "volumes/attachd-v", ()))

    def test_iscsi_is_left_to_os_brick_with_all_paths(self):
        paths = (("10.0.0.1:3260", 1), ("10.0.0.2:3260", 1))
        self.remove(ExportedDevice(Kind.ISCSI, IQN, ("/dev/dm-1",), paths=paths))
        _self, info, options, device = self.disconnect.call_args.args
        self.assertEqual(["10.0.0.1:3260", "10.0.0.2:3260"], info["target_portals"])
        self.assertTrue(options.multipath)
        self.assertEqual("/dev/dm-1", device.path)
        self.assertEqual({"force": False}, self.disconnect.call_args.kwargs)

    def test_iscsi_session_without_disk_is_ended(self):
        self.remove(ExportedDevice(Kind.ISCSI, IQN, (), paths=(("10.0.0.1:3260", 0),)))
        _self, info, options, device = self.disconnect.call_args.args
        self.assertEqual((IQN, None, False), (info["target_iqn"], device, options.multipath))

    def nvme(self, state):
        """Connect to two subsystems; return the directories of their controllers."""
        root = lifetime.temp_dir(self)
        for name, nqn in (("nvme0", "nqn.x"), ("nvme1", "nqn.y")):
            (root / name).mkdir()
            (root / name / "subsysnqn").write_text(f"{nqn}\n")
            (root / name / "state").write_text(f"{state}\n")
        (root / "block").mkdir()
        (root / "block/device").symlink_to(root / "nvme0")
        self.enterContext(mock.patch.object(stray_removal, "_NVME", root))
        node = mock.Mock(spec_set=DeviceNode, sysfs_dir=root / "block")
        node.is_cut_off.side_effect = lambda: DeviceNode.is_cut_off(node)
        self.patch(device_nodes, "stat_device", return_value=node)
        return root

    def test_nvme_is_flushed_and_its_controllers_deleted(self):
        root = self.nvme("live")
        self.remove(ExportedDevice(Kind.NVME, "nqn.x", ("/dev/nvme0n1",)))
        self.flush.assert_called_once_with("/dev/nvme0n1")
        self.assertEqual([root / "nvme0/delete_controller"], [*root.glob("*/delete_controller")])

    def test_nvme_without_target_is_removed_by_force_alone_and_not_opened(self):
        root, device = self.nvme("connecting"), ExportedDevice(Kind.NVME, "nqn.x", ("/dev/n",))
        with self.assertRaisesRegex(exception.HostError, "nqn.x reaches its target"):
            self.remove(device)
        self.remove(device, force=True)
        self.flush.assert_not_called()
        self.assertEqual("1", (root / "nvme0/delete_controller").read_text())

    def test_nvme_without_node_is_removed_by_force(self):
        root = self.nvme("live")
        self.exists.return_value = False
        device_nodes.stat_device.side_effect = FileNotFoundError
        self.flush.side_effect = exception.HostError(reason="missing")
        self.remove(ExportedDevice(Kind.NVME, "nqn.x", ("/dev/n",)), force=True)
        self.assertEqual("1", (root / "nvme0/delete_controller").read_text())

    def test_nvme_controller_that_cannot_be_deleted_is_named(self):
        root = self.nvme("live")
        (root / "nvme0/delete_controller").mkdir()
        with self.assertRaisesRegex(exception.HostError, "nvme0 cannot be deleted"):
            self.remove(ExportedDevice(Kind.NVME, "nqn.x", ("/dev/n",)))

    def test_rbd_devices_are_flushed_and_unmapped(self):
        device = ExportedDevice(Kind.RBD, "volumes/attachd-v", ("/dev/rbd0", "/dev/rbd1"))
        self.remove(device)
        unmaps = [mock.call("rbd", "device", "unmap", path) for path in device.devices]
        self.assertEqual(unmaps, self.run.mock_calls)
        self.assertEqual([mock.call(path) for path in device.devices], self.flush.mock_calls)

    def test_failed_flush_keeps_device_unless_forced(self):
        self.flush.side_effect = exception.HostError(reason="lost")
        self.users.return_value = "process 7"
        device = ExportedDevice(Kind.RBD, "volumes/attachd-v", ("/dev/rbd0",))
        with self.assertRaises(exception.HostError):
            self.remove(device)
        self.run.assert_not_called()
        self.remove(device, force=True)
        self.run.assert_called_once_with(
            "rbd", "device", "unmap", "--options", "force", "/dev/rbd0"
        )

    def test_multipath_device_without_paths_is_removed_by_uuid(self):
        self.remove(ExportedDevice(Kind.MULTIPATH, "mpath-36", ("/dev/dm-0",)))
        self.run.assert_called_once_with("dmsetup", "remove", "--retry", "--uuid", "mpath-36")
        self.flush.assert_not_called()

    def test_loop_device_is_flushed_and_detached(self):
        detach = self.patch(loop_devices, "detach")
        self.remove(ExportedDevice(Kind.LOOP, "/x/exports/v/a (deleted)", ("/dev/loop3",)))
        self.flush.assert_called_once_with("/dev/loop3")
        self.assertEqual("/x/exports/v/a (deleted)", f"{detach.call_args.args[0]}")

    def test_user_space_device_is_removed_with_directory(self):
        delete = self.patch(volume_device, "delete")
        directory = self.journal.state_path / "devices" / "a"
        directory.mkdir(parents=True)
        self.remove(ExportedDevice(Kind.USER_SPACE, f"{directory}", ()), force=True)
        self.assertEqual({"force": True}, delete.call_args.kwargs)
        self.assertFalse(directory.exists())
