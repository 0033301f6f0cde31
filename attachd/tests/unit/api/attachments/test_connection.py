# SPDX-License-Identifier: Apache-2.0
"""Tests of connecting and disconnecting, with manager and database replaced."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api.attachments import connection
from attachd.tests.unit.api.attachments import test_view

CONNECTOR = {"host": "h"}
CONNECTED = {"connection_info": test_view.ISCSI, "mode": "rw"}


class ConnectionTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        for name in ("Attachment", "agent_api", "manager_api", "view"):
            setattr(self, name, self.enterContext(mock.patch.object(connection, name)))
        for name in ("connect_shared", "connect_exclusive", "disconnect"):
            setattr(
                self, name, self.enterContext(mock.patch.object(connection.async_requests, name))
            )
        self.ctx, self.async_response = mock.Mock(), mock.Mock()
        self.attachment = mock.Mock(id="a1", volume_id="v1", agent="h", connector=CONNECTOR)

    def call_shared(self, async_response):
        return connection.connect_shared(
            self.ctx, self.attachment, CONNECTOR, None, async_response
        )

    def call_exclusive(self, async_response):
        return connection.connect_exclusive(
            self.ctx, self.attachment, CONNECTOR, "a:rule", None, async_response
        )

    def test_sync_connect_calls_manager_and_records_nothing(self):
        self.assertIs(self.view.show_connected.return_value, self.call_shared(None))
        self.manager_api.attach.assert_called_once_with(self.ctx, self.attachment, CONNECTOR)
        self.assertIs(self.view.show_connected.return_value, self.call_exclusive(None))
        self.manager_api.attach_exclusive.assert_called_once_with(
            self.ctx, self.attachment, CONNECTOR, "a:rule"
        )
        self.connect_shared.assert_not_called()
        self.connect_exclusive.assert_not_called()

    def test_async_connect_records_request_before_notifying_manager(self):
        calls = mock.Mock()
        calls.attach_mock(self.connect_shared, "connect")
        calls.attach_mock(self.manager_api, "manager_api")
        self.assertIs(self.view.show_accepted.return_value, self.call_shared(self.async_response))
        self.assertEqual(
            [
                mock.call.connect("a1", "v1", CONNECTOR),
                mock.call.manager_api.process_pending(self.ctx, self.attachment),
            ],
            calls.mock_calls,
        )
        self.async_response.accept.assert_called_once_with("attachments", "a1")
        self.call_exclusive(self.async_response)
        self.connect_exclusive.assert_called_once_with("a1", "v1", CONNECTOR, "a:rule")

    def test_async_connect_of_connected_attachment_answers_at_once(self):
        self.connect_shared.side_effect = connection.async_requests.AlreadyConnected(CONNECTED)
        self.assertIs(self.view.show_connected.return_value, self.call_shared(self.async_response))
        self.async_response.accept.assert_not_called()
        self.manager_api.process_pending.assert_not_called()

    def test_accept_with_failed_notification_succeeds(self):
        self.manager_api.process_pending.side_effect = exception.Unavailable(reason="away")
        self.call_shared(self.async_response)
        self.async_response.accept.assert_called_once_with("attachments", "a1")

    def test_accept_for_agent_notifies_agent(self):
        tell = (self.ctx, self.attachment, None, self.async_response, connection.notify_agent)
        self.assertIs(self.view.show_accepted.return_value, connection.accept(*tell))
        self.agent_api.request_reconcile.assert_called_once_with(self.ctx, "h", "a1")
        self.manager_api.process_pending.assert_not_called()
        self.agent_api.request_reconcile.side_effect = exception.AgentUnavailable(
            host="h", since="yet"
        )
        connection.accept(*tell)
        self.assertEqual(2, self.async_response.accept.call_count)

    def test_connect_uses_connector_of_reservation(self):
        connection.connect(self.ctx, self.attachment)
        self.manager_api.attach.assert_called_once_with(self.ctx, self.attachment, CONNECTOR)

    def test_refused_async_connect_sends_no_message(self):
        self.disconnect.side_effect = exception.InvalidTransition("no")
        with self.assertRaisesRegex(exception.InvalidTransition, "no"):
            connection.disconnect_async(self.ctx, self.attachment, None, None, self.async_response)
        self.manager_api.process_pending.assert_not_called()
        self.async_response.accept.assert_not_called()
