# SPDX-License-Identifier: Apache-2.0
"""NFS volumes by os-brick and loop devices.

The kernel of a test machine may have no NFS: a directory is mounted where os-brick would mount
the share, so that it finds the share mounted.
"""

import hashlib
import os
from pathlib import Path
import secrets
import uuid

import fixtures
from oslo_utils import importutils
import testtools

from attachd import exception
from attachd.agent import block_device
from attachd.agent.connectors import remote_file
from attachd.agent.connectors.base import Options
from attachd.agent.host import make_connector
from attachd.tests.fixtures import processes, requirements
from attachd.tests.fixtures.user_space_devices import list_orphans, read_at, write_at

MIB = 2**20
OPTIONS = Options()
SHARE = "storage-1:/volumes"


class PathTest(testtools.TestCase):
    def test_file_path_is_that_of_os_brick(self):
        remotefs = importutils.import_module("os_brick.remotefs.remotefs")
        base = "/var/lib/attachd-nowhere"
        client = remotefs.RemoteFsClient("nfs", None, nfs_mount_point_base=base)
        info = {"export": SHARE, "name": "exports/v/a", "mount_point_base": base}
        expected = f"{client.get_mount_point(SHARE)}/exports/v/a"
        self.assertEqual(expected, f"{remote_file.file_path(info)}")

    def test_file_path_without_keys_raises(self):
        for info in ({}, {"export": SHARE}):
            self.assertRaises(exception.HostError, remote_file.file_path, info)


class DeviceTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        requirements.share_mounts(self)
        requirements.require_device(self, "/dev/loop-control")
        self.folder = Path(self.useFixture(fixtures.TempDir()).path).resolve()
        digest = hashlib.md5(SHARE.encode(), usedforsecurity=False).hexdigest()
        mount_point = self.folder / "mnt" / digest
        mount_point.mkdir(parents=True)
        share = self.folder / "share"
        share.mkdir()
        processes.check_output(["mount", "--bind", f"{share}", f"{mount_point}"])
        self.addCleanup(processes.check_output, ["umount", f"{mount_point}"])
        self.file = share / "file"
        self.file.write_bytes(bytes(MIB))
        self.connector = make_connector("kernel", self.folder / "host")
        self.info = {
            "driver_volume_type": "nfs",
            "export": SHARE,
            "name": "file",
            "format": "raw",
            "options": "-o vers=4.2",
            "mount_point_base": f"{self.folder / 'mnt'}",
            "access_mode": "rw",
            "attachment_id": f"{uuid.uuid4()}",
        }
        self.addCleanup(self.disconnect, force=True)

    def disconnect(self, device=None, **options):
        self.connector.disconnect(self.info, OPTIONS, device, **options)

    def test_device_is_the_file_until_it_is_disconnected(self):
        data = secrets.token_bytes(4096)
        device = self.connector.connect(self.info, OPTIONS)
        self.assertEqual(device, self.connector.connect(self.info, OPTIONS))
        self.assertTrue(self.connector.is_present(self.info, device))
        self.assertEqual([device.path], self.connector.find_device_paths(self.info))
        write_at(device.path, 8192, data)
        for _ in range(2):
            self.disconnect(device)
            self.assertFalse(self.connector.is_present(self.info, device))
        self.assertEqual(data, read_at(self.file, 8192, 4096))
        self.assertEqual([], list_orphans(self.folder / "host"))

    def test_extended_device_has_size_of_file(self):
        device = self.connector.connect(self.info, OPTIONS)
        with self.file.open("r+b") as file:
            file.truncate(3 * MIB)
        self.assertEqual(3 * MIB, self.connector.extend(self.info, OPTIONS, device))
        self.disconnect(device)
        self.assertRaises(exception.HostError, self.connector.extend, self.info, OPTIONS, device)

    def test_read_only_device_refuses_writes(self):
        device = self.connector.connect(self.info, OPTIONS)
        self.info["access_mode"] = "ro"
        device = self.connector.connect(self.info, OPTIONS)
        self.assertRaises(OSError, write_at, device.path, 0, b"x" * 512)

    def test_stopped_writers_are_refused_until_connected_again(self):
        device = self.connector.connect(self.info, OPTIONS)
        file = os.open(device.path, os.O_RDWR)
        self.connector.stop_writers(self.info, OPTIONS, device)
        self.assertRaises(OSError, os.write, file, b"late" * 128)
        self.assertFalse(self.connector.is_present(self.info, device))
        for _ in range(2):
            error = self.assertRaises(
                exception.HostError, self.connector.connect, self.info, OPTIONS
            )
            self.assertIn(f"in use by process {os.getpid()}", f"{error}")
        os.close(file)
        device = self.connector.connect(self.info, OPTIONS)
        self.assertTrue(self.connector.is_present(self.info, device))
        write_at(device.path, 0, b"soon" * 128)
        self.connector.stop_writers(self.info, OPTIONS, None)
        self.disconnect(device)
        self.assertEqual(b"soon" * 128, read_at(self.file, 0, 512))
        self.assertFalse(block_device.is_read_only(device.path))

    def test_connect_to_revoked_file_is_refused(self):
        self.file.unlink()
        error = self.assertRaises(exception.HostError, self.connector.connect, self.info, OPTIONS)
        self.assertIn("no file", f"{error}")
        self.assertEqual([], self.connector.find_device_paths(self.info))

    def test_connect_to_other_format_is_refused(self):
        self.info["format"] = "qcow2"
        self.assertRaises(exception.HostError, self.connector.connect, self.info, OPTIONS)
