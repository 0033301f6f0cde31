# SPDX-License-Identifier: Apache-2.0
"""Tests of attaching on a host by name: agent and manager are fakes, the database is real."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api import idempotency
from attachd.api.attachments import agent_attach, handlers, lifecycle, policy
from attachd.db import idempotency_keys
from attachd.db.agents import agent_transitions, restored_database
from attachd.objects import Attachment, Volume
import attachd.rpc.agent_api
import attachd.rpc.manager_api
from attachd.tests.fixtures import api_context, conf_fixture, db_rows, fake_agent

HOST = "node-1"
ATTACHD_1_0 = (1, 0)
SERVER = "11111111-2222-3333-4444-555555555555"


class Case(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        fake_agent.report_agent(HOST)
        self.ctx = api_context.make_context(*api_context.ADMIN, attachd_version=ATTACHD_1_0)
        self.volume = Volume.get(self.ctx, db_rows.add_volume()["id"])
        self.patch(attachd.rpc.agent_api, "reconcile")
        for name in ("attach", "detach", "process_pending"):
            self.patch(attachd.rpc.manager_api, name)
        self.attach.side_effect = self.connect
        self.detach.side_effect = self.revoke
        self.reconcile.side_effect = self.work

    def patch(self, where, name):
        setattr(self, name, self.enterContext(mock.patch.object(where, name)))

    def connect(self, _ctx, attachment, connector, _denied_rule):
        db_rows.change_attachment(attachment.id, state="connected", connector=connector)

    def revoke(self, _ctx, attachment, states):
        if db_rows.get_attachment(attachment.id)["state"] not in states:
            raise exception.InvalidTransition("It has become something else.")
        db_rows.remove_attachment(attachment.id)
        return []

    def report_failure(self, reason, _ctx, host, attachment_id):
        row = db_rows.get_attachment(attachment_id)
        agent_transitions.record_failure(attachment_id, host, row["generation"], reason)

    def time_out(self):
        """Let no agent report a result in time."""
        conf_fixture.override(self, "work_timeout", 1, "agent")
        self.reconcile.side_effect = None

    def work(self, _ctx, host, attachment_id):
        row = db_rows.get_attachment(attachment_id)
        if row["state"] == "withdrawing":
            agent_transitions.release(attachment_id, host, row["generation"])
        else:
            agent_transitions.complete(attachment_id, host, row["generation"], "/dev/sdb")

    def ask(self, idempotency_claim=None, async_response=None, ctx=None, **fields):
        body = {"volume_uuid": self.volume.id, "host": HOST, **fields}
        return agent_attach.attach(
            ctx or self.ctx, self.volume, body, idempotency_claim, async_response
        )["attachment"]

    def state(self):
        (row,) = db_rows.list_attachments()
        return row["state"]


class CheckFieldsTest(unittest.TestCase):
    def test_check_fields_with_host_and_connector_is_refused(self):
        for connector in ({}, {"connector": None}, {"connector": {}}):
            agent_attach.check_fields({"host": HOST, **connector})
        with self.assertRaisesRegex(exception.InvalidInput, "connector.*attachment.host"):
            agent_attach.check_fields({"host": HOST, "connector": {"host": "x"}})


class CreateOnHostTest(Case):
    """POST /attachments with a host."""

    def create(self, *roles, attachd_version=ATTACHD_1_0, **fields):
        body = {"attachment": {"volume_uuid": self.volume.id, "host": HOST, **fields}}
        ctx = api_context.make_context(
            *(roles or api_context.ADMIN), attachd_version=attachd_version
        )
        return handlers.create(ctx, body, {})["attachment"]

    def test_create_with_host_enforces_create_on_host_rule(self):
        self.assertEqual("attached", self.create()["status"])
        with self.assertRaisesRegex(exception.Forbidden, policy.CREATE_ON_HOST):
            self.create(*api_context.MEMBER)
        with self.assertRaisesRegex(exception.Forbidden, f"{policy.CREATE} "):
            self.create("service")

    def test_create_with_invalid_host_field_loads_no_volume(self):
        with self.assertRaisesRegex(exception.InvalidInput, "attachment.host"):
            self.create(attachd_version=None)
        self.assertEqual([], db_rows.list_attachments())


class AttachTest(Case):
    def test_attach_returns_device_of_agent(self):
        shown = self.ask()
        self.assertEqual(
            ("attached", HOST, "/dev/sdb"), (shown["status"], shown["agent"], shown["device"])
        )
        connector = self.attach.call_args.args[2]
        self.assertEqual(HOST, connector["host"])
        self.assertEqual(connector, db_rows.list_attachments()[0]["connector"])

    def test_repeated_attach_after_failure_uses_current_connector_of_host(self):
        def fail(_ctx, attachment, connector, _denied_rule):
            values = {"state": "connect_failed", "connector": connector}
            db_rows.change_attachment(attachment.id, **values)
            raise exception.ConnectFailed(attachment_id=attachment.id, reason="no")

        self.attach.side_effect = fail
        with self.assertRaises(exception.ConnectFailed):
            self.ask(instance_uuid=SERVER)
        (failed,) = db_rows.list_attachments()
        fake_agent.report_agent(HOST, connector={"host": HOST, "initiator": "iqn.new"})
        self.attach.side_effect = self.connect
        self.assertEqual(failed["id"], self.ask(instance_uuid=SERVER)["id"])
        (attached,) = db_rows.list_attachments()
        self.assertEqual("iqn.new", attached["connector"]["initiator"])

    def test_attach_with_unavailable_agent_reserves_nothing(self):
        fake_agent.expire_heartbeat(HOST)
        with self.assertRaises(exception.AgentUnavailable):
            self.ask()
        with self.assertRaises(exception.AgentNotFound):
            self.ask(host="node-2")
        self.assertEqual([], db_rows.list_attachments())

    def test_attach_with_orphan_device_on_other_host_is_refused(self):
        device = {"attachment_id": "forgotten", "volume_id": self.volume.id}
        devices = [{**device, "path": "/dev/sdx", "size_bytes": 1}]
        fake_agent.report_agent("node-2", devices=devices)
        restored_database.begin(3600)
        with self.assertRaisesRegex(exception.Conflict, "node-2.*/dev/sdx.*forgotten"):
            self.ask()
        self.assertEqual([], db_rows.list_attachments())
        fake_agent.report_agent("node-2")
        self.assertEqual("attached", self.ask()["status"])

    def test_attach_of_multiattach_volume_with_other_host_succeeds(self):
        db_rows.change_volume(self.volume.id, multiattach=True)
        self.volume = Volume.get(self.ctx, self.volume.id)
        device = {"attachment_id": "forgotten", "volume_id": self.volume.id}
        fake_agent.report_agent(
            "node-2", devices=[{**device, "path": "/dev/sdx", "size_bytes": 1}]
        )
        self.assertEqual("attached", self.ask()["status"])

    def test_attach_with_failed_manager_call_cancels_reservation(self):
        self.attach.side_effect = exception.Unavailable(reason="no manager")
        with self.assertRaisesRegex(exception.Unavailable, "no manager"):
            self.ask()
        self.assertEqual([], db_rows.list_attachments())

    def test_repeated_attach_for_same_server_continues_attachment(self):
        first = self.ask(instance_uuid=SERVER)
        self.assertEqual(first, self.ask(instance_uuid=SERVER))
        self.reconcile.assert_called_once()
        db_rows.change_attachment(first["id"], state="connected", device=None)
        self.assertEqual(first, self.ask(instance_uuid=SERVER))
        self.attach.assert_called_once()

    def test_attach_deleted_meanwhile_raises_conflict(self):
        for state in ("withdrawing", "disconnecting", "disconnect_failed", None):
            self.volume = Volume.get(self.ctx, db_rows.add_volume()["id"])

            def delete(_ctx, _host, identity, becomes=state):
                if becomes is None:
                    db_rows.remove_attachment(identity)
                else:
                    db_rows.change_attachment(identity, state=becomes)

            self.reconcile.side_effect = delete
            with self.subTest(state), self.assertRaisesRegex(exception.Conflict, "deleted"):
                self.ask()

    def test_error_of_attached_attachment_keeps_it(self):
        def reconcile(*args):
            self.work(*args)
            self.report_failure("It is missing, as after a reboot.", *args)

        self.reconcile.side_effect = reconcile
        self.assertEqual("/dev/sdb", self.ask()["device"])
        self.detach.assert_not_called()

    def test_attachment_attached_during_removal_stays(self):
        def reconcile(*args):
            self.report_failure("no session", *args)

        real = Attachment.get

        def get(ctx, identity):
            loaded = real(ctx, identity)
            db_rows.change_attachment(identity, state="attached", device="/dev/sdb")
            return loaded

        self.reconcile.side_effect = reconcile
        with (
            mock.patch.object(Attachment, "get", get),
            self.assertRaisesRegex(exception.AttachFailed, "has become attached"),
        ):
            self.ask()
        self.assertEqual("attached", self.state())

    def test_attach_with_old_error_waits_for_result_of_new_attempt(self):
        self.time_out()
        with self.assertRaises(exception.AgentTimeout):
            self.ask(instance_uuid=SERVER)
        (row,) = db_rows.list_attachments()
        db_rows.change_attachment(row["id"], error="no session")
        conf_fixture.override(self, "work_timeout", 120, "agent")
        self.reconcile.side_effect = self.work
        self.assertEqual("/dev/sdb", self.ask(instance_uuid=SERVER)["device"])


class FailedAttachTest(Case):
    def make_fail(self, reason):
        def reconcile(ctx, host, attachment_id):
            if db_rows.get_attachment(attachment_id)["state"] == "withdrawing":
                return self.work(ctx, host, attachment_id)
            return self.report_failure(reason, ctx, host, attachment_id)

        self.reconcile.side_effect = reconcile

    def test_host_error_removes_attachment(self):
        self.make_fail("Host node-1 lacks: iscsid.")
        with self.assertRaisesRegex(exception.AgentError, "lacks: iscsid"):
            self.ask()
        self.assertEqual([], db_rows.list_attachments())
        self.assertEqual(2, self.reconcile.call_count)  # it is not to try again meanwhile

    def test_failed_removal_names_attachment_and_next_step(self):
        stuck = exception.DisconnectFailed(attachment_id="a", reason="The backend failed.")
        self.make_fail("no session")
        self.detach.side_effect = stuck
        with self.assertRaises(exception.AttachFailed) as raised:
            self.ask()
        (row,) = db_rows.list_attachments()
        for part in (
            row["id"],
            "no session",
            "The backend failed",
            f"DELETE /attachments/{row['id']}",
        ):
            self.assertIn(part, str(raised.exception))

    def test_host_error_of_deleted_attachment_is_raised(self):
        self.make_fail("no session")

        def get(_ctx, identity):
            raise exception.AttachmentNotFound(attachment_id=identity)

        with (
            mock.patch.object(Attachment, "get", get),
            self.assertRaisesRegex(exception.AgentError, "no session"),
        ):
            self.ask()

    def test_unknown_outcome_keeps_and_names_attachment(self):
        self.time_out()
        for error, raising in (
            (exception.AgentTimeout, None),
            (exception.AgentUnavailable, {"host": HOST, "since": "since noon"}),
            (exception.Unavailable, {"reason": "The queue is away."}),
        ):
            self.volume = Volume.get(self.ctx, db_rows.add_volume()["id"])
            self.reconcile.side_effect = raising and error(**raising)
            with self.subTest(error.__name__), self.assertRaises(error) as raised:
                self.ask()
            (row,) = db_rows.list_attachments(self.volume.id)
            self.assertEqual("connected", row["state"])
            self.assertIn(row["id"], str(raised.exception))


class IdempotencyKeyTest(Case):
    """A repeated request continues with what exists, and reserves again where nothing is left."""

    def setUp(self):
        super().setUp()
        self.claim = self.next_claim()

    def next_claim(self):
        known = idempotency_keys.claim("digest", "fingerprint", 60)
        return idempotency.IdempotencyClaim(
            "digest", known.resource_id, known.repeated, known.made
        )

    def test_repeated_request_after_timeout_returns_current_state(self):
        self.time_out()
        with self.assertRaises(exception.AgentTimeout):
            self.ask(self.claim)
        fake_agent.expire_heartbeat(HOST)  # it has done its part
        db_rows.change_attachment(self.claim.resource_id, state="attached", device="/dev/sdb")
        self.assertEqual("/dev/sdb", self.ask(self.next_claim())["device"])
        self.attach.assert_called_once()

    def test_repeated_request_asks_agent_again(self):
        self.time_out()
        with self.assertRaises(exception.AgentTimeout):
            self.ask(self.claim)
        self.reconcile.side_effect = self.work
        self.assertEqual(self.claim.resource_id, self.ask(self.next_claim())["id"])

    def test_repeated_request_after_removal_reserves_again(self):
        self.reconcile.side_effect = self.refuse
        with self.assertRaises(exception.AgentError):
            self.ask(self.claim)
        self.assertEqual([], db_rows.list_attachments())
        self.reconcile.side_effect = self.work
        self.assertEqual(self.claim.resource_id, self.ask(self.next_claim())["id"])

    def refuse(self, ctx, host, attachment_id):
        if db_rows.get_attachment(attachment_id)["state"] == "withdrawing":
            return self.work(ctx, host, attachment_id)
        return self.report_failure("no session", ctx, host, attachment_id)

    def test_repeated_request_after_deletion_raises_key_resource_gone(self):
        self.ask(self.claim)
        db_rows.change_attachment(self.claim.resource_id, state="withdrawing")
        with self.assertRaisesRegex(exception.Conflict, "is being deleted"):
            self.ask(self.next_claim())
        db_rows.remove_attachment(self.claim.resource_id)
        with self.assertRaises(idempotency.KeyResourceGone):
            self.ask(self.next_claim())


class AsyncTest(Case):
    def setUp(self):
        super().setUp()
        self.async_response = mock.Mock()

    def test_async_attach_notifies_manager_without_waiting(self):
        shown = self.ask(async_response=self.async_response)
        self.assertEqual(("attaching", HOST), (shown["status"], shown["agent"]))
        self.async_response.accept.assert_called_once_with("attachments", shown["id"])
        self.process_pending.assert_called_once()
        self.assertEqual("connecting", self.state())
        self.reconcile.assert_not_called()

    def test_async_attach_of_connected_attachment_notifies_agent(self):
        identity = self.ask(async_response=self.async_response, instance_uuid=SERVER)["id"]
        db_rows.change_attachment(identity, state="connected")
        self.assertEqual(
            identity, self.ask(async_response=self.async_response, instance_uuid=SERVER)["id"]
        )
        self.reconcile.assert_called_once_with(self.ctx, HOST, identity)
        self.assertEqual(2, self.async_response.accept.call_count)

    def test_async_attach_of_attached_attachment_answers_at_once(self):
        identity = self.ask(instance_uuid=SERVER)["id"]
        self.assertEqual(
            identity, self.ask(async_response=self.async_response, instance_uuid=SERVER)["id"]
        )
        self.async_response.accept.assert_not_called()

    def test_refused_async_attach_leaves_no_reservation(self):
        refused = exception.AttachmentLimitExceeded(what="x", count=1, limit=1, name="y")
        with (
            mock.patch.object(lifecycle.async_requests, "connect_shared", side_effect=refused),
            self.assertRaises(exception.AttachmentLimitExceeded),
        ):
            self.ask(async_response=self.async_response)
        self.assertEqual([], db_rows.list_attachments())
