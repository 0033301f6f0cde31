# SPDX-License-Identifier: Apache-2.0
"""What the handlers of attachments do, with objects and manager replaced."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api.attachments import handlers, policy
from attachd.conf import CONF
from attachd.tests.unit.api.attachments import test_view

CONNECTOR = {"host": "h"}
CONNECTED = {"connection_info": test_view.ISCSI, "mode": "rw"}


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        CONF([], project="attachd", default_config_files=[])
        self.calls = mock.Mock()
        for name in ("Attachment", "manager_api", "reservation", "telling"):
            where = handlers.connecting if name == "manager_api" else handlers
            patched = self.enterContext(mock.patch.object(where, name))
            setattr(self, name, patched)
            self.calls.attach_mock(patched, name)
        self.ctx = self.calls.ctx
        self.attachment = mock.Mock(wire_state="reserved", **test_view.row())
        self.Attachment.get.return_value = self.attachment
        self.manager_api.attach_alone.return_value = CONNECTED


class UpdateTest(Case):
    def test_it_suffers_no_other_connection(self):
        shown = handlers.update(self.ctx, "a1", {"attachment": {"connector": CONNECTOR}}, None)
        self.assertEqual("reserved", shown["attachment"]["status"])
        self.manager_api.attach_alone.assert_called_once_with(
            self.ctx, self.attachment, CONNECTOR, self.reservation.denied.return_value
        )
        self.ctx.authorize.assert_called_once_with(policy.UPDATE, self.attachment)

    def test_what_an_agent_connects_nobody_else_does(self):
        self.attachment.agent = "node-1"
        with self.assertRaisesRegex(exception.Conflict, "agent of host node-1"):
            handlers.update(self.ctx, "a1", {"attachment": {"connector": CONNECTOR}}, None)
        self.manager_api.attach_alone.assert_not_called()

    def test_a_wrong_connector_is_refused_before_anything_is_loaded(self):
        with self.assertRaises(exception.InvalidInput):
            handlers.update(self.ctx, "a1", {"attachment": {"connector": {"x": 1}}}, None)
        self.Attachment.get.assert_not_called()


class CompleteTest(Case):
    def test_it_answers_nothing(self):
        self.assertIsNone(handlers.complete(self.ctx, "a1"))
        self.ctx.authorize.assert_called_once_with(policy.COMPLETE, self.attachment)
        self.attachment.complete.assert_called_once_with()
        self.telling.of_completion.assert_called_once_with(self.attachment, "reserved")

    def test_what_an_agent_completes_nobody_else_does(self):
        self.attachment.agent = "node-1"
        with self.assertRaisesRegex(exception.Conflict, "agent of host node-1"):
            handlers.complete(self.ctx, "a1")
        self.attachment.complete.assert_not_called()
        self.attachment.wire_state = "attached"
        self.assertIsNone(handlers.complete(self.ctx, "a1"))


class ShowTest(Case):
    def test_it_authorises_on_the_attachment(self):
        self.assertEqual("v1", handlers.show(self.ctx, "a1", None)["attachment"]["volume_id"])
        self.ctx.authorize.assert_called_once_with(policy.SHOW, self.attachment)
