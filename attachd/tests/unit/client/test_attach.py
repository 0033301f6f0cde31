# SPDX-License-Identifier: Apache-2.0
"""The way there: its order, what a failure leaves, and how a killed one goes on."""

import unittest
from unittest import mock

from keystoneauth1 import exceptions as transport
from openstack import exceptions

from attachd import exception
from attachd.agent.journal import Owner, Step
from attachd.client import attach
from attachd.tests.fixtures import db_rows
from attachd.tests.unit.client.stand import AttachCase, Killed

UNMOUNT = ["journal unmounting", "unmount", "journal"]
DISCONNECT = ["journal disconnecting", "connector disconnect", "journal"]
DELETE = ["journal deleting", "DELETE attachments", "journal remove"]


class OrderTest(AttachCase):
    def test_each_step_is_in_the_journal_before_it_is_taken(self):
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

    def test_the_host_is_looked_at_before_anything_is_asked(self):
        self.log.fail("check - ", exception.MissingRequirements(host="here", what="root"))
        self.assertRaises(exception.MissingRequirements, self.attach)
        self.assertEqual(1, len(self.log.lines), self.log.lines)
        self.assertIn("mkfs.ext4", self.log.lines[0])

    def test_a_mountpoint_that_cannot_be_used_is_told_before_anything_is_reserved(self):
        self.check.side_effect = exception.HostError(reason="no")
        self.assertRaises(exception.HostError, self.attach)
        self.assertEqual([], self.changes())

    def test_the_protocol_is_checked_before_the_device_is_made(self):
        self.log.fail("check fake", exception.MissingRequirements(host="here", what="iscsiadm"))
        self.assertRaises(exception.MissingRequirements, self.attach)
        self.assertNotIn("connector connect", self.log.lines)
        self.assert_nothing_is_left()

    def test_the_service_is_told_where_the_volume_is(self):
        self.attach()
        (row,) = db_rows.list_attachments(self.volume)
        self.assertEqual(("here", "/mnt/disk"), (row["host"], row["mountpoint"]))
        self.assertEqual("iqn.2026-01.test:here", row["connector"]["initiator"])

    def test_a_device_alone_is_not_mounted(self):
        self.attach(mountpoint=None, mkfs=None)
        self.assertNotIn("journal mounting", self.log.lines)
        self.assertEqual({}, self.stand.mounts.mounted)

    def test_a_reader_reads(self):
        found = self.attach(mode="ro", mkfs=None)
        self.assertEqual("ro", found.mode)
        self.assertIn("mount ro", self.log.lines)
        self.assertEqual("ro", db_rows.list_attachments(self.volume)[0]["asked_mode"])

    def test_what_the_service_lets_be_read_only_is_mounted_so(self):
        with mock.patch.object(self.stand.host.connector, "connect", wraps=self._read_only):
            found = self.attach(mkfs=None)
        self.assertEqual("ro", found.mode)
        self.assertIn("mount ro", self.log.lines)

    def _read_only(self, info, options):
        info["access_mode"] = "ro"
        return type(self.stand.host.connector).connect(self.stand.host.connector, info, options)

    def test_the_guard_of_shared_connections_is_told_to_the_connector(self):
        self.attach()
        info = self.entry().connection_info
        self.assertIn("shared_targets", info)
        self.assertIn("service_uuid", info)

    def test_what_takes_long_is_told(self):
        self.attach()
        said = " / ".join(self.stand.said)
        for word in ("Reserving", "Connecting", "device", "Making"):
            self.assertIn(word, said)


