# SPDX-License-Identifier: Apache-2.0
"""Attaching: order of steps, undo after a failure, and continuation after a kill."""

import unittest
from unittest import mock

from keystoneauth1 import exceptions as transport
from openstack import exceptions

from attachd import exception
from attachd.agent.journal import Owner, Step
from attachd.client import attach
from attachd.tests.fixtures import db_rows
from attachd.tests.unit.client.fake_deployment import AttachCase, ProcessKilled

UNMOUNT = ["journal unmounting", "unmount", "journal"]
DISCONNECT = ["journal disconnecting", "connector disconnect", "journal"]
DELETE = ["journal deleting", "DELETE attachments", "journal remove"]


class OrderTest(AttachCase):
    def test_attach_writes_journal_before_each_step(self):
        self.assert_attached(self.attach())
        self.assertEqual(
            [
                "journal reserving",
                "POST attachments",
                "journal",
                "journal connecting",
                "PUT attachments",
                "journal",
                "journal connecting",
                "connector connect",
                "journal",
                "journal completing",
                "POST attachments action",
                "mkfs ext4",
                "journal mounting",
                "mount rw",
                "journal attached",
            ],
            self.changes(),
        )

    def test_attach_checks_host_before_first_request(self):
        self.log.fail("check - ", exception.MissingRequirements(host="here", what="root"))
        self.assertRaises(exception.MissingRequirements, self.attach)
        self.assertEqual(1, len(self.log.lines), self.log.lines)
        self.assertIn("mkfs.ext4", self.log.lines[0])

    def test_attach_with_unusable_mountpoint_raises_before_reserving(self):
        self.check.side_effect = exception.HostError(reason="no")
        self.assertRaises(exception.HostError, self.attach)
        self.assertEqual([], self.changes())

    def test_attach_with_missing_protocol_tools_raises_before_connecting(self):
        self.log.fail("check fake", exception.MissingRequirements(host="here", what="iscsiadm"))
        self.assertRaises(exception.MissingRequirements, self.attach)
        self.assertNotIn("connector connect", self.log.lines)
        self.assert_nothing_is_left()

    def test_attach_sends_host_mountpoint_and_connector(self):
        self.attach()
        (row,) = db_rows.list_attachments(self.volume)
        self.assertEqual(("here", "/mnt/disk"), (row["host"], row["mountpoint"]))
        self.assertEqual("iqn.2026-01.test:here", row["connector"]["initiator"])

    def test_attach_without_mountpoint_mounts_nothing(self):
        self.attach(mountpoint=None, mkfs=None)
        self.assertNotIn("journal mounting", self.log.lines)
        self.assertEqual({}, self.deployment.mounts.mounted)

    def test_attach_with_mode_ro_mounts_read_only(self):
        found = self.attach(mode="ro", mkfs=None)
        self.assertEqual("ro", found.mode)
        self.assertIn("mount ro", self.log.lines)
        self.assertEqual("ro", db_rows.list_attachments(self.volume)[0]["asked_mode"])

    def test_attach_with_access_mode_ro_of_service_mounts_read_only(self):
        with mock.patch.object(self.deployment.host.connector, "connect", wraps=self._read_only):
            found = self.attach(mkfs=None)
        self.assertEqual("ro", found.mode)
        self.assertIn("mount ro", self.log.lines)

    def _read_only(self, info, options):
        info["access_mode"] = "ro"
        return type(self.deployment.host.connector).connect(
            self.deployment.host.connector, info, options
        )

    def test_attach_stores_shared_targets_and_service_uuid(self):
        self.attach()
        info = self.entry().connection_info
        self.assertIn("shared_targets", info)
        self.assertIn("service_uuid", info)

    def test_attach_reports_progress_of_long_steps(self):
        self.attach()
        said = " / ".join(self.deployment.said)
        for word in ("Reserving", "Connecting", "device", "Making"):
            self.assertIn(word, said)


