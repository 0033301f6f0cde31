# SPDX-License-Identifier: Apache-2.0
"""The Python API, as programs see it."""

import unittest
from unittest import mock

from keystoneauth1 import exceptions as transport
from openstack import exceptions

from attachd import client, exception
from attachd.agent.connectors.base import Options
from attachd.agent.journal import Entry, Owner
from attachd.agent.restore import Finding, Verdict
from attachd.tests.fixtures import db_rows
from attachd.tests.unit.client.stand import INFO, AttachCase, Killed, Stand


class ClientTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.stand = Stand(self)
        self.volume = self.stand.volume(name="disk")
        self.client = self.stand.client

    def test_openstacksdk_is_not_hidden(self):
        connection = self.stand.connection()
        self.assertIs(connection, client.Client(connection, self.stand.host).connection)

    def test_nobody_has_to_listen(self):
        quiet = client.Client(self.stand.connection(), self.stand.host)
        quiet.attach("disk")
        quiet.detach("disk")

    def test_the_connector_names_the_host(self):
        self.assertEqual("here", self.client.get_connector()["host"])
        self.assertEqual("here", self.client.get_connector(Options(multipath=True))["host"])

    def test_what_is_attached_is_told(self):
        found = self.client.attach("disk")
        self.assertIsInstance(found, client.Attached)
        self.assertEqual(
            (self.volume, "rw", None), (found.volume_id, found.mode, found.mountpoint)
        )
        self.assertEqual({**INFO, "path": found.path}, found.device)

    def test_how_it_is_connected_is_kept(self):
        self.client.attach("disk", options=Options(multipath=True))
        self.assertEqual(Options(multipath=True), self.stand.entries()[0].options)

    def test_nonsense_is_refused_before_anything_is_asked(self):
        for how in ({"mode": "wo"}, {"mode": "ro", "mkfs": "ext4"}):
            with self.assertRaises(exception.HostError):
                self.client.attach("disk", **how)
        with self.assertRaisesRegex(exception.HostError, "kind"):
            self.client.attach("disk", mkfs="../ext4")
        self.assertEqual([], self.stand.log.lines)

    def test_a_volume_that_is_not_there_is_not_found(self):
        with self.assertRaises(exceptions.NotFoundException):
            self.client.attach("disc")
        self.assertEqual([], self.stand.entries())


class ListingTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.stand = Stand(self)
        self.volume = self.stand.volume()
        self.attached = self.stand.client.attach(self.volume)

    def listed(self):
        return self.stand.client.attached()

    def one(self):
        (found,) = self.listed()
        return found

    def test_all_is_told(self):
        found = self.one()
        self.assertEqual(self.attached.attachment_id, found.attachment_id)
        self.assertEqual((self.volume, self.attached.path), (found.volume_id, found.path))
        self.assertEqual(
            ("attached", "attached", "local"), (found.status, found.step, found.owner)
        )
        self.assertEqual((True, "rw", None), (found.present, found.mode, found.error))
        self.assertIsNone(found.mountpoint)

    def test_what_is_gone_is_told(self):
        self.stand.service().delete(self.attached.attachment_id)
        self.stand.host.connector.devices.clear()
        self.assertEqual(("gone", False), (self.one().status, self.one().present))

    def test_a_service_that_does_not_answer_is_waited_for_once(self):
        self.stand.client.attach(self.stand.volume())
        for error in (transport.ConnectFailure("no"), transport.Unauthorized("no")):
            with mock.patch("attachd.client.service.Service._ask", side_effect=error) as asked:
                self.assertEqual(["unknown"] * 2, [each.status for each in self.listed()])
            asked.assert_called_once()

    def test_another_service_is_not_asked(self):
        (entry,) = self.stand.entries()
        self.stand.host.journal.write(entry, cloud="http://elsewhere/v3")
        self.assertEqual("unknown", self.one().status)

    def test_a_reservation_that_may_not_have_been_made_is_told(self):
        self.stand.host.journal.write(Entry("v"))
        found = next(each for each in self.listed() if each.volume_id == "v")
        self.assertEqual(
            (None, None, "unknown", "reserving", False),
            (found.attachment_id, found.path, found.status, found.step, found.present),
        )

    def test_a_device_that_cannot_be_looked_at_is_not_there(self):
        error = exception.HostError(reason="no")
        with mock.patch.object(self.stand.host.connector, "is_present", side_effect=error):
            self.assertIs(False, self.one().present)


