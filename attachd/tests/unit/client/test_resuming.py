# SPDX-License-Identifier: Apache-2.0
"""How an attach that was killed, or is called again, goes on."""

from unittest import mock

from openstack import exceptions

from attachd import exception
from attachd.agent.journal import Owner, Step
from attachd.client import attaching
from attachd.tests import rows
from attachd.tests.unit.client.stand import AttachCase, Killed


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
        made = rows.add_attachment(self.volume, "attached", connector=connector, host="here")
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
                    with mock.patch.object(attaching.Attaching, "_undo", side_effect=Killed):
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
        info = rows.attachment(found.attachment_id)["connection_info"]
        info["data"]["portal"] = "elsewhere"
        rows.change_attachment(found.attachment_id, connection_info=info)
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
