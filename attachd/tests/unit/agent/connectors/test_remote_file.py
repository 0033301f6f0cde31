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
from attachd.agent.connectors import remote_file
from attachd.agent.connectors.base import Options
from attachd.agent.host import make_connector
from attachd.drivers import loop
from attachd.linux import block_device
from attachd.tests.fixtures import hostile_names, loop_devices, requirements
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


class DeviceCase(testtools.TestCase):
    """A connector with a share, mounted where os-brick would mount it."""

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        requirements.share_mounts(self)
        requirements.require_device(self, "/dev/loop-control")
        self.folder = Path(self.useFixture(fixtures.TempDir()).path).resolve()
        digest = hashlib.md5(SHARE.encode(), usedforsecurity=False).hexdigest()
        self.mount_point = self.folder / "mnt" / digest
        self.mount_point.mkdir(parents=True)
        self.share = self.folder / "share"
        self.share.mkdir()
        hostile_names.bind(self, self.share, self.mount_point)
        self.file = self.share / "file"
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


class DeviceTest(DeviceCase):
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

    def test_device_over_a_renamed_file_is_present_until_it_is_disconnected(self):
        device = self.connector.connect(self.info, OPTIONS)
        self.file.rename(self.share / "other")
        self.assertTrue(self.connector.is_present(self.info, device))
        self.assertEqual([device.path], self.connector.find_device_paths(self.info))
        other = self.info | {"name": "other"}
        self.assertFalse(self.connector.is_present(other, device))
        self.disconnect(device)
        self.assertEqual([], loop.under(self.share))

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
        device = self.connector.connect(self.info, OPTIONS)
        self.assertFalse(block_device.is_read_only(device.path))
        self.disconnect(device)

    def test_connect_to_revoked_file_is_refused(self):
        self.file.unlink()
        error = self.assertRaises(exception.HostError, self.connector.connect, self.info, OPTIONS)
        self.assertIn("no file", f"{error}")
        self.assertEqual([], self.connector.find_device_paths(self.info))

    def test_connect_to_other_format_is_refused(self):
        self.info["format"] = "qcow2"
        self.assertRaises(exception.HostError, self.connector.connect, self.info, OPTIONS)


class HostileShareTest(DeviceCase):
    """Other hosts replace what has the name of the volume."""

    def setUp(self):
        super().setUp()
        self.secret = self.folder / "secret"
        self.secret.write_bytes(b"secret" + bytes(MIB - 6))
        self.before = hostile_names.snapshot(self.folder / "secret")

    def assert_refused(self, says):
        """Check that the volume is not connected, and that nothing is left of it."""
        for info in (self.info, {**self.info, "access_mode": "ro"}):
            error = self.assertRaises(exception.HostError, self.connector.connect, info, OPTIONS)
            self.assertRegex(f"{error}", says)
        self.assertEqual([], loop.under(self.folder))
        self.assertEqual([], list_orphans(self.folder / "host"))
        self.assertEqual([], list((self.folder / "host").glob("devices/*")))
        self.assertEqual(self.before, hostile_names.snapshot(self.secret))

    def test_only_regular_files_are_connected(self):
        for kind, make in hostile_names.KINDS.items():
            self.file.unlink()
            make(self.file, self.secret)
            self.assert_refused("a regular file is expected.*administrator of the storage")
            if kind == "directory":
                self.file.rmdir()
                self.file.touch()

    def test_folder_that_is_a_link_or_a_mount_is_not_entered(self):
        (self.folder / "outside").mkdir()
        (self.folder / "outside" / "file").hardlink_to(self.secret)
        self.before = hostile_names.snapshot(self.secret)
        self.info["name"] = "exports/file"
        (self.share / "exports").symlink_to(self.folder / "outside")
        self.assert_refused("symbolic link is in the way")
        (self.share / "exports").unlink()
        (self.share / "exports").mkdir()
        # Both are mounts of one directory: what is mounted later is on one of them alone.
        hostile_names.bind(self, self.folder / "outside", self.mount_point / "exports")
        self.assert_refused("Another file system is mounted")

    def test_name_out_of_the_share_is_refused(self):
        for name in (f"{self.secret}", "../../secret", "x/../../../secret"):
            self.info["name"] = name
            self.assert_refused("not in the share|outside")

    def test_file_swapped_for_a_link_is_never_the_device(self):
        """A host swaps names while another one connects."""
        results = set()
        with hostile_names.swapping(self.file, self.secret):
            for _ in range(60):
                try:
                    device = self.connector.connect(self.info, OPTIONS)
                except exception.HostError:
                    results.add("refused")
                    continue
                results.add("connected")
                self.assertEqual(bytes(6), read_at(device.path, 0, 6))
                self.assertEqual([], loop.find(self.secret))
                # The kernel has the name that the file has at that moment.
                self.disconnect(force=True)
                loop_devices.detach_under(self.folder)
        self.assertIn("connected", results)
        self.assertEqual(self.before, hostile_names.snapshot(self.secret))

    def test_file_replaced_while_connected_is_reported_and_device_stays_the_volume(self):
        for replace in (
            lambda: self.file.symlink_to(self.secret),
            lambda: self.file.hardlink_to(self.secret),
            lambda: self.file.write_bytes(bytes(4 * MIB)),
            lambda: os.mkfifo(self.file),
        ):
            device = self.connector.connect(self.info, OPTIONS)
            write_at(device.path, 0, b"own!" * 128)
            # As another host renames it: the kernel of this one keeps the name.
            (self.share / "aside").hardlink_to(self.file)
            self.file.unlink()
            replace()
            for call in (
                lambda: self.connector.connect(self.info, OPTIONS),
                lambda found=device: self.connector.extend(self.info, OPTIONS, found),
            ):
                error = self.assertRaises(exception.HostError, call)
                self.assertIn("administrator of the storage", f"{error}")
            self.assertTrue(self.connector.is_present(self.info, device))
            write_at(device.path, 512, b"more" * 128)
            self.disconnect(device)
            self.assertEqual([], self.connector.find_device_paths(self.info))
            self.assertEqual(b"own!" * 128 + b"more" * 128, read_at(self.share / "aside", 0, 1024))
            self.file.unlink()
            (self.share / "aside").rename(self.file)

    def test_file_removed_while_connected_leaves_device_that_is_found_and_removed(self):
        device = self.connector.connect(self.info, OPTIONS)
        self.file.unlink()
        self.assertEqual([device.path], self.connector.find_device_paths(self.info))
        self.disconnect(device)
        self.assertEqual([], loop.under(self.folder))

    def test_share_is_restricted_to_plain_files(self):
        (self.share / "link").symlink_to("file")
        self.connector.connect(self.info, OPTIONS)
        self.assertRaises(OSError, (self.mount_point / "link").read_bytes)

    def test_mount_options_are_added_to_those_of_the_connection(self):
        for given, expected in (
            ("-o vers=4.2", "-o vers=4.2 -o nosuid,nodev,noexec"),
            (None, "-o nosuid,nodev,noexec"),
        ):
            info = remote_file.with_mount_options({**self.info, "options": given})
            self.assertEqual(expected, info["options"])