class UndoTest(AttachCase):
    """What fails is undone, in reverse order, and raised as it came."""

    def failing(self, line, **how):
        self.log.fail(line, **how)
        error = exceptions.HttpException if line[0].isupper() else exception.HostError
        with self.assertRaises(error) as caught:
            self.attach()
        self.assertNotIsInstance(caught.exception, exception.AttachFailed)
        self.assertIn("broke", f"{caught.exception}")
        return self.changes()[self.changes().index(line) + 1 :]

    def test_at_each_step(self):
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

    def test_a_reservation_whose_answer_was_lost_is_found_and_deleted(self):
        self.log.fail("POST attachments", late=True)
        heal = self.log.heal
        with mock.patch.object(
            self.stand.client, "_report_progress", lambda text: "undone" in text and heal()
        ):
            self.assertRaises(exceptions.HttpException, self.attach)
        self.assertIn("DELETE attachments", self.log.lines)
        self.assert_nothing_is_left()

    def test_what_is_refused_leaves_nothing(self):
        db_rows.add_attachment(self.volume)
        with self.assertRaisesRegex(exceptions.BadRequestException, "must be available"):
            self.attach()
        self.assertEqual([], self.stand.entries())
        self.assertEqual(1, len(self.stand.attachments(self.volume)))

    def test_an_interrupt_is_undone_too(self):
        self.log.fail("mount", KeyboardInterrupt())
        self.assertRaises(KeyboardInterrupt, self.attach)
        self.assert_nothing_is_left()

    def test_each_is_undone_whether_or_not_the_others_are(self):
        for line in ("mount", "connector disconnect", "unmount"):
            self.log.fail(line)
        with self.assertRaises(exception.AttachFailed) as caught:
            self.attach()
        self.assertEqual("mount broke.", f"{caught.exception.cause}")
        entry = self.entry()
        for part in ("/mnt/disk (unmount", f"volume {self.volume} (connector", "local-detach"):
            self.assertIn(part, f"{caught.exception}")
        self.assertIn(entry.attachment_id, f"{caught.exception}")
        self.assertIn("connector disconnect", entry.error)
        self.assertEqual([], self.stand.attachments(self.volume))
        self.assertIs(Step.DELETING, entry.step)
        self.log.heal()
        self.stand.client.detach(self.volume, attachment_id=entry.attachment_id)
        self.assert_nothing_is_left()

    def test_a_used_device_keeps_its_attachment(self):
        self.log.fail("mount", late=True)
        self.log.fail("unmount", exception.DeviceBusy(device="/mnt/disk", users="somebody"))
        with self.assertRaisesRegex(exception.AttachFailed, "the device is in use"):
            self.attach()
        self.assertEqual(1, len(self.stand.attachments(self.volume)))
        self.assertIn("in use by somebody", self.entry().error)
        self.log.heal()
        self.assert_attached(self.attach())

    def test_a_service_that_is_away_can_be_asked_later(self):
        self.log.fail("POST attachments action")
        self.log.fail("DELETE")
        with self.assertRaisesRegex(exception.AttachFailed, "attachment .*broke"):
            self.attach()
        self.assertIs(Step.DELETING, self.entry().step)
        self.assertIsNone(self.entry().connection_info)
        self.log.heal()
        self.assert_attached(self.attach())

    def test_a_reservation_that_may_have_been_made_is_told(self):
        self.log.fail("POST attachments", late=True)
        with self.assertRaisesRegex(exception.AttachFailed, "of an unknown id"):
            self.attach()
        self.log.heal()
        self.stand.client.detach(self.volume)
        self.assert_nothing_is_left()


class ConnectionTest(AttachCase):
    def test_a_service_that_cannot_be_reached_is_told_as_it_is(self):
        with mock.patch(
            "attachd.client.service.Service._ask", side_effect=transport.ConnectFailure("no")
        ):
            self.assertRaises(transport.ConnectFailure, self.attach)
        self.assertEqual([], self.stand.entries())


class MountpointTest(unittest.TestCase):
    def test_what_cannot_be_one_is_refused(self):
        for folder in ("/proc", "/etc", "/etc/passwd", "/etc/passwd/x"):
            with self.assertRaises(exception.HostError, msg=folder):
                attach.check_mountpoint(folder)

    def test_a_folder_that_is_not_there_can_be_made(self):
        attach.check_mountpoint("/mnt/that/is/not/there")
        attach.check_mountpoint(None)


