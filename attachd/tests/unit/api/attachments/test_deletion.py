# SPDX-License-Identifier: Apache-2.0
"""Tests of the deletion of attachments; those by force use the database."""

from unittest import mock

import webob

from attachd import exception
from attachd.api.attachments import deletion, handlers, lifecycle, policy
from attachd.db import messages
from attachd.db.engine.paging import Page
from attachd.objects import Attachment
from attachd.rpc import manager_api
from attachd.tests.fixtures import api_context, captured_notifications, conf_fixture, db_rows
from attachd.tests.unit.api.attachments import test_view

SEEN = frozenset({"reserved"})
"""The allowed states that the guard returns."""


class DeleteTest(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        self.Attachment, self.detach_guard = mock.Mock(), mock.Mock()
        for module in (handlers, deletion):
            self.enterContext(mock.patch.object(module, "Attachment", self.Attachment))
            self.enterContext(mock.patch.object(module, "detach_guard", self.detach_guard))
        self.cancel = self.enterContext(mock.patch.object(lifecycle, "cancel"))
        self.manager_api = self.enterContext(mock.patch.object(lifecycle, "manager_api"))
        self.ctx = mock.Mock(attachd_version=None)
        self.request = webob.Request.blank("/")
        self.attachment = mock.Mock(wire_state="reserved", **test_view.row())
        self.Attachment.get.return_value = self.attachment
        self.cancel.return_value = None
        self.manager_api.detach.return_value = []
        self.detach_guard.check.return_value = SEEN

    def delete(self, **query):
        return handlers.delete(self.ctx, "a1", query, self.request)

    def replace_force_delete(self):
        return self.enterContext(mock.patch.object(deletion, "force_delete"))

    def test_delete_reservation_skips_manager(self):
        self.cancel.return_value = [test_view.row(id="a2")]
        self.assertEqual(["a2"], [attachment["id"] for attachment in self.delete()["attachments"]])
        self.manager_api.detach.assert_not_called()

    def test_delete_attached_calls_manager(self):
        self.attachment.wire_state = "attached"
        self.assertEqual({"attachments": []}, self.delete())
        self.manager_api.detach.assert_called_once_with(self.ctx, self.attachment, SEEN)

    def test_delete_reservation_connected_meanwhile_calls_manager(self):
        self.assertEqual({"attachments": []}, self.delete())
        self.manager_api.detach.assert_called_once_with(self.ctx, self.attachment, SEEN)

    def test_delete_of_attachment_in_use_is_refused(self):
        self.detach_guard.check.side_effect = exception.AttachmentInUse(reason="used")
        with self.assertRaises(exception.AttachmentInUse):
            self.delete()
        self.cancel.assert_not_called()
        self.manager_api.detach.assert_not_called()

    def test_delete_of_attachment_taken_into_use_meanwhile_is_refused(self):
        connecting = mock.Mock(wire_state="attaching")
        self.Attachment.get.side_effect = [self.attachment, connecting]
        self.detach_guard.check.side_effect = [None, exception.AttachmentInUse(reason="used")]
        with self.assertRaises(exception.AttachmentInUse):
            self.delete()
        self.detach_guard.check.assert_called_with(self.ctx, self.request, connecting)
        self.manager_api.detach.assert_not_called()

    def test_delete_under_attachd_1_0_returns_sharing_attachments(self):
        answer = {"attachments": [], "shared_connections_by_attachment": []}
        view = self.enterContext(mock.patch.object(handlers, "view"))
        view.list_sharing.return_value = answer
        self.attachment.wire_state = "attached"
        self.ctx.attachd_version = (1, 0)
        self.assertEqual(answer, self.delete())
        names = [name for name, _args, _kwargs in view.mock_calls]
        self.assertEqual(["SharedConnection", "list_sharing"], names)

    def test_force_delete_checks_policy_without_guard(self):
        force_delete = self.replace_force_delete()
        self.delete(force="true")
        force_delete.assert_called_once_with(self.ctx, self.request, self.attachment)
        self.detach_guard.check.assert_not_called()
        rules = [call.args[0] for call in self.ctx.authorize.call_args_list]
        self.assertEqual([policy.DELETE, policy.FORCE], rules)

    def test_force_delete_without_permission_changes_nothing(self):
        force_delete = self.replace_force_delete()
        self.ctx.authorize.side_effect = [None, exception.Forbidden(action=policy.FORCE)]
        with self.assertRaisesRegex(exception.Forbidden, "attachment_delete_force"):
            self.delete(force="1")
        force_delete.assert_not_called()

    def test_delete_without_permission_changes_nothing(self):
        self.ctx.authorize.side_effect = exception.Forbidden(action=policy.DELETE)
        with self.assertRaises(exception.Forbidden):
            self.delete()
        self.detach_guard.check.assert_not_called()
        self.cancel.assert_not_called()


SERVER = "11111111-2222-3333-4444-555555555555"


class ForceDeleteTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.detach = self.enterContext(mock.patch.object(manager_api, "force_detach"))
        self.detach.return_value = []
        self.ctx = api_context.make_context(*api_context.ADMIN)
        self.volume = db_rows.add_volume(multiattach=True)["id"]

    def attachment(self, state):
        row = db_rows.add_attachment(self.volume, state, instance_uuid=SERVER)
        return Attachment.get(self.ctx, row["id"])

    def remove(self, state, query="", allowed_states=None):
        attachment = self.attachment(state)
        request = webob.Request.blank(f"/?{query}")
        answer = deletion.force_delete(self.ctx, request, attachment, allowed_states)
        return attachment, answer

    def details(self):
        return [row["details"] for row in messages.page({}, Page(limit=9))]

    def test_force_delete_of_attached_leaves_message_to_manager(self):
        seen = frozenset({"connect_failed"})
        attachment, answer = self.remove("attached", allowed_states=seen)
        self.detach.assert_called_once_with(self.ctx, attachment, seen)
        self.assertEqual({"attachments": []}, answer)
        self.assertEqual([], self.details())

    def test_force_delete_of_reservation_writes_message_without_manager(self):
        other = self.attachment("attached").id
        attachment, answer = self.remove("reserved")
        self.detach.assert_not_called()
        self.assertEqual([other], [item["id"] for item in answer["attachments"]])
        self.assertEqual([{"user_id": "u", "attachment_id": attachment.id}], self.details())

    def test_force_delete_with_failed_message_succeeds(self):
        with mock.patch.object(messages, "create", side_effect=ZeroDivisionError):
            self.remove("reserved")
        self.assertEqual([], db_rows.list_attachments(self.volume))

    def test_force_delete_is_logged(self):
        with self.assertLogs("attachd.api.attachments.deletion", "WARNING") as logged:
            attachment, _answer = self.remove("attached", "override_reason=burnt")
        (text,) = logged.output
        for word in (attachment.id, self.volume, SERVER, "compute-1", ", attached)", "user u",
                     "Reason: burnt"):  # fmt: skip
            self.assertIn(word, text)

    def test_force_delete_sends_notification(self):
        received = captured_notifications.use(self)
        attachment, _answer = self.remove("attached", "override_reason=burnt")
        (message,) = received.messages()
        self.assertEqual(
            ("volume.detach.force", "WARN"), (message["event_type"], message["priority"])
        )
        expected = {"attachment_id": attachment.id, "instance_uuid": SERVER,
                    "attached_host": "compute-1", "user_id": "u", "project_id": db_rows.PROJECT,
                    "reason": "burnt"}  # fmt: skip
        self.assertEqual(expected, message["payload"]["force"])

    def test_force_delete_with_unreadable_reason_is_refused(self):
        with self.assertRaisesRegex(exception.InvalidInput, "override_reason"):
            self.remove("attached", "override_reason=")
        self.detach.assert_not_called()
