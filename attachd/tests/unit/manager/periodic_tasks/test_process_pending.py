# SPDX-License-Identifier: Apache-2.0
"""Operations that a row requests, for callers that do not wait."""

from unittest import mock

from attachd.db import messages
from attachd.db.attachments import async_requests
from attachd.db.engine.paging import Page
from attachd.manager.periodic_tasks import recovery
from attachd.rpc import agent_api
from attachd.tests.fixtures import backends, db_rows


class ProcessPendingTest(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume()["id"]
        self.attachment_id = db_rows.add_attachment(self.volume)["id"]

    def process_pending(self):
        recovery.process_pending(self.backend, self.attachment_id)

    def test_process_pending_connects_and_disconnects(self):
        async_requests.connect_shared(self.attachment_id, self.volume, db_rows.CONNECTOR)
        self.process_pending()
        self.assertEqual("connected", db_rows.get_attachment(self.attachment_id)["state"])
        async_requests.disconnect(self.attachment_id, self.volume)
        self.process_pending()
        self.assertEqual(["grant", "revoke"], self.driver.methods)
        self.assertEqual([], db_rows.list_attachments())

    def test_process_pending_requests_reconcile_of_agent(self):
        db_rows.change_attachment(self.attachment_id, agent="node-1")
        async_requests.connect_shared(self.attachment_id, self.volume, db_rows.CONNECTOR)
        with (
            mock.patch.object(agent_api, "reconcile") as request,
            self.driver.failing("grant"),
        ):
            self.process_pending()
            request.assert_not_called()
        async_requests.connect_shared(self.attachment_id, self.volume, db_rows.CONNECTOR)
        with mock.patch.object(agent_api, "reconcile") as request:
            self.process_pending()
        request.assert_called_once_with(mock.ANY, "node-1", self.attachment_id)

    def test_process_pending_with_failed_connect_stores_failure(self):
        async_requests.connect_shared(self.attachment_id, self.volume, db_rows.CONNECTOR)
        with self.driver.failing("grant"):
            self.process_pending()
        row = db_rows.get_attachment(self.attachment_id)
        self.assertEqual("connect_failed", row["state"])
        self.assertIn("The backend failed", row["error"])
        self.assertEqual("available", db_rows.get_volume(self.volume)["status"])
        result = messages.page({"resource_uuid": self.volume}, Page(limit=9))
        self.assertEqual([messages.CONNECT], [item["action_id"] for item in result])

    def test_process_pending_with_backend_down_leaves_row_to_recovery(self):
        async_requests.connect_shared(self.attachment_id, self.volume, db_rows.CONNECTOR)
        self.backend.take_down(RuntimeError("away"))
        self.process_pending()
        self.assertEqual("connecting", db_rows.get_attachment(self.attachment_id)["state"])

    def test_process_pending_in_other_state_does_nothing(self):
        self.process_pending()
        self.assertEqual("reserved", db_rows.get_attachment(self.attachment_id)["state"])
        db_rows.remove_attachment(self.attachment_id)
        self.process_pending()
        self.assertEqual([], self.driver.methods)
