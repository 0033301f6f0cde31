# SPDX-License-Identifier: Apache-2.0
"""The Python API for programs."""

import unittest
from unittest import mock

from keystoneauth1 import exceptions as transport
from openstack import exceptions

from attachd import client, exception
from attachd.agent.connectors.base import Options
from attachd.agent.journal import Entry, Owner
from attachd.agent.restore import Finding, Verdict
from attachd.agent.staging import Publication, Staging
from attachd.tests.fixtures import db_rows
from attachd.tests.unit.client.fake_deployment import (
    INFO,
    AttachCase,
    FakeDeployment,
    ProcessKilled,
)


class ClientTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.deployment = FakeDeployment(self)
        self.volume = self.deployment.volume(name="disk")
        self.client = self.deployment.client

    def test_connection_is_that_of_caller(self):
        connection = self.deployment.connection()
        self.assertIs(connection, client.Client(connection, self.deployment.host).connection)

    def test_client_without_progress_callback_attaches_and_detaches(self):
        quiet = client.Client(self.deployment.connection(), self.deployment.host)
        quiet.attach("disk")
        quiet.detach("disk")

    def test_get_connector_has_host_name(self):
        self.assertEqual("here", self.client.get_connector()["host"])
        self.assertEqual("here", self.client.get_connector(Options(multipath=True))["host"])

    def test_attach_returns_volume_mode_and_device(self):
        found = self.client.attach("disk")
        self.assertIsInstance(found, client.Attached)
        self.assertEqual(
            (self.volume, "rw", None), (found.volume_id, found.mode, found.mountpoint)
        )
        self.assertEqual({**INFO, "path": found.path}, found.device)

    def test_attach_stores_options_in_journal(self):
        self.client.attach("disk", options=Options(multipath=True))
        self.assertEqual(Options(multipath=True), self.deployment.entries()[0].options)

    def test_attach_with_invalid_options_raises_before_first_request(self):
        for how in ({"mode": "wo"}, {"mode": "ro", "mkfs": "ext4"}):
            with self.assertRaises(exception.HostError):
                self.client.attach("disk", **how)
        with self.assertRaisesRegex(exception.HostError, "kind"):
            self.client.attach("disk", mkfs="../ext4")
        self.assertEqual([], self.deployment.log.lines)

    def test_attach_unknown_volume_raises_not_found(self):
        with self.assertRaises(exceptions.NotFoundException):
            self.client.attach("disc")
        self.assertEqual([], self.deployment.entries())


class AttachedTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.deployment = FakeDeployment(self)
        self.volume = self.deployment.volume()
        self.attached = self.deployment.client.attach(self.volume)

    def listed(self):
        return self.deployment.client.attached()

    def one(self):
        (found,) = self.listed()
        return found

    def test_attached_lists_all_fields(self):
        found = self.one()
        self.assertEqual(self.attached.attachment_id, found.attachment_id)
        self.assertEqual((self.volume, self.attached.path), (found.volume_id, found.path))
        self.assertEqual(
            ("attached", "attached", "local"), (found.status, found.step, found.owner)
        )
        self.assertEqual((True, "rw", None), (found.present, found.mode, found.error))
        self.assertIsNone(found.mountpoint)

    def test_attached_lists_paths_of_containers(self):
        self.assertIsNone(self.one().published)
        (entry,) = self.deployment.entries()
        publications = (Publication("/pods/1"), Publication("/pods/2"))
        staging = Staging("/staging", "ext4", publications=publications)
        self.deployment.host.journal.write(entry, staging=staging)
        self.assertEqual("/pods/1, /pods/2", self.one().published)

    def test_attached_counts_uses_by_docker(self):
        (entry,) = self.deployment.entries()
        for uses, expected in ((("a",), "/data (1 use)"), (("a", "b"), "/data (2 uses)")):
            staging = Staging("/data", "ext4", uses=uses)
            entry = self.deployment.host.journal.write(entry, staging=staging)
            self.assertEqual(expected, self.one().published)

    def test_attached_with_deleted_attachment_has_status_gone(self):
        self.deployment.service().delete(self.attached.attachment_id)
        self.deployment.host.connector.devices.clear()
        self.assertEqual(("gone", False), (self.one().status, self.one().present))

    def test_attached_with_unreachable_service_asks_once_and_has_status_unknown(self):
        self.deployment.client.attach(self.deployment.volume())
        for error in (transport.ConnectFailure("no"), transport.Unauthorized("no")):
            with mock.patch("attachd.client.service.Service._ask", side_effect=error) as asked:
                self.assertEqual(["unknown"] * 2, [item.status for item in self.listed()])
            asked.assert_called_once()

    def test_attached_of_other_cloud_has_status_unknown(self):
        (entry,) = self.deployment.entries()
        self.deployment.host.journal.write(entry, cloud="http://elsewhere/v3")
        self.assertEqual("unknown", self.one().status)

    def test_attached_lists_uncertain_reservation(self):
        self.deployment.host.journal.write(Entry("v"))
        found = next(item for item in self.listed() if item.volume_id == "v")
        self.assertEqual(
            (None, None, "unknown", "reserving", False),
            (found.attachment_id, found.path, found.status, found.step, found.present),
        )

    def test_attached_with_unreadable_device_is_not_present(self):
        error = exception.HostError(reason="no")
        with mock.patch.object(self.deployment.host.connector, "is_present", side_effect=error):
            self.assertIs(False, self.one().present)


