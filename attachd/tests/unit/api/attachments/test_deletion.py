# SPDX-License-Identifier: Apache-2.0
"""How attachments are deleted, with objects and manager replaced."""

import unittest
from unittest import mock

import webob

from attachd import exception
from attachd.api.attachments import deletion, policy
from attachd.conf import CONF
from attachd.tests.unit.api.attachments import test_view

SEEN = frozenset({"reserved"})
"""What the guard says: nothing else is deleted."""


class DeleteTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        CONF([], project="attachd", default_config_files=[])
        for name in ("Attachment", "manager_api", "reservation", "guard"):
            where = deletion.withdrawal.connecting if name == "manager_api" else deletion
            setattr(self, name, self.enterContext(mock.patch.object(where, name)))
        self.ctx = mock.Mock()
        self.request = webob.Request.blank("/")
        self.attachment = mock.Mock(wire_state="reserved", **test_view.row())
        self.Attachment.get.return_value = self.attachment
        self.reservation.cancel.return_value = None
        self.manager_api.detach.return_value = []
        self.guard.check.return_value = SEEN

    def delete(self):
        return deletion.delete(self.ctx, "a1", self.request, None)

    def test_a_reservation_is_given_up_without_the_manager(self):
        self.reservation.cancel.return_value = [test_view.row(id="a2")]
        self.assertEqual(["a2"], [each["id"] for each in self.delete()["attachments"]])
        self.manager_api.detach.assert_not_called()

    def test_whatever_may_be_connected_is_the_managers(self):
        self.attachment.wire_state = "attached"
        self.assertEqual({"attachments": []}, self.delete())
        self.manager_api.detach.assert_called_once_with(self.ctx, self.attachment, SEEN)

    def test_a_reservation_that_somebody_connects_meanwhile_is_the_managers_too(self):
        self.assertEqual({"attachments": []}, self.delete())
        self.manager_api.detach.assert_called_once_with(self.ctx, self.attachment, SEEN)

    def test_what_a_server_uses_stays(self):
        self.guard.check.side_effect = exception.AttachmentInUse(reason="used")
        with self.assertRaises(exception.AttachmentInUse):
            self.delete()
        self.reservation.cancel.assert_not_called()
        self.manager_api.detach.assert_not_called()

    def test_what_a_server_begins_to_use_at_this_moment_stays(self):
        connecting = mock.Mock(wire_state="attaching")
        self.Attachment.get.side_effect = [self.attachment, connecting]
        self.guard.check.side_effect = [None, exception.AttachmentInUse(reason="used")]
        with self.assertRaises(exception.AttachmentInUse):
            self.delete()
        self.guard.check.assert_called_with(self.ctx, self.request, connecting)
        self.manager_api.detach.assert_not_called()

    def test_under_attachd_1_0_those_are_answered_that_share_its_connection(self):
        answer = {"attachments": [], "shared_connections_by_attachment": []}
        view = self.enterContext(mock.patch.object(deletion, "view"))
        view.still_connected.return_value = answer
        self.attachment.wire_state = "attached"
        self.assertEqual(answer, deletion.delete(self.ctx, "a1", self.request, (1, 0)))
        names = [name for name, _args, _kwargs in view.mock_calls]
        self.assertEqual(["Connection", "still_connected"], names)

    def test_by_force_nobody_is_asked_but_the_policy(self):
        forced = self.enterContext(mock.patch.object(deletion, "forced"))
        forced.is_wanted.return_value = True
        self.delete()
        forced.remove.assert_called_once_with(self.ctx, self.request, self.attachment)
        self.guard.check.assert_not_called()
        asked = [call.args[0] for call in self.ctx.authorize.call_args_list]
        self.assertEqual([policy.DELETE, policy.FORCE], asked)

    def test_force_without_permission_changes_nothing(self):
        forced = self.enterContext(mock.patch.object(deletion, "forced"))
        forced.is_wanted.return_value = True
        self.ctx.authorize.side_effect = [None, exception.Forbidden(action=policy.FORCE)]
        with self.assertRaisesRegex(exception.Forbidden, "attachment_delete_force"):
            self.delete()
        forced.remove.assert_not_called()

    def test_without_permission_nothing_happens(self):
        self.ctx.authorize.side_effect = exception.Forbidden(action=policy.DELETE)
        with self.assertRaises(exception.Forbidden):
            self.delete()
        self.guard.check.assert_not_called()
        self.reservation.cancel.assert_not_called()
