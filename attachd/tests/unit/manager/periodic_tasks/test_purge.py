# SPDX-License-Identifier: Apache-2.0
"""Old rows and expired reservations are removed, others are kept."""

import datetime
from unittest import mock

from attachd import exception
from attachd.db import host_identities, idempotency_keys, messages, models
from attachd.db.attachments import attachment_store, events
from attachd.db.engine import paging, session
from attachd.manager import attach
from attachd.manager.ownership.membership import Membership
from attachd.manager.periodic_tasks import purge
from attachd.states import AttachmentKind, Event
from attachd.tests.fixtures import backends, databases, db_rows


class PurgeTaskTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.task = purge.PurgeTask(Membership())

    def fill(self):
        idempotency_keys.claim("d", "f", 60)
        row = {"id": models.new_id(), "project_id": db_rows.PROJECT, "volume_id": models.new_id()}
        for _ in range(3):
            with session.writer() as connection:
                events.record(connection, row, "reserved")

    def test_purge_keeps_new_rows(self):
        self.fill()
        self.task.run_once()
        self.assertEqual((3, 0), events.sequence())
        self.assertIsNotNone(idempotency_keys.get("d"))

    def test_purge_removes_old_rows_in_batches(self):
        self.fill()
        later = models.now().replace(year=9000)
        moments = mock.patch.object(models, "now", return_value=later)
        clock = mock.patch.object(purge.models, "now", return_value=later)
        with moments, clock, mock.patch.object(purge, "BATCH_SIZE", 2):
            self.task.run_once()
        self.assertEqual((3, 3), events.sequence())
        self.assertIsNone(idempotency_keys.get("d"))
        self.assertEqual(0, messages.purge(9))

    def test_each_kind_is_removed_in_batches_until_none_is_left(self):
        kinds = (messages, idempotency_keys, host_identities, events)
        counts = [
            self.enterContext(mock.patch.object(kind, "purge", side_effect=[1000, 7, 0]))
            for kind in kinds
        ]
        self.task.run_once()
        for purged in counts:
            self.assertEqual([purge.BATCH_SIZE] * 3, [call.args[-1] for call in purged.mock_calls])

    def test_failure_of_one_kind_leaves_others_removed(self):
        self.fill()
        later = models.now().replace(year=9000)
        for error in (exception.Unavailable(reason="timeout"), ValueError):
            with (
                mock.patch.object(messages, "purge", side_effect=error),
                mock.patch.object(models, "now", return_value=later),
                self.assertLogs(purge.LOG.name, "WARNING"),
            ):
                self.task.run_once()
        self.assertEqual((3, 3), events.sequence())
        self.assertIsNone(idempotency_keys.get("d"))


class ExpireAttachmentsTest(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume()["id"]
        self.past = models.now() - datetime.timedelta(seconds=1)
        self.notify = self.enterContext(mock.patch("attachd.notifications.volume"))

    def _add(self, **values):
        return db_rows.add_attachment(self.volume_id, expires_at=self.past, **values)["id"]

    def test_expire_attachments_removes_expired_and_frees_volume(self):
        attachment_id = self._add()
        self.assertEqual(1, purge.expire_attachments(self.backend))
        self.assertEqual([], db_rows.list_attachments(self.volume_id))
        self.assertEqual("available", db_rows.get_volume(self.volume_id)["status"])
        events = [call.args[0] for call in self.notify.call_args_list]
        self.assertEqual(["detach.start", "detach.end"], events)
        (message,) = messages.page({}, paging.Page(limit=10, sort=(("created_at", "asc"),)))
        self.assertEqual(
            (messages.EXPIRED, self.volume_id, {"attachment_id": attachment_id}),
            (message["detail_id"], message["resource_uuid"], message["details"]),
        )
        self.assertEqual([], self.backend.driver.methods)

    def test_expire_attachments_after_failed_connect_revokes_and_frees_volume(self):
        for kind in (AttachmentKind.ATTACHMENT, AttachmentKind.CONNECTION):
            with self.subTest(kind=kind):
                self._add(state="connect_failed", kind=kind)
                self.assertEqual(1, purge.expire_attachments(self.backend))
                self.assertEqual([], db_rows.list_attachments(self.volume_id))
                self.assertEqual(["revoke"], self.backend.driver.methods)
                self.backend.driver.driver_calls.clear()

    def test_failed_connect_expires_after_its_ttl(self):
        attachment_id = db_rows.add_attachment(self.volume_id)["id"]
        with self.backend.driver.failing("grant"), self.assertRaises(exception.ConnectFailed):
            attach.attach(self.backend, attachment_id, self.volume_id, db_rows.CONNECTOR)
        left = db_rows.get_attachment(attachment_id)["expires_at"] - models.now()
        self.assertAlmostEqual(attachment_store.FAILED_TTL, left.total_seconds(), delta=60)

    def test_expire_attachments_keeps_failed_row_connected_meanwhile(self):
        attachment_id = self._add(state="connect_failed")
        self._meanwhile(
            lambda: attach.attach(self.backend, attachment_id, self.volume_id, db_rows.CONNECTOR)
        )
        self.assertEqual(0, purge.expire_attachments(self.backend))
        self.assertEqual("connected", db_rows.get_attachment(attachment_id)["state"])

    def test_expire_attachments_keeps_other_rows(self):
        db_rows.add_attachment(self.volume_id)
        self.assertEqual(0, purge.expire_attachments(self.backend))
        self.assertEqual(1, len(db_rows.list_attachments(self.volume_id)))

    def test_expire_attachments_keeps_rows_of_agents(self):
        attachment_id = self._add(state="withdrawing", agent="node-1")
        self.assertEqual(0, purge.expire_attachments(self.backend))
        self.assertEqual("withdrawing", db_rows.get_attachment(attachment_id)["state"])

    def _meanwhile(self, change):
        """Change rows between the query and the removal."""
        found = attachment_store.list_expired(backends.HOST)

        def expired(_backend):
            change()
            return found

        self.enterContext(mock.patch.object(attachment_store, "list_expired", expired))

    def test_expire_attachments_keeps_row_connected_meanwhile(self):
        attachment_id = self._add()
        self._meanwhile(
            lambda: attach.attach(self.backend, attachment_id, self.volume_id, db_rows.CONNECTOR)
        )
        self.assertEqual(0, purge.expire_attachments(self.backend))
        self.assertEqual("connected", db_rows.get_attachment(attachment_id)["state"])

    def test_expire_attachments_of_row_removed_meanwhile_notifies_once(self):
        attachment_id = self._add()
        self._meanwhile(
            lambda: attachment_store.transition(attachment_id, self.volume_id, Event.CANCEL)
        )
        self.assertEqual(0, purge.expire_attachments(self.backend))
        self.notify.assert_not_called()

    def test_expire_attachments_keeps_row_prolonged_meanwhile(self):
        attachment_id = self._add()
        self._meanwhile(lambda: db_rows.change_attachment(attachment_id, expires_at=None))
        self.assertEqual(0, purge.expire_attachments(self.backend))
        self.assertEqual("reserved", db_rows.get_attachment(attachment_id)["state"])
