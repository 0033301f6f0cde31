# SPDX-License-Identifier: Apache-2.0
"""How the removal of an attachment begins, by its state."""

from unittest import mock

from attachd import exception
from attachd.closed_hosts import detaches
from attachd.db.attachments import attachment_store
from attachd.rpc import agent_api, manager_api
from attachd.tests.fixtures import api_context, db_rows, fake_agent


class DetachesTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        fake_agent.report_agent("node-1")
        self.agent = self.enterContext(mock.patch.object(agent_api, "reconcile"))
        self.manager = self.enterContext(mock.patch.object(manager_api, "process_pending"))

    def begin(self, state, **values):
        volume_id = db_rows.add_volume()["id"]
        row = db_rows.add_attachment(volume_id, state, agent="node-1", **values)
        ctx = api_context.make_context("admin")
        detaches.begin(ctx, attachment_store.get(row["id"], None))
        rows = db_rows.list_attachments(volume_id)
        return rows[0]["state"] if rows else None

    def test_reservation_is_removed_at_once(self):
        self.assertIsNone(self.begin("reserved"))

    def test_device_is_removed_by_the_agent_first(self):
        self.assertEqual("withdrawing", self.begin("attached", error="busy"))
        self.agent.assert_called_once()
        self.manager.assert_not_called()

    def test_attachment_without_device_is_disconnected_by_the_manager(self):
        for state in ("connecting", "connect_failed", "disconnect_failed"):
            self.assertEqual("disconnecting", self.begin(state))
        self.assertEqual(3, self.manager.call_count)

    def test_lost_message_leaves_the_request(self):
        self.agent.side_effect = exception.Unavailable(reason="x")
        with self.assertLogs("attachd.closed_hosts.detaches", "WARNING"):
            self.assertEqual("withdrawing", self.begin("attached"))