class AgainTest(AttachCase):
    """What was begun is gone on with."""

    def test_wherever_it_is_killed(self):
        for end in range(200):
            self.log.end = end
            try:
                self.attach()
            except Killed:
                self.log.end = None
            else:
                break
            with self.subTest(end=end, last=self.log.lines[-1:]):
                self.assert_attached(self.attach())
                self.stand.client.detach(self.volume)
                self.assert_nothing_is_left()
                self.stand.mounts.systems.clear()
                self.log.lines.clear()
        self.assertGreater(end, 30)

    def test_wherever_the_undoing_is_killed(self):
        for end in range(200):
            self.log.fail("mount", late=True)
            self.log.end = end
            with self.assertRaises((Killed, exception.HostError)) as caught:
                self.attach()
            self.log.heal()
            if not isinstance(caught.exception, Killed):
                break
            with self.subTest(end=end, last=self.log.lines[-1:]):
                self.assert_attached(self.attach())
                self.stand.client.detach(self.volume)
                self.assert_nothing_is_left()
                self.stand.mounts.systems.clear()
        self.assertGreater(end, 45)

    def test_the_same_again_is_the_same(self):
        first = self.attach()
        self.log.lines.clear()
        self.assertEqual(first, self.attach())
        self.assertEqual([], self.changes())

    def test_another_one_is_refused(self):
        found = self.attach()
        for other in ({"mode": "ro", "mkfs": None}, {"mountpoint": "/mnt/other"}):
            with self.assertRaisesRegex(exception.LocalConflict, found.attachment_id):
                self.attach(**other)

    def test_what_the_agent_has_is_its_own(self):
        journal = self.stand.host.journal
        self.attach()
        journal.write(self.entry(), owner=Owner.AGENT)
        with self.assertRaisesRegex(exception.LocalConflict, "agent"):
            self.attach()

    def test_what_another_program_has_attached_here_is_refused(self):
        connector = {"host": "here"}
        made = db_rows.add_attachment(self.volume, "attached", connector=connector, host="here")
        with self.assertRaisesRegex(exception.LocalConflict, made["id"]):
            self.attach()
        self.assertEqual([], self.changes())

    def test_two_at_the_same_time_are_one(self):
        with (
            self.stand.host.journal.held(self.volume),
            self.assertRaises(exception.LocalConflict),
        ):
            self.attach()

    def test_an_attachment_that_is_gone_is_made_anew(self):
        for step in ("PUT", "connector connect", "POST attachments action", "mount", None):
            with self.subTest(step=step):
                if step is None:
                    first = self.attach().attachment_id
                else:
                    self.log.fail(step, Killed() if step[0].islower() else None, late=True)
                    with mock.patch.object(attach.Attacher, "_undo", side_effect=Killed):
                        self.assertRaises(Killed, self.attach)
                    first = self.entry().attachment_id
                self.log.heal()
                self.stand.service().delete(first)
                self.stand.host.connector.devices.add("/dev/other")
                self.stand.host.connector.devices.discard("/dev/other")
                found = self.attach()
                self.assertNotEqual(first, found.attachment_id)
                self.assert_attached(found)
                self.stand.client.detach(self.volume)
                self.assert_nothing_is_left()
                self.stand.mounts.systems.clear()

    def test_a_service_that_is_away_ends_no_earlier_attempt(self):
        self.log.end = 6
        self.assertRaises(Killed, self.attach)
        self.log.end = None
        before = self.entry()
        self.log.fail("POST attachments")
        self.assertRaises(exceptions.HttpException, self.attach)
        self.assertEqual(before.id, self.entry().id)

    def test_a_device_that_is_gone_is_made_again(self):
        """As after a reboot."""
        found = self.attach()
        self.stand.host.connector.devices.clear()
        self.stand.mounts.mounted.clear()
        self.assertEqual(found, self.attach())
        self.assert_attached(found)

    def test_what_is_not_mounted_any_more_is_mounted(self):
        found = self.attach()
        self.stand.mounts.mounted.clear()
        self.log.lines.clear()
        self.assertEqual(found, self.attach())
        self.assert_attached(found)
        self.assertNotIn("connector connect", self.log.lines)

    def test_how_it_is_connected_by_now_is_asked(self):
        found = self.attach()
        self.stand.host.connector.devices.clear()
        info = db_rows.get_attachment(found.attachment_id)["connection_info"]
        info["data"]["portal"] = "elsewhere"
        db_rows.change_attachment(found.attachment_id, connection_info=info)
        self.attach()
        self.assertEqual("elsewhere", self.entry().connection_info["portal"])

    def test_no_file_system_is_made_on_what_was_attached(self):
        self.attach()
        self.stand.host.connector.devices.clear()
        self.stand.mounts.systems.clear()
        self.log.lines.clear()
        self.attach()
        self.assertNotIn("mkfs ext4", self.log.lines)

    def test_what_was_attached_is_not_undone_when_it_fails(self):
        self.attach()
        self.stand.host.connector.devices.clear()
        self.log.fail("connector connect")
        self.assertRaises(exception.HostError, self.attach)
        self.assertEqual(
            (Step.ATTACHED, "connector connect broke."), (self.entry().step, self.entry().error)
        )
        self.assertEqual(1, len(self.stand.attachments(self.volume)))
