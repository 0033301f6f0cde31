# SPDX-License-Identifier: Apache-2.0
"""What grows on request, at an attach and while a watch runs."""

import dataclasses
from unittest import mock

from attachd import exception
from attachd.agent.journal import Owner
from attachd.agent.mount import growth
from attachd.agent.mount.filesystem_state import FilesystemState
from attachd.client.growth import VolumeGrowth, advice
from attachd.linux import block_device
from attachd.tests.fixtures import db_rows
from attachd.tests.unit.client.fake_deployment import AttachCase

GIB = 2**30


class GrowthTest(AttachCase):
    def setUp(self):
        super().setUp()
        self.found = self.attach(mkfs=None)
        self.size, self.fs_size = GIB, GIB
        self.enterContext(mock.patch.object(block_device, "size", lambda _path: self.size))
        self.enterContext(mock.patch.object(growth, "update", self.update))
        self.connector = self.deployment.host.connector
        self.connector.extend = self.extend

    def extend(self, *_arguments):
        self.size = db_rows.get_volume(self.volume)["size_gib"] * GIB
        return self.size

    def update(self, journal, entry, *, types, check_growable):
        """Stand for the kernel."""
        error = None
        if types and self.fs_size < self.size:
            try:
                check_growable()
                self.fs_size = self.size
            except exception.HostError as refusal:
                error = f"{refusal}"
        state = FilesystemState("xfs", self.fs_size, self.size, 7, error)
        return journal.write(entry, filesystem=state)

    def grow(self, **more):
        return self.deployment.client.grow(self.volume, **more)

    def test_request_extends_the_device_and_asked_the_file_system(self):
        db_rows.change_volume(self.volume, size_gib=2)
        shown = self.grow()
        self.assertEqual((2 * GIB, GIB), (shown.size_bytes, shown.filesystem_bytes))
        (listed,) = self.deployment.client.attached()
        command = f"attachd local-grow --grow-fs {self.volume}"
        self.assertEqual(f"xfs has 1 of 2 GiB. Let it grow: {command}", listed.growth)
        shown = self.grow(grow_fs=True)
        self.assertEqual(2 * GIB, shown.filesystem_bytes)
        self.assertEqual("", advice(self.entry()))

    def test_attach_that_asks_for_it_is_remembered(self):
        db_rows.change_volume(self.volume, size_gib=2)
        self.attach(mkfs=None, grow_fs=True)
        self.assertTrue(self.entry().grow_fs)
        self.assertEqual(2 * GIB, self.grow().filesystem_bytes)

    def test_device_that_stays_is_an_error(self):
        db_rows.change_volume(self.volume, size_gib=2)
        self.connector.extend = lambda *_arguments: GIB
        with self.assertRaisesRegex(exception.HostError, f"has 2 GiB.* still {GIB} bytes"):
            self.grow()

    def test_shared_volume_names_the_other_host(self):
        db_rows.change_volume(self.volume, size_gib=2)
        db_rows.add_attachment(self.volume, "attached", host="there", project_id=self.project_id())
        with self.assertRaisesRegex(exception.HostError, "attached to there too"):
            self.grow(grow_fs=True)
        self.assertIn("attached to there too", self.deployment.client.attached()[0].growth)
        self.assertEqual(GIB, self.fs_size)

    def project_id(self):
        return db_rows.get_attachment(self.found.attachment_id)["project_id"]

    def test_what_is_not_attached_by_a_command_is_refused(self):
        entry = self.entry()
        self.deployment.host.journal.write(entry, owner=Owner.AGENT)
        with self.assertRaisesRegex(exception.LocalConflict, r"\[agent\] grow_filesystems"):
            self.grow()
        self.deployment.host.journal.write(entry)
        second = dataclasses.replace(entry, id="other", attachment_id="b")
        self.deployment.host.journal.write(second)
        with self.assertRaisesRegex(exception.LocalConflict, "--attachment-id: "):
            self.grow()
        self.deployment.reboot()
        with self.assertRaisesRegex(exception.LocalConflict, "local-restore"):
            self.grow(attachment_id="b")

    def test_watch_follows_the_size_in_the_service_and_logs_failures_once(self):
        steps = VolumeGrowth(self.deployment.host, self.deployment.service(), print)
        self.deployment.host.journal.write(self.entry(), grow_fs=True)
        db_rows.change_volume(self.volume, size_gib=2)
        steps.follow(ask=False)
        self.assertEqual(GIB, self.size)
        self.log.fail("GET")
        steps.follow(ask=True)
        self.assertEqual(GIB, self.size)
        self.log.heal()
        self.connector.extend = lambda *_arguments: GIB
        with self.assertLogs("attachd.client.growth", "WARNING") as logged:
            for _ in range(2):
                steps.follow(ask=True)
        self.assertEqual(1, len(logged.output))
        self.connector.extend = self.extend
        steps.follow(ask=True)
        self.assertEqual((2 * GIB, 2 * GIB), (self.size, self.fs_size))
