# SPDX-License-Identifier: Apache-2.0
"""Devices that exist already."""

from pathlib import Path

import fixtures

from attachd import exception
from attachd.agent.connectors import local
from attachd.agent.connectors.base import Device


class LocalTest(fixtures.TestWithFixtures):
    """Plain files; devices are in functional/test_host_connectors.py."""

    def setUp(self):
        super().setUp()
        self.path = Path(self.useFixture(fixtures.TempDir()).path) / "volume"
        self.path.write_bytes(bytes(4096))
        self.info = {
            "driver_volume_type": "local",
            "device_path": f"{self.path}",
            "access_mode": "rw",
        }

    def test_is_local_only_for_local_protocol(self):
        self.assertTrue(local.is_local(self.info))
        for other in ({}, {"driver_volume_type": "iscsi"}):
            self.assertFalse(local.is_local(other))

    def test_connect_returns_file_as_device(self):
        device = local.connect(self.info)
        self.assertEqual(f"{self.path}", device.path)
        self.assertTrue(local.is_present(self.info, device))
        self.assertEqual(4096, local.extend(self.info))
        local.disconnect(self.info)
        self.assertFalse(local.is_present(self.info, Device("/dev/null", {})))
        self.path.unlink()
        local.disconnect(self.info)
        self.assertFalse(local.is_present(self.info, device))
        with self.assertRaisesRegex(exception.HostError, "does not exist on this host"):
            local.connect(self.info)

    def test_connect_to_file_of_folder_follows_no_link(self):
        folder = self.path.parent / "folder"
        (folder / "exports").mkdir(parents=True)
        file = folder / "exports" / "volume"
        info = self.info | {"device_path": f"{file}", "folder": f"{folder}"}
        with self.assertRaisesRegex(exception.HostError, "does not exist on this host"):
            local.connect(info)
        file.hardlink_to(self.path)
        self.assertEqual(f"{file}", local.connect(info).path)
        for target in (self.path, "/dev/null"):
            file.unlink()
            file.symlink_to(target)
            with self.assertRaisesRegex(exception.HostError, "symbolic link.* administrator"):
                local.connect(info)
        with self.assertRaisesRegex(exception.HostError, "cannot be used"):
            local.connect(info | {"device_path": f"{self.path}"})

    def test_connect_read_only_file_raises(self):
        with self.assertRaisesRegex(exception.HostError, "accepts writes"):
            local.connect(self.info | {"access_mode": "ro"})

    def test_connect_without_device_path_raises(self):
        for wrong in ({}, {"device_path": None}, {"device_path": ""}):
            with self.assertRaisesRegex(exception.HostError, "names no device_path"):
                local.connect({"driver_volume_type": "local", **wrong})

    def test_disconnect_with_failed_flush_needs_force(self):
        def fail(path):
            raise exception.HostError(reason="input/output error")

        with fixtures.MonkeyPatch("attachd.linux.block_device.flush", fail):
            self.assertRaises(exception.HostError, local.disconnect, self.info)
            local.disconnect(self.info, force=True)
