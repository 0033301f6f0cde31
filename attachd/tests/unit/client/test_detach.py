# SPDX-License-Identifier: Apache-2.0
"""The way back: its order, what a failure leaves, and how a killed one goes on."""

import unittest
from unittest import mock

from openstack import exceptions

from attachd import exception
from attachd.agent.journal import Entry, Step
from attachd.client import attach
from attachd.client.detach import command
from attachd.tests.fixtures import db_rows
from attachd.tests.unit.client.stand import Killed, Stand


class DetachTest(unittest.TestCase):
    """A volume that is attached and mounted."""

    maxDiff = None

    def setUp(self):
        super().setUp()
        self.stand = Stand(self)
        self.log = self.stand.log
        self.volume = self.stand.volume()
        patch = mock.patch.object(attach, "check_mountpoint")
        patch.start()
        self.addCleanup(patch.stop)
        self.attach()

    def attach(self):
        wanted = {"mountpoint": "/mnt/disk", "mkfs": "ext4"}
        self.attached = self.stand.client.attach(self.volume, **wanted)
        self.log.lines.clear()

    def detach(self, **how):
        self.stand.client.detach(self.volume, **how)

    def entry(self):
        (entry,) = self.stand.entries()
        return entry

    def changes(self):
        return [each for each in self.log.lines if not each.startswith(("GET", "check"))]

    def assert_nothing_is_left(self):
        self.assertEqual([], self.stand.entries())
        self.assertEqual([], self.stand.attachments(self.volume))
        self.assertEqual(set(), self.stand.host.connector.devices)
        self.assertEqual({}, self.stand.mounts.mounted)

    def test_each_step_is_in_the_journal_before_it_is_taken(self):
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

    def test_wherever_it_is_killed(self):
        for end in range(100):
            self.log.end = end
            try:
                self.detach()
            except Killed:
                self.log.end = None
            else:
                break
            with self.subTest(end=end, last=self.log.lines[-1:]):
                if self.stand.entries():
                    self.detach()
                self.assert_nothing_is_left()
                self.stand.mounts.systems.clear()
                self.attach()
        self.assertGreater(end, 18)

    def test_an_attach_after_a_killed_one_is_a_new_one(self):
        before = self.attached
        self.log.fail("connector disconnect", Killed())
        self.assertRaises(Killed, self.detach)
        self.log.heal()
        self.attach()
        self.assertNotEqual(before.attachment_id, self.attached.attachment_id)
        self.assertEqual([self.attached.attachment_id], [each["id"] for each in self.remote()])

    def remote(self):
        return self.stand.attachments(self.volume)

    def test_a_mount_in_use_stays(self):
        before = self.entry()
        self.log.fail("unmount", exception.DeviceBusy(device="/mnt/disk", users="somebody"))
        self.assertRaises(exception.DeviceBusy, self.detach)
        after = self.entry()
        self.assertEqual((Step.ATTACHED, "/mnt/disk"), (after.step, after.mountpoint))
        self.assertEqual(before.device, after.device)
        self.assertEqual(["attached"], [each["status"] for each in self.remote()])

    def test_a_device_in_use_stays_attached(self):
        self.stand.mounts.users.add(self.attached.path)
        self.assertRaises(exception.DeviceBusy, self.detach)
        self.assertEqual((Step.ATTACHED, None), (self.entry().step, self.entry().mountpoint))
        self.assertNotIn("connector disconnect", self.log.lines)
        self.assertEqual(["attached"], [each["status"] for each in self.remote()])
        self.detach(force=True)
        self.assertIn("connector disconnect by force", self.log.lines)
        self.assert_nothing_is_left()

    def test_force_leaves_a_mount_in_use(self):
        self.log.fail("unmount", exception.DeviceBusy(device="/mnt/disk", users="somebody"))
        self.detach(force=True)
        self.assertEqual(([], []), (self.stand.entries(), self.remote()))
        self.assertIn("connector disconnect by force", self.log.lines)

    def test_a_device_that_cannot_be_taken_away_keeps_its_attachment(self):
        self.log.fail("connector disconnect")
        self.assertRaises(exception.HostError, self.detach)
        self.assertIs(Step.DISCONNECTING, self.entry().step)
        self.assertEqual("connector disconnect broke.", self.entry().error)
        self.assertEqual(["attached"], [each["status"] for each in self.remote()])
        self.log.heal()
        self.detach()
        self.assert_nothing_is_left()

    def test_a_service_that_fails_is_asked_again(self):
        for late in (False, True):
            self.log.fail("DELETE", late=late)
            with self.assertRaisesRegex(exception.DetachFailed, "local-detach") as caught:
                self.detach()
            self.assertIsInstance(caught.exception.cause, exceptions.HttpException)
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

    def test_an_attachment_that_is_gone_is_deleted_already(self):
        self.stand.service().delete(self.attached.attachment_id)
        self.detach()
        self.assert_nothing_is_left()

    def test_a_volume_that_is_gone_is_known_by_its_id(self):
        self.stand.service().delete(self.attached.attachment_id)
        self.stand.api.ask("DELETE", f"/volumes/{self.volume}")
        self.detach()
        self.assertEqual([], self.stand.entries())
        self.assertEqual(set(), self.stand.host.connector.devices)

    def test_what_others_have_mounted_there_stays(self):
        self.detach()
        self.stand.mounts.mounted["/mnt/disk"] = "/dev/of-somebody-else"
        self.log.fail("POST attachments action")
        self.assertRaises(exceptions.HttpException, self.attach)
        self.assertEqual({"/mnt/disk": "/dev/of-somebody-else"}, self.stand.mounts.mounted)

    def test_it_is_told(self):
        self.stand.said.clear()
        self.detach()
        said = " / ".join(self.stand.said)
        for word in ("Unmounting", "Disconnecting", "Deleting"):
            self.assertIn(word, said)

    def test_the_host_is_looked_at_first(self):
        self.log.fail("check", exception.MissingRequirements(host="here", what="root"))
        self.assertRaises(exception.MissingRequirements, self.detach)
        self.assertEqual([], self.changes())


class ReservationTest(unittest.TestCase):
    """Nobody knows whether there is one."""

    def setUp(self):
        super().setUp()
        self.stand = Stand(self)
        self.volume = self.stand.volume()
        self.entry = self.stand.host.journal.write(Entry(self.volume))

    def test_one_that_was_made_is_deleted(self):
        self.stand.service().reserve(self.volume, "rw", self.entry.id)
        self.stand.client.detach(self.volume)
        self.assertEqual(([], []), (self.stand.entries(), self.stand.attachments(self.volume)))

    def test_one_that_was_not_made_is_not_there_afterwards(self):
        self.stand.client.detach(self.volume)
        self.assertEqual(([], []), (self.stand.entries(), self.stand.attachments(self.volume)))

    def test_somebody_elses_stays(self):
        made = db_rows.add_attachment(self.volume)
        self.stand.client.detach(self.volume)
        self.assertEqual([], self.stand.entries())
        self.assertEqual([made["id"]], [e["id"] for e in self.stand.attachments(self.volume)])

    def test_what_people_type_names_the_attachment_where_it_is_known(self):
        self.assertEqual("attachd local-detach v", command(Entry("v")))
        self.assertEqual(
            "attachd local-detach --attachment-id a v", command(Entry("v", attachment_id="a"))
        )