class RestoreTest(AttachCase):
    """After a reboot."""

    def setUp(self):
        super().setUp()
        self.found = self.attach()

    def reboot(self):
        self.stand.host.connector.devices.clear()
        self.stand.mounts.mounted.clear()
        self.log.lines.clear()

    def restore(self):
        return self.stand.client.restore()

    def test_what_was_attached_is_attached(self):
        self.reboot()
        (told,) = self.restore()
        self.assertEqual((True, "attached", None), (told.present, told.status, told.error))
        self.assert_attached(self.found)
        self.assertFalse([each for each in self.changes() if each.startswith("P")])
        self.assertNotIn("mkfs ext4", self.log.lines)

    def test_what_is_there_is_left_alone(self):
        self.log.lines.clear()
        self.restore()
        self.assertEqual([], self.changes())

    def test_what_is_there_is_mounted(self):
        self.stand.mounts.mounted.clear()
        self.log.lines.clear()
        self.restore()
        self.assert_attached(self.found)
        self.assertNotIn("connector connect", self.log.lines)

    def test_how_it_is_connected_by_now_is_asked(self):
        self.reboot()
        row = db_rows.get_attachment(self.found.attachment_id)
        info = row["connection_info"]
        info["data"]["portal"] = "elsewhere"
        db_rows.change_attachment(self.found.attachment_id, connection_info=info)
        self.restore()
        self.assertEqual("elsewhere", self.entry().connection_info["portal"])
        self.assertIn("shared_targets", self.entry().connection_info)

    def test_nothing_is_connected_without_the_services_word(self):
        self.reboot()
        self.log.fail("GET")
        (told,) = self.restore()
        self.assertEqual((False, "unknown"), (told.present, told.status))
        self.assertIn("local-restore", told.error)
        self.log.heal()
        self.assertIsNone(self.restore()[0].error)
        self.assert_attached(self.found)

    def test_what_is_gone_goes(self):
        self.reboot()
        self.stand.service().delete(self.found.attachment_id)
        (told,) = self.restore()
        self.assertEqual(("gone", False, None), (told.status, told.present, told.path))
        self.assert_nothing_is_left()

    def test_what_fails_is_told_and_stays(self):
        self.reboot()
        self.log.fail("connector connect")
        (told,) = self.restore()
        self.assertEqual(("connector connect broke.", False), (told.error, told.present))
        self.assertEqual("attached", told.step)
        self.log.heal()
        self.assertIsNone(self.restore()[0].error)
        self.assert_attached(self.found)

    def test_what_is_held_by_somebody_is_theirs(self):
        self.reboot()
        with self.stand.host.journal.held(self.volume):
            (told,) = self.restore()
        self.assertIn("Another process", told.error)

    def test_what_was_going_goes(self):
        self.log.fail("connector disconnect")
        self.assertRaises(exception.HostError, self.stand.client.detach, self.volume)
        self.log.heal()
        self.assertEqual([], self.restore())
        self.assert_nothing_is_left()

    def test_what_cannot_be_finished_is_told(self):
        self.log.fail("connector disconnect")
        self.assertRaises(exception.HostError, self.stand.client.detach, self.volume)
        (told,) = self.restore()
        self.assertEqual(("disconnecting", "connector disconnect broke."), (told.step, told.error))
        self.assertIn("connector disconnect broke.", self.stand.said[-1])

    def test_a_device_that_is_nobodys_is_told(self):
        found = Finding(Verdict.UNKNOWN, path="/dev/x", advice="kill 1", error="Nobody knows.")
        with mock.patch("attachd.agent.restore.check_host", lambda _host: [found]):
            self.restore()
        self.assertIn("/dev/x: Nobody knows. End it by: kill 1", self.stand.said)

    def test_what_was_begun_is_finished(self):
        self.stand.client.detach(self.volume)
        self.stand.mounts.systems.clear()
        self.log.fail("connector connect", Killed())
        self.assertRaises(Killed, self.attach)
        self.log.heal()
        (told,) = self.restore()
        self.assertEqual(("attached", True), (told.step, told.present))
        self.assertEqual({"/mnt/disk": told.path}, self.stand.mounts.mounted)

    def test_wherever_it_is_killed(self):
        for end in range(100):
            self.reboot()
            self.log.end = end
            try:
                self.restore()
            except Killed:
                self.log.end = None
            else:
                break
            with self.subTest(end=end, last=self.log.lines[-1:]):
                self.log.fail("POST")
                self.restore()
                self.log.heal()
                self.assert_attached(self.found)
                self.assertEqual(self.found, self.attach())
        self.assertGreater(end, 8)

    def test_what_is_the_agents_is_left_to_it(self):
        self.stand.host.journal.write(self.entry(), owner=Owner.AGENT)
        self.reboot()
        (told,) = self.restore()
        self.assertEqual(("agent", False), (told.owner, told.present))
