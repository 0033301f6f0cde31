# SPDX-License-Identifier: Apache-2.0
"""File systems of entries, on plain files; the functional tests mount and kill."""

import unittest
from unittest import mock
import uuid

from attachd import exception
from attachd.agent.connectors.base import Device
from attachd.agent.journal import Entry, Journal
from attachd.agent.mount import filesystems, format_and_mount, probe
from attachd.linux import commands
from attachd.tests.fixtures import fake_host, lifetime, requirements

_MIB = 2**20


class PlacingTest(unittest.TestCase):
    """Changes that an entry permits on its device."""

    def setUp(self):
        super().setUp()
        for tool in ("blkid", "mkfs.ext4", "setpriv", "wipefs"):
            requirements.require_tool(self, tool)
        fake_host.hide_other_processes(self)
        temporary = lifetime.temp_dir(self)
        self.path = temporary / "device"
        self.path.write_bytes(bytes(8 * _MIB))
        self.device = str(self.path)
        self.journal = Journal(temporary / "host")
        self.progress = []

    def test_mount_volume_makes_requested_filesystem(self):
        entry = self.place(self.entry(mkfs="ext4"))
        self.assertIsNone(entry.formatting)
        self.assertEqual(entry, self.journal.get(entry.id))
        self.assertEqual(format_and_mount.filesystem_uuid(entry), probe.detect(self.device).uuid)
        self.assertEqual(
            format_and_mount.filesystem_uuid(entry),
            f"{uuid.UUID(format_and_mount.filesystem_uuid(entry))}",
        )

    def test_mount_volume_makes_filesystem_once(self):
        self.place(self.entry(mkfs="ext4"))
        before = self.path.read_bytes()
        self.place(self.entry(mkfs="ext4"))
        self.place(self.entry())
        self.assertEqual(before, self.path.read_bytes())

    def test_mount_volume_refuses_other_type_or_data(self):
        self.place(self.entry(mkfs="ext4"))
        before = self.path.read_bytes()
        with self.assertRaisesRegex(exception.HostError, "carries ext4"):
            self.place(self.entry(mkfs="ext2"))
        self.assertEqual(before, self.path.read_bytes())
        self.path.write_bytes(bytes(_MIB) + b"data" + bytes(7 * _MIB))
        with self.assertRaisesRegex(exception.HostError, "carries data"):
            self.place(self.entry(mkfs="ext4"))
        self.assertEqual([None] * 3, [entry.formatting for entry in self.journal.list_entries()])

    def test_mount_volume_with_assume_empty_looks_only_for_signatures(self):
        self.path.write_bytes(bytes(_MIB) + b"data" + bytes(7 * _MIB))
        with self.failing(KeyboardInterrupt()), self.assertRaises(KeyboardInterrupt):
            self.place(self.entry(mkfs="ext4", assume_empty=True))
        self.assertIsNone(filesystems.get_type(self.device))
        self.place(self.entry(mkfs="ext4", assume_empty=True))
        with self.assertRaisesRegex(exception.HostError, "carries ext4"):
            self.place(self.entry(mkfs="ext2", assume_empty=True))

    def test_incomplete_filesystem_is_not_mounted(self):
        entry = self.half_made()
        with self.assertRaisesRegex(
            exception.HostError, "only part of a file system.*--mkfs ext4"
        ):
            self.place(self.journal.write(entry, mkfs=None))
        self.assertIsNone(self.place(entry).formatting)
        self.assertEqual("ext4", filesystems.get_type(self.device))

    def test_incomplete_filesystem_may_get_other_type(self):
        entry = self.half_made()
        self.assertIsNone(self.place(self.journal.write(entry, mkfs="ext3")).formatting)
        self.assertEqual("ext3", filesystems.get_type(self.device))

    def test_incomplete_filesystem_of_other_entry_is_refused(self):
        self.half_made()
        with self.assertRaisesRegex(exception.HostError, "carries data"):
            self.place(self.entry(mkfs="ext4"))

    def test_filesystem_of_another_process_stays(self):
        entry = self.entry(mkfs="ext4")
        fake_host.make_filesystem(self.device, "ext4", self.progress.append)
        before = self.path.read_bytes()
        with self.assertRaisesRegex(exception.HostError, "has other contents since"):
            self.place(self.journal.write(entry, formatting="ext4"))
        self.assertEqual(before, self.path.read_bytes())
        self.place(self.journal.get(entry.id))
        self.assertEqual(before, self.path.read_bytes())

    def test_failed_or_interrupted_mkfs_leaves_empty_device(self):
        for error in (exception.HostError(reason="mkfs failed"), KeyboardInterrupt()):
            entry = self.entry(mkfs="ext4")
            with self.failing(error), self.assertRaises(type(error)):
                self.place(entry)
            self.assertIsNone(self.journal.get(entry.id).formatting)
            self.assertEqual(bytes(8 * _MIB), self.path.read_bytes())

    def test_unmount_volume_wipes_incomplete_filesystem(self):
        entry = format_and_mount.unmount_volume(self.journal, self.half_made(), present=True)
        self.assertIsNone(entry.formatting)
        self.assertEqual(bytes(8 * _MIB), self.path.read_bytes())
        self.assertEqual(entry, self.journal.get(entry.id))

    def test_unmount_volume_keeps_device_that_is_another_now(self):
        entry = self.half_made()
        self.path.write_bytes(b"data of others, without a signature" + bytes(_MIB))
        before = self.path.read_bytes()
        entry = format_and_mount.unmount_volume(self.journal, entry, present=False)
        self.assertEqual((before, None), (self.path.read_bytes(), entry.formatting))

    def test_unmount_volume_keeps_complete_filesystem(self):
        entry = self.place(self.entry(mkfs="ext4"))
        before = self.path.read_bytes()
        format_and_mount.unmount_volume(self.journal, entry, present=True)
        self.assertEqual(before, self.path.read_bytes())

    def failing(self, error):
        real = commands.run_long

        def run_long(arguments, waiting):
            real(arguments, waiting)
            raise error

        return mock.patch.object(commands, "run_long", run_long)

    def half_made(self):
        entry = self.entry(mkfs="ext4")
        self.place(entry)
        data = self.path.read_bytes()
        self.path.write_bytes(bytes(4096) + data[4096:])
        return self.journal.write(entry, formatting="ext4")

    def entry(self, **values):
        return self.journal.write(Entry("v", device=Device(self.device, {}), **values))

    def place(self, entry):
        return format_and_mount.mount_volume(self.journal, entry, self.progress.append, mode="rw")
