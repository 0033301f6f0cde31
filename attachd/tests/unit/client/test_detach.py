# SPDX-License-Identifier: Apache-2.0
"""Detaching: order of steps, state after a failure, and continuation after a kill."""

import unittest

from openstack import exceptions

from attachd import exception
from attachd.agent.journal import Entry, Step
from attachd.client.detach import command
from attachd.tests.fixtures import db_rows
from attachd.tests.unit.client.fake_deployment import AttachCase, FakeDeployment, ProcessKilled


class DetachTest(AttachCase):
    """Detaching of a volume that is attached and mounted."""

    def setUp(self):
        super().setUp()
        self.attach()

    def attach(self):
        self.attached = super().attach()
        self.log.lines.clear()

    def detach(self, **how):
        self.deployment.client.detach(self.volume, **how)

    def test_detach_writes_journal_before_each_step(self):
        self.detach()
        self.assertEqual(
            [
                "journal unmounting",
                "unmount",
                "journal",
                "journal disconnecting",
                "connector disconnect",
                "journal",
                "journal deleting",
                "DELETE attachments",
                "journal remove",
            ],
            self.changes(),
        )
        self.assert_nothing_is_left()

    def test_detach_killed_at_each_step_can_be_repeated(self):
        for end in range(100):
            self.log.end = end
            try:
                self.detach()
            except ProcessKilled:
                self.log.end = None
            else:
                break
            with self.subTest(end=end, last=self.log.lines[-1:]):
                if self.deployment.entries():
                    self.detach()
                self.assert_nothing_is_left()
                self.deployment.mounts.systems.clear()
                self.attach()
        self.assertGreater(end, 18)

    def test_attach_after_killed_detach_creates_new_attachment(self):
        before = self.attached
        self.log.fail("connector disconnect", ProcessKilled())
        self.assertRaises(ProcessKilled, self.detach)
        self.log.heal()
        self.attach()
        self.assertNotEqual(before.attachment_id, self.attached.attachment_id)
        self.assertEqual(
            [self.attached.attachment_id], [attachment["id"] for attachment in self.remote()]
        )

    def remote(self):
        return self.deployment.attachments(self.volume)

    def test_detach_with_mount_in_use_keeps_attachment(self):
        before = self.entry()
        self.log.fail("unmount", exception.DeviceBusy(device="/mnt/disk", users="postgres (4711)"))
        self.assertRaises(exception.DeviceBusy, self.detach)
        after = self.entry()
        self.assertEqual((Step.ATTACHED, "/mnt/disk"), (after.step, after.mountpoint))
        self.assertEqual(before.device, after.device)
        self.assertEqual(["attached"], [attachment["status"] for attachment in self.remote()])

    def test_detach_with_device_in_use_keeps_attachment(self):
        self.deployment.mounts.users.add(self.attached.path)
        self.assertRaises(exception.DeviceBusy, self.detach)
        self.assertEqual((Step.ATTACHED, None), (self.entry().step, self.entry().mountpoint))
        self.assertNotIn("connector disconnect", self.log.lines)
        self.assertEqual(["attached"], [attachment["status"] for attachment in self.remote()])
        self.detach(force=True)
        self.assertIn("connector disconnect by force", self.log.lines)
        self.assert_nothing_is_left()

    def test_forced_detach_with_mount_in_use_disconnects(self):
        self.log.fail("unmount", exception.DeviceBusy(device="/mnt/disk", users="postgres (4711)"))
        self.detach(force=True)
        self.assertEqual(([], []), (self.deployment.entries(), self.remote()))
        self.assertIn("connector disconnect by force", self.log.lines)

    def test_detach_with_failing_disconnect_keeps_attachment(self):
        self.log.fail("connector disconnect")
        self.assertRaises(exception.HostError, self.detach)
        self.assertIs(Step.DISCONNECTING, self.entry().step)
        self.assertEqual("connector disconnect broke.", self.entry().error)
        self.assertEqual(["attached"], [attachment["status"] for attachment in self.remote()])
        self.log.heal()
        self.detach()
        self.assert_nothing_is_left()

    def test_detach_with_failing_service_can_be_repeated(self):
        for late in (False, True):
            self.log.fail("DELETE", late=late)
            with self.assertRaisesRegex(exception.DetachFailed, "local-detach") as caught:
                self.detach()
            self.assertIsInstance(caught.exception.details["cause"], exceptions.HttpException)
            self.assertIn(self.attached.attachment_id, f"{caught.exception}")
            entry = self.entry()
            self.assertEqual((Step.DELETING, None), (entry.step, entry.connection_info))
            self.assertIn("broke", entry.error)
            self.log.heal()
            self.log.lines.clear()
            self.detach()
            self.assertNotIn("connector disconnect", self.log.lines)
            self.assert_nothing_is_left()
            self.attach()

    def test_detach_deleted_attachment_removes_device_and_entry(self):
        self.deployment.service().delete(self.attached.attachment_id)
        self.detach()
        self.assert_nothing_is_left()

    def test_detach_deleted_volume_by_id_removes_device_and_entry(self):
        self.deployment.service().delete(self.attached.attachment_id)
        self.deployment.api.request("DELETE", f"/volumes/{self.volume}")
        self.detach()
        self.assertEqual([], self.deployment.entries())
        self.assertEqual(set(), self.deployment.host.connector.devices)

    def test_failed_attach_keeps_foreign_mount_at_mountpoint(self):
        self.detach()
        self.deployment.mounts.mounted["/mnt/disk"] = "/dev/foreign"
        self.log.fail("POST attachments action")
        self.assertRaises(exceptions.HttpException, self.attach)
        self.assertEqual({"/mnt/disk": "/dev/foreign"}, self.deployment.mounts.mounted)

    def test_detach_reports_progress(self):
        self.deployment.said.clear()
        self.detach()
        said = " / ".join(self.deployment.said)
        for word in ("Unmounting", "Disconnecting", "Deleting"):
            self.assertIn(word, said)

    def test_detach_checks_host_first(self):
        self.log.fail("check", exception.MissingRequirements(host="here", what="root"))
        self.assertRaises(exception.MissingRequirements, self.detach)
        self.assertEqual([], self.changes())


class ReservationTest(unittest.TestCase):
    """Detaching after a reservation whose answer was lost."""

    def setUp(self):
        super().setUp()
        self.deployment = FakeDeployment(self)
        self.volume = self.deployment.volume()
        self.entry = self.deployment.host.journal.write(Entry(self.volume))

    def test_detach_deletes_reservation_that_was_made(self):
        self.deployment.service().reserve(self.volume, "rw", self.entry.id)
        self.deployment.client.detach(self.volume)
        self.assertEqual(
            ([], []), (self.deployment.entries(), self.deployment.attachments(self.volume))
        )

    def test_detach_of_reservation_that_was_not_made_leaves_nothing(self):
        self.deployment.client.detach(self.volume)
        self.assertEqual(
            ([], []), (self.deployment.entries(), self.deployment.attachments(self.volume))
        )

    def test_detach_keeps_reservation_of_other_client(self):
        made = db_rows.add_attachment(self.volume)
        self.deployment.client.detach(self.volume)
        self.assertEqual([], self.deployment.entries())
        self.assertEqual([made["id"]], [e["id"] for e in self.deployment.attachments(self.volume)])

    def test_command_names_attachment_if_id_is_known(self):
        self.assertEqual("attachd local-detach v", command(Entry("v")))
        self.assertEqual(
            "attachd local-detach --attachment-id a v", command(Entry("v", attachment_id="a"))
        )