class UndoTest(AttachCase):
    """A failed attach is undone in reverse order, and raises the original error."""

    def failing(self, line, **how):
        self.log.fail(line, **how)
        error = exceptions.HttpException if line[0].isupper() else exception.HostError
        with self.assertRaises(error) as caught:
            self.attach()
        self.assertNotIsInstance(caught.exception, exception.AttachFailed)
        self.assertIn("broke", f"{caught.exception}")
        return self.changes()[self.changes().index(line) + 1 :]

    def test_attach_failing_at_each_step_undoes_former_steps(self):
        undone = {
            "PUT attachments": [*UNMOUNT, *DELETE],
            "connector connect": ["journal", *UNMOUNT, *DISCONNECT, *DELETE],
            "POST attachments action": [*UNMOUNT, *DISCONNECT, *DELETE],
            "mkfs ext4": [*UNMOUNT, *DISCONNECT, *DELETE],
            "mount rw": [*UNMOUNT, *DISCONNECT, *DELETE],
        }
        for line, expected in undone.items():
            for late in (False, True):
                with self.subTest(line=line, late=late):
                    self.log.heal()
                    self.log.lines.clear()
                    self.assertEqual(expected, self.failing(line, late=late))
                    self.assert_nothing_is_left()

    def test_attach_with_lost_answer_of_reservation_deletes_it(self):
        self.log.fail("POST attachments", late=True)
        heal = self.log.heal
        with mock.patch.object(
            self.deployment.client, "_report_progress", lambda text: "undone" in text and heal()
        ):
            self.assertRaises(exceptions.HttpException, self.attach)
        self.assertIn("DELETE attachments", self.log.lines)
        self.assert_nothing_is_left()

    def test_attach_that_is_refused_leaves_nothing(self):
        db_rows.add_attachment(self.volume)
        with self.assertRaisesRegex(exceptions.BadRequestException, "must be available"):
            self.attach()
        self.assertEqual([], self.deployment.entries())
        self.assertEqual(1, len(self.deployment.attachments(self.volume)))

    def test_attach_interrupted_by_keyboard_is_undone(self):
        self.log.fail("mount", KeyboardInterrupt())
        self.assertRaises(KeyboardInterrupt, self.attach)
        self.assert_nothing_is_left()

    def test_undo_continues_after_failures_and_lists_remains(self):
        for line in ("mount", "connector disconnect", "unmount"):
            self.log.fail(line)
        with self.assertRaises(exception.AttachFailed) as caught:
            self.attach()
        self.assertEqual("mount broke.", f"{caught.exception.details['cause']}")
        entry = self.entry()
        for part in ("/mnt/disk (unmount", f"volume {self.volume} (connector", "local-detach"):
            self.assertIn(part, f"{caught.exception}")
        self.assertIn(entry.attachment_id, f"{caught.exception}")
        self.assertIn("connector disconnect", entry.error)
        self.assertEqual([], self.deployment.attachments(self.volume))
        self.assertIs(Step.DELETING, entry.step)
        self.log.heal()
        self.deployment.client.detach(self.volume, attachment_id=entry.attachment_id)
        self.assert_nothing_is_left()

    def test_interrupted_attach_that_cannot_be_undone_names_the_interruption(self):
        self.log.fail("mount", KeyboardInterrupt())
        self.log.fail("connector disconnect")
        with self.assertRaisesRegex(
            exception.AttachFailed, r"could not be attached \(interrupted\)"
        ):
            self.attach()

    def test_undo_with_device_in_use_keeps_attachment(self):
        self.log.fail("mount", late=True)
        self.log.fail("unmount", exception.DeviceBusy(device="/mnt/disk", users="postgres (4711)"))
        with self.assertRaisesRegex(exception.AttachFailed, "the device is in use"):
            self.attach()
        self.assertEqual(1, len(self.deployment.attachments(self.volume)))
        self.assertIn("in use by postgres", self.entry().error)
        self.log.heal()
        self.assert_attached(self.attach())

    def test_undo_with_unavailable_service_can_be_repeated(self):
        self.log.fail("POST attachments action")
        self.log.fail("DELETE")
        with self.assertRaisesRegex(exception.AttachFailed, "attachment .*broke"):
            self.attach()
        self.assertIs(Step.DELETING, self.entry().step)
        self.assertIsNone(self.entry().connection_info)
        self.log.heal()
        self.assert_attached(self.attach())

    def test_undo_of_uncertain_reservation_reports_unknown_id(self):
        self.log.fail("POST attachments", late=True)
        with self.assertRaisesRegex(exception.AttachFailed, "of an unknown id"):
            self.attach()
        self.log.heal()
        self.deployment.client.detach(self.volume)
        self.assert_nothing_is_left()


class ConnectionTest(AttachCase):
    def test_attach_with_unreachable_service_raises_transport_error(self):
        with mock.patch(
            "attachd.client.service.Service._ask", side_effect=transport.ConnectFailure("no")
        ):
            self.assertRaises(transport.ConnectFailure, self.attach)
        self.assertEqual([], self.deployment.entries())


class MountpointTest(unittest.TestCase):
    def test_check_mountpoint_refuses_unusable_folders(self):
        for folder in ("/proc", "/etc", "/etc/passwd", "/etc/passwd/x"):
            with self.assertRaises(exception.HostError, msg=folder):
                attach.check_mountpoint(folder)

    def test_check_mountpoint_accepts_missing_folder(self):
        attach.check_mountpoint("/mnt/that/is/not/there")
        attach.check_mountpoint(None)