class RestoreTest(AttachCase):
    """restore() after a reboot."""

    def setUp(self):
        super().setUp()
        self.found = self.attach()

    def reboot(self):
        self.deployment.host.connector.devices.clear()
        self.deployment.mounts.mounted.clear()
        self.log.lines.clear()

    def restore(self):
        return self.deployment.client.restore()

    def test_restore_after_reboot_attaches_without_service_changes(self):
        self.reboot()
        (restored,) = self.restore()
        self.assertEqual(
            (True, "attached", None), (restored.present, restored.status, restored.error)
        )
        self.assert_attached(self.found)
        self.assertFalse([change for change in self.changes() if change.startswith("P")])
        self.assertNotIn("mkfs ext4", self.log.lines)

    def test_restore_with_present_device_changes_nothing(self):
        self.log.lines.clear()
        self.restore()
        self.assertEqual([], self.changes())

    def test_restore_with_present_device_mounts_it(self):
        self.deployment.mounts.mounted.clear()
        self.log.lines.clear()
        self.restore()
        self.assert_attached(self.found)
        self.assertNotIn("connector connect", self.log.lines)

    def test_restore_uses_current_connection_info_of_service(self):
        self.reboot()
        row = db_rows.get_attachment(self.found.attachment_id)
        info = row["connection_info"]
        info["data"]["portal"] = "elsewhere"
        db_rows.change_attachment(self.found.attachment_id, connection_info=info)
        self.restore()
        self.assertEqual("elsewhere", self.entry().connection_info["portal"])
        self.assertIn("shared_targets", self.entry().connection_info)

    def test_restore_with_unavailable_service_connects_nothing(self):
        self.reboot()
        self.log.fail("GET")
        (restored,) = self.restore()
        self.assertEqual((False, "unknown"), (restored.present, restored.status))
        self.assertIn("local-restore", restored.error)
        self.log.heal()
        self.assertIsNone(self.restore()[0].error)
        self.assert_attached(self.found)

    def test_restore_of_deleted_attachment_removes_entry(self):
        self.reboot()
        self.deployment.service().delete(self.found.attachment_id)
        (restored,) = self.restore()
        self.assertEqual(("gone", False, None), (restored.status, restored.present, restored.path))
        self.assert_nothing_is_left()

    def test_restore_that_fails_keeps_entry_with_error(self):
        self.reboot()
        self.log.fail("connector connect")
        (restored,) = self.restore()
        self.assertEqual(("connector connect broke.", False), (restored.error, restored.present))
        self.assertEqual("attached", restored.step)
        self.log.heal()
        self.assertIsNone(self.restore()[0].error)
        self.assert_attached(self.found)

    def test_restore_of_volume_locked_by_other_process_reports_error(self):
        self.reboot()
        with self.deployment.host.journal.volume_lock(self.volume):
            (restored,) = self.restore()
        self.assertIn("Another process", restored.error)

    def test_restore_finishes_interrupted_detach(self):
        self.log.fail("connector disconnect")
        self.assertRaises(exception.HostError, self.deployment.client.detach, self.volume)
        self.log.heal()
        self.assertEqual([], self.restore())
        self.assert_nothing_is_left()

    def test_restore_that_cannot_finish_detach_reports_error(self):
        self.log.fail("connector disconnect")
        self.assertRaises(exception.HostError, self.deployment.client.detach, self.volume)
        (restored,) = self.restore()
        self.assertEqual("disconnecting", restored.step)
        self.assertRegex(
            restored.error, r"\Aconnector disconnect broke\. .*local-detach.* --force"
        )
        self.assertIn("connector disconnect broke.", self.deployment.said[-1])

    def test_restore_reports_unknown_device_with_command(self):
        found = Finding(Verdict.UNKNOWN, path="/dev/x", advice="kill 1", error="Unknown.")
        with mock.patch("attachd.agent.restore.check_host", lambda _host: [found]):
            self.restore()
        self.assertIn("/dev/x: Unknown. End it by: kill 1", self.deployment.said)

    def test_restore_finishes_interrupted_attach(self):
        self.deployment.client.detach(self.volume)
        self.deployment.mounts.systems.clear()
        self.log.fail("connector connect", ProcessKilled())
        self.assertRaises(ProcessKilled, self.attach)
        self.log.heal()
        (restored,) = self.restore()
        self.assertEqual(("attached", True), (restored.step, restored.present))
        self.assertEqual({"/mnt/disk": restored.path}, self.deployment.mounts.mounted)

    def test_restore_killed_at_each_step_can_be_repeated(self):
        for end in range(100):
            self.reboot()
            self.log.end = end
            try:
                self.restore()
            except ProcessKilled:
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

    def test_restore_leaves_attachments_of_agent(self):
        self.deployment.host.journal.write(self.entry(), owner=Owner.AGENT)
        self.reboot()
        (restored,) = self.restore()
        self.assertEqual(("agent", False), (restored.owner, restored.present))
