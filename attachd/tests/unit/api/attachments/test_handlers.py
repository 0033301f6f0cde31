# SPDX-License-Identifier: Apache-2.0
"""Tests of the endpoints of attachments, with objects and manager replaced."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api import idempotency
from attachd.api import microversions as mv
from attachd.api.attachments import handlers, lifecycle, policy
from attachd.db.attachments import deleted_attachments
from attachd.tests.fixtures import conf_fixture
from attachd.tests.unit.api.attachments import test_view

CONNECTOR = {"host": "h"}
CONNECTED = {"connection_info": test_view.ISCSI, "mode": "rw"}


def replace(test, names):
    """Replace these names of modules; ``test.calls`` records the calls in order."""
    for name, module in names.items():
        replacement = test.enterContext(mock.patch.object(module, name))
        setattr(test, name, replacement)
        test.calls.attach_mock(replacement, name)


def make_attachment():
    row = test_view.row()
    return mock.Mock(wire_state="reserved", **{"to_row.return_value": row}, **row)


class Case(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        self.calls = mock.Mock()
        patched = {"manager_api": lifecycle, "reconnect_denied_rule": lifecycle}
        patched |= {"notify_completed": lifecycle, "Attachment": handlers}
        replace(self, patched)
        self.ctx = self.calls.ctx
        self.ctx.attachd_version = None
        self.attachment = make_attachment()
        self.Attachment.get.return_value = self.attachment
        self.manager_api.attach_exclusive.return_value = CONNECTED


class UpdateTest(Case):
    def test_update_connects_exclusively(self):
        shown = handlers.update(self.ctx, "a1", {"attachment": {"connector": CONNECTOR}})
        self.assertEqual("reserved", shown["attachment"]["status"])
        self.manager_api.attach_exclusive.assert_called_once_with(
            self.ctx,
            self.attachment,
            CONNECTOR,
            self.reconnect_denied_rule.return_value,
        )
        self.ctx.authorize.assert_called_once_with(policy.UPDATE, self.attachment)

    def test_update_of_attachment_with_agent_is_refused(self):
        self.attachment.agent = "node-1"
        with self.assertRaisesRegex(exception.Conflict, "agent of host node-1"):
            handlers.update(self.ctx, "a1", {"attachment": {"connector": CONNECTOR}})
        self.manager_api.attach_exclusive.assert_not_called()

    def test_update_with_invalid_connector_loads_nothing(self):
        with self.assertRaises(exception.InvalidInput):
            handlers.update(self.ctx, "a1", {"attachment": {"connector": {"x": 1}}})
        self.Attachment.get.assert_not_called()


class CompleteTest(Case):
    def test_complete_returns_nothing_and_notifies(self):
        self.assertIsNone(handlers.complete(self.ctx, "a1"))
        self.ctx.authorize.assert_called_once_with(policy.COMPLETE, self.attachment)
        self.attachment.complete.assert_called_once_with()
        self.notify_completed.assert_called_once_with(self.attachment, "reserved")

    def test_complete_of_attachment_with_agent_is_refused(self):
        self.attachment.agent = "node-1"
        with self.assertRaisesRegex(exception.Conflict, "agent of host node-1"):
            handlers.complete(self.ctx, "a1")
        self.attachment.complete.assert_not_called()
        self.attachment.wire_state = "attached"
        self.assertIsNone(handlers.complete(self.ctx, "a1"))


class ShowTest(Case):
    def test_show_authorises_on_attachment(self):
        self.assertEqual("v1", handlers.show(self.ctx, "a1")["attachment"]["volume_id"])
        self.ctx.authorize.assert_called_once_with(policy.SHOW, self.attachment)

    def test_show_deleted_needs_attachd_1_1_and_authorises_on_it(self):
        self.Attachment.get.side_effect = exception.AttachmentNotFound(attachment_id="a1")
        found = deleted_attachments.DeletedAttachment("a1", "p", "v1", test_view.MOMENT)
        ctx = mock.Mock(is_admin=False, project_id="p", attachd_version=mv.ATTACHD_1_1)
        with mock.patch.object(deleted_attachments, "find", return_value=found):
            shown = handlers.show(ctx, "a1")["attachment"]
            ctx.authorize.assert_called_once_with(policy.SHOW, found)
            for changed in ({"attachd_version": mv.ATTACHD_1_0}, {"project_id": "q"}):
                ctx.configure_mock(attachd_version=mv.ATTACHD_1_1, project_id="p")
                ctx.configure_mock(**changed)
                with self.assertRaises(exception.AttachmentNotFound):
                    handlers.show(ctx, "a1")
        self.assertEqual(
            ("deleted", test_view.MOMENT, "", "null"),
            tuple(shown[name] for name in ("status", "detached_at", "attached_at", "attach_mode")),
        )


ID = "11111111-2222-3333-4444-555555555555"


class CreateTest(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        self.calls = mock.Mock()
        patched = dict.fromkeys(("manager_api", "get_or_create", "abandon"), lifecycle)
        replace(self, {"Volume": handlers, **patched})
        self.ctx = self.calls.ctx
        self.ctx.attachd_version = None
        self.attachment = make_attachment()
        self.volume = self.Volume.get.return_value
        self.get_or_create.return_value = self.attachment
        self.manager_api.attach.return_value = CONNECTED

    def create(self, **fields):
        return handlers.create(self.ctx, {"attachment": {"volume_uuid": ID, **fields}}, {})

    def test_create_without_connector_only_reserves(self):
        for connector in ({}, {"connector": {}}, {"connector": None}):
            with self.subTest(connector):
                fields = {"instance_uuid": ID.replace("-", ""), "mode": "ro", **connector}
                shown = self.create(**fields)["attachment"]
                self.assertEqual({}, shown["connection_info"])
                requested = {**fields, "volume_uuid": ID, "instance_uuid": ID}
                self.get_or_create.assert_called_with(self.ctx, self.volume, requested, None)
        self.manager_api.attach.assert_not_called()

    def test_create_authorises_then_reserves_then_connects(self):
        shown = self.create(connector=CONNECTOR)["attachment"]
        self.assertEqual("iscsi", shown["connection_info"]["driver_volume_type"])
        names = [name for name, _, _ in self.calls.mock_calls if "()" not in name]
        self.assertEqual(
            [
                "Volume.get",
                "ctx.authorize",
                "get_or_create",
                "manager_api.attach",
            ],
            names,
        )
        self.ctx.authorize.assert_called_once_with(policy.CREATE, self.volume)

    def test_create_with_invalid_connector_reserves_nothing(self):
        with self.assertRaises(exception.InvalidInput):
            self.create(connector={"ip": "1"})
        self.get_or_create.assert_not_called()

    def test_create_with_failed_connect_raises_connect_failed(self):
        self.manager_api.attach.side_effect = exception.ConnectFailed(
            attachment_id="a1", reason="no"
        )
        with self.assertRaisesRegex(exception.ConnectFailed, "Attachment a1"):
            self.create(connector=CONNECTOR)

    def test_create_with_unavailable_manager_abandons_reservation(self):
        self.manager_api.attach.side_effect = exception.Unavailable(reason="no manager")
        with self.assertRaisesRegex(exception.Unavailable, "no manager"):
            self.create(connector=CONNECTOR)
        self.abandon.assert_called_once_with(self.attachment, None)

    def test_create_without_connector_keeps_reservation(self):
        self.create()
        self.abandon.assert_not_called()


class ListsTest(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        self.db = self.enterContext(mock.patch.object(handlers, "attachment_queries"))
        self.db.page.return_value = [test_view.row()]
        self.db.page_with_secrets.return_value = [test_view.row()]
        self.ctx = mock.Mock(
            is_admin=False, project_id="p", service_roles=[], attachd_version=None
        )

    def test_index_reads_no_secrets(self):
        (shown,) = handlers.index(self.ctx, {"limit": "5"}, mv.LATEST, None)["attachments"]
        self.assertEqual({"id", "status", "instance", "volume_id"}, set(shown))
        self.db.page_with_secrets.assert_not_called()
        parsed, page = self.db.page.call_args.args
        self.assertEqual(({"project_id": "p"}, 5), (parsed, page.limit))

    def test_detail_reads_one_query(self):
        (shown,) = handlers.detail(self.ctx, {}, mv.LATEST, None)["attachments"]
        self.assertIn("connection_info", shown)
        self.db.page_with_secrets.assert_called_once()

    def test_index_and_detail_take_ext_filters(self):
        query = {"agent": "node1"}
        self.ctx.attachd_version = mv.ATTACHD_1_0
        for list_, parsed in (
            (handlers.index, self.db.page),
            (handlers.detail, self.db.page_with_secrets),
        ):
            parsed.return_value = []
            list_(self.ctx, query, mv.LATEST, None)
            self.assertEqual({"project_id": "p", **query}, parsed.call_args.args[0])


RESERVED = {"attachment": {"id": "a1", "status": "reserved", "connection_info": {}}}
SHOWN = {
    "attachment": {"id": "a1", "connection_info": {"auth_password": "x"}, "attached_host": "h"}
}


class IdempotencyTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        for name in ("Attachment", "view"):
            setattr(self, name, self.enterContext(mock.patch.object(handlers, name)))
        self.view.show.return_value = {
            "attachment": {"id": "a1", "status": "attached", "connection_info": {"now": 1}}
        }
        self.Attachment.get.return_value = mock.Mock(agent=None)
        self.ctx = mock.Mock()

    def replay(self, answer):
        return handlers.IDEMPOTENCY_SPEC.remake(
            self.ctx, "a1", handlers.IDEMPOTENCY_SPEC.keep(answer)
        )

    def test_replay_of_reservation_returns_stored_answer(self):
        self.assertEqual(RESERVED, self.replay(RESERVED))
        self.view.show.assert_not_called()

    def test_replay_with_connection_reads_it_from_attachment(self):
        self.assertNotIn("auth_password", str(handlers.IDEMPOTENCY_SPEC.keep(SHOWN)))
        again = self.replay(SHOWN)["attachment"]
        self.assertEqual({**SHOWN["attachment"], "connection_info": {"now": 1}}, again)
        self.assertEqual(list(SHOWN["attachment"]), list(again))

    def test_replay_of_attachment_with_agent_returns_current_state(self):
        self.Attachment.get.return_value = mock.Mock(agent="node-1")
        self.assertEqual(self.view.show.return_value, self.replay(RESERVED))

    def test_replay_of_deleted_attachment_raises_key_resource_gone(self):
        self.Attachment.get.side_effect = exception.AttachmentNotFound(attachment_id="a1")
        for answer in (RESERVED, SHOWN):
            with self.assertRaisesRegex(idempotency.KeyResourceGone, "attachment a1, has been"):
                self.replay(answer)