class RepeatedAttachTest(AttachCase):
    """Attaching again continues an interrupted attach."""

    def test_attach_killed_at_each_step_can_be_repeated(self):
        for end in range(200):
            self.log.end = end
            try:
                self.attach()
            except ProcessKilled:
                self.log.end = None
            else:
                break
            with self.subTest(end=end, last=self.log.lines[-1:]):
                self.assert_attached(self.attach())
                self.deployment.client.detach(self.volume)
                self.assert_nothing_is_left()
                self.deployment.mounts.systems.clear()
                self.log.lines.clear()
        self.assertGreater(end, 30)

    def test_undo_killed_at_each_step_can_be_repeated(self):
        for end in range(200):
            self.log.fail("mount", late=True)
            self.log.end = end
            with self.assertRaises((ProcessKilled, exception.HostError)) as caught:
                self.attach()
            self.log.heal()
            if not isinstance(caught.exception, ProcessKilled):
                break
            with self.subTest(end=end, last=self.log.lines[-1:]):
                self.assert_attached(self.attach())
                self.deployment.client.detach(self.volume)
                self.assert_nothing_is_left()
                self.deployment.mounts.systems.clear()
        self.assertGreater(end, 45)

    def test_attach_again_returns_same_result_without_changes(self):
        first = self.attach()
        self.log.lines.clear()
        self.assertEqual(first, self.attach())
        self.assertEqual([], self.changes())

    def test_attach_again_with_other_options_raises_conflict(self):
        found = self.attach()
        for other in ({"mode": "ro", "mkfs": None}, {"mountpoint": "/mnt/other"}):
            with self.assertRaisesRegex(exception.LocalConflict, found.attachment_id):
                self.attach(**other)

    def test_attach_volume_of_agent_raises_conflict(self):
        journal = self.deployment.host.journal
        self.attach()
        journal.write(self.entry(), owner=Owner.AGENT)
        with self.assertRaisesRegex(exception.LocalConflict, "agent"):
            self.attach()

    def test_attach_volume_attached_by_other_program_raises_conflict(self):
        connector = {"host": "here"}
        made = db_rows.add_attachment(self.volume, "attached", connector=connector, host="here")
        with self.assertRaisesRegex(exception.LocalConflict, made["id"]):
            self.attach()
        self.assertEqual([], self.changes())

    def test_attach_with_locked_journal_raises_conflict(self):
        with (
            self.deployment.host.journal.volume_lock(self.volume),
            self.assertRaises(exception.LocalConflict),
        ):
            self.attach()

    def test_attach_after_deletion_of_attachment_creates_new_one(self):
        for step in ("PUT", "connector connect", "POST attachments action", "mount", None):
            with self.subTest(step=step):
                if step is None:
                    first = self.attach().attachment_id
                else:
                    self.log.fail(step, ProcessKilled() if step[0].islower() else None, late=True)
                    with mock.patch.object(attach.Attacher, "_undo", side_effect=ProcessKilled):
                        self.assertRaises(ProcessKilled, self.attach)
                    first = self.entry().attachment_id
                self.log.heal()
                self.deployment.service().delete(first)
                self.deployment.host.connector.devices.add("/dev/other")
                self.deployment.host.connector.devices.discard("/dev/other")
                found = self.attach()
                self.assertNotEqual(first, found.attachment_id)
                self.assert_attached(found)
                self.deployment.client.detach(self.volume)
                self.assert_nothing_is_left()
                self.deployment.mounts.systems.clear()

    def test_attach_with_unavailable_service_keeps_earlier_entry(self):
        self.log.end = 6
        self.assertRaises(ProcessKilled, self.attach)
        self.log.end = None
        before = self.entry()
        self.log.fail("POST attachments")
        self.assertRaises(exceptions.HttpException, self.attach)
        self.assertEqual(before.id, self.entry().id)

    def test_attach_with_missing_device_connects_again(self):
        """As after a reboot."""
        found = self.attach()
        self.deployment.reboot()
        self.deployment.mounts.mounted.clear()
        self.assertEqual(found, self.attach())
        self.assert_attached(found)

    def test_attach_with_missing_mount_mounts_again(self):
        found = self.attach()
        self.deployment.mounts.mounted.clear()
        self.log.lines.clear()
        self.assertEqual(found, self.attach())
        self.assert_attached(found)
        self.assertNotIn("connector connect", self.log.lines)

    def test_attach_again_uses_current_connection_info_of_service(self):
        found = self.attach()
        self.deployment.reboot()
        info = db_rows.get_attachment(found.attachment_id)["connection_info"]
        info["data"]["portal"] = "elsewhere"
        db_rows.change_attachment(found.attachment_id, connection_info=info)
        self.attach()
        self.assertEqual("elsewhere", self.entry().connection_info["portal"])

    def test_attach_again_makes_no_file_system(self):
        self.attach()
        self.deployment.reboot()
        self.deployment.mounts.systems.clear()
        self.log.lines.clear()
        self.attach()
        self.assertNotIn("mkfs ext4", self.log.lines)

    def test_attach_again_that_fails_keeps_attachment(self):
        self.attach()
        self.deployment.reboot()
        self.log.fail("connector connect")
        self.assertRaises(exception.HostError, self.attach)
        self.assertEqual(
            (Step.ATTACHED, "connector connect broke."), (self.entry().step, self.entry().error)
        )
        self.assertEqual(1, len(self.deployment.attachments(self.volume)))
