# SPDX-License-Identifier: Apache-2.0
"""Attaching to a host by its name: with agent and manager acted, rows real."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api import idempotency
from attachd.api.attachments import agent_attach, connection, handlers, policy
from attachd.db import idempotency_keys
from attachd.db.agents import transitions as agent_transitions
from attachd.objects import Attachment, Volume
import attachd.rpc.agent_api
import attachd.rpc.manager_api
from attachd.tests import agents, asking, rows

HOST = "node-1"
OWN = (1, 0)
SERVER = "11111111-2222-3333-4444-555555555555"


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        agents.report(HOST)
        self.ctx = asking.context(*asking.ADMIN)
        self.volume = Volume.get(self.ctx, rows.add_volume()["id"])
        for name in ("reconcile", "request_reconcile"):
            self.patch(attachd.rpc.agent_api, name)
        for name in ("attach", "detach", "process_pending"):
            self.patch(attachd.rpc.manager_api, name)
        self.attach.side_effect = self.connect
        self.detach.side_effect = self.shut_out
        self.reconcile.side_effect = self.work

    def patch(self, where, name):
        setattr(self, name, self.enterContext(mock.patch.object(where, name)))

    def connect(self, _ctx, attachment, connector):
        rows.change_attachment(attachment.id, state="connected", connector=connector)

    def shut_out(self, _ctx, attachment, states):
        if rows.attachment(attachment.id)["state"] not in states:
            raise exception.InvalidTransition("It has become something else.")
        rows.remove_attachment(attachment.id)
        return []

    def work(self, _ctx, host, attachment_id):
        row = rows.attachment(attachment_id)
        if row["state"] == "withdrawing":
            agent_transitions.release(attachment_id, host, row["generation"])
        else:
            agent_transitions.complete(attachment_id, host, row["generation"], "/dev/sdb")

    def ask(self, idempotency_claim=None, async_response=None, ctx=None, **fields):
        body = {"volume_uuid": self.volume.id, "host": HOST, **fields}
        return agent_attach.attach(
            ctx or self.ctx, self.volume, body, OWN, idempotency_claim, async_response
        )["attachment"]

    def state(self):
        (row,) = rows.attachments()
        return row["state"]


class FieldsTest(unittest.TestCase):
    def test_it_can_be_asked_for_under_attachd_1_0_only(self):
        with self.assertRaisesRegex(exception.InvalidInput, "host.*attachd 1.0"):
            agent_attach.check_fields({"host": HOST}, None)
        for connector in ({}, {"connector": None}, {"connector": {}}):
            agent_attach.check_fields({"host": HOST, **connector}, OWN)

    def test_who_names_a_host_and_a_connector_is_told_both_names(self):
        with self.assertRaisesRegex(exception.InvalidInput, "connector.*attachment.host"):
            agent_attach.check_fields({"host": HOST, "connector": {"host": "x"}}, OWN)


class CreateTest(Case):
    """POST /attachments with a host."""

    def create(self, ext_version=OWN, ctx=None, **fields):
        body = {"attachment": {"volume_uuid": self.volume.id, "host": HOST, **fields}}
        return handlers.create(ctx or self.ctx, body, ext_version)["attachment"]

    def test_a_rule_of_its_own_is_asked(self):
        self.assertEqual("attached", self.create()["status"])
        with self.assertRaisesRegex(exception.Forbidden, policy.CREATE_ON_HOST):
            self.create(ctx=asking.context())
        with self.assertRaisesRegex(exception.Forbidden, f"{policy.CREATE} "):
            self.create(ctx=asking.context("service"))

    def test_a_wrong_field_is_refused_before_anything_is_loaded(self):
        with self.assertRaisesRegex(exception.InvalidInput, "attachment.host"):
            self.create(ext_version=None)
        self.assertEqual([], rows.attachments())


class AttachTest(Case):
    def test_the_answer_tells_the_device(self):
        shown = self.ask()
        self.assertEqual(
            ("attached", HOST, "/dev/sdb"), (shown["status"], shown["agent"], shown["device"])
        )
        connector = self.attach.call_args.args[2]
        self.assertEqual(HOST, connector["host"])
        self.assertEqual(connector, rows.attachments()[0]["connector"])

    def test_who_cannot_be_asked_gets_nothing_reserved(self):
        agents.silence(HOST)
        with self.assertRaises(exception.AgentUnavailable):
            self.ask()
        with self.assertRaises(exception.AgentNotFound):
            self.ask(host="node-2")
        self.assertEqual([], rows.attachments())

    def test_a_volume_that_another_host_has_although_nobody_remembers_is_not_attached(self):
        device = {"attachment_id": "forgotten", "volume_id": self.volume.id}
        devices = [{**device, "path": "/dev/sdx", "size_bytes": 1}]
        agents.report("node-2", devices=devices)
        with self.assertRaisesRegex(exception.Conflict, "node-2.*/dev/sdx.*forgotten"):
            self.ask()
        self.assertEqual([], rows.attachments())
        agents.report("node-2")
        self.assertEqual("attached", self.ask()["status"])

    def test_a_volume_that_may_be_attached_several_times_is(self):
        rows.change_volume(self.volume.id, multiattach=True)
        self.volume = Volume.get(self.ctx, self.volume.id)
        device = {"attachment_id": "forgotten", "volume_id": self.volume.id}
        agents.report("node-2", devices=[{**device, "path": "/dev/sdx", "size_bytes": 1}])
        self.assertEqual("attached", self.ask()["status"])

    def test_a_reservation_that_no_manager_took_up_is_given_up(self):
        self.attach.side_effect = exception.Unavailable(reason="nobody there")
        with self.assertRaisesRegex(exception.Unavailable, "nobody there"):
            self.ask()
        self.assertEqual([], rows.attachments())

    def test_the_same_again_for_a_server_goes_on_with_it(self):
        first = self.ask(instance_uuid=SERVER)
        self.assertEqual(first, self.ask(instance_uuid=SERVER))
        self.reconcile.assert_called_once()
        rows.change_attachment(first["id"], state="connected", device=None)
        self.assertEqual(first, self.ask(instance_uuid=SERVER))
        self.attach.assert_called_once()

    def test_what_the_agent_has_not_done_is_told_as_it_is(self):
        self.reconcile.side_effect = None
        shown = self.ask()
        self.assertEqual(("attaching", None), (shown["status"], shown["device"]))

    def test_what_is_deleted_meanwhile_is_said_to_be(self):
        for state in ("withdrawing", "disconnecting", "disconnect_failed", None):
            self.volume = Volume.get(self.ctx, rows.add_volume()["id"])

            def delete(_ctx, _host, identity, becomes=state):
                if becomes is None:
                    rows.remove_attachment(identity)
                else:
                    rows.change_attachment(identity, state=becomes)

            self.reconcile.side_effect = delete
            with self.subTest(state), self.assertRaisesRegex(exception.Conflict, "deleted"):
                self.ask()

    def test_whose_answer_is_lost_may_have_done_it_all_the_same(self):
        def reconcile(*args):
            self.work(*args)
            raise exception.AgentTimeout(host=HOST, attachment_id=args[2])

        self.reconcile.side_effect = reconcile
        self.assertEqual("/dev/sdb", self.ask()["device"])

    def test_trouble_with_a_device_that_is_there_takes_nothing_away(self):
        def reconcile(*args):
            self.work(*args)
            raise exception.HostError(reason="It has not grown.")

        self.reconcile.side_effect = reconcile
        self.assertEqual("/dev/sdb", self.ask()["device"])
        self.detach.assert_not_called()

    def test_what_gets_its_device_while_it_is_taken_back_stays(self):
        def reconcile(*args):
            rows.change_attachment(args[2], state="connected", agent=HOST)
            raise exception.HostError(reason="no session")

        real = Attachment.get

        def get(ctx, identity):
            found = real(ctx, identity)
            rows.change_attachment(identity, state="attached", device="/dev/sdb")
            return found

        self.reconcile.side_effect = reconcile
        with (
            mock.patch.object(Attachment, "get", get),
            self.assertRaisesRegex(exception.AttachFailed, "has become attached"),
        ):
            self.ask()
        self.assertEqual("attached", self.state())

    def test_what_changes_under_the_agent_is_told_as_it_is(self):
        def reconcile(_ctx, _host, identity):
            rows.remove_attachment(identity)
            raise exception.AttachmentNotFound(attachment_id=identity)

        self.reconcile.side_effect = reconcile
        with self.assertRaisesRegex(exception.Conflict, "was deleted"):
            self.ask()
        self.reconcile.side_effect = exception.InvalidTransition("It has changed.")
        self.assertEqual("attaching", self.ask()["status"])


class FailingTest(Case):
    def fail(self, error):
        def reconcile(ctx, host, attachment_id):
            if rows.attachment(attachment_id)["state"] == "withdrawing":
                return self.work(ctx, host, attachment_id)
            raise error

        self.reconcile.side_effect = reconcile

    def test_what_the_host_cannot_do_is_taken_back(self):
        self.fail(exception.MissingRequirements(host=HOST, what="iscsid"))
        with self.assertRaisesRegex(exception.MissingRequirements, "lacks: iscsid"):
            self.ask()
        self.assertEqual([], rows.attachments())
        self.assertEqual(2, self.reconcile.call_count)  # it is not to try again meanwhile

    def test_what_cannot_be_taken_back_is_named_with_what_to_do(self):
        stuck = exception.DisconnectFailed(attachment_id="a", reason="The shelf burns.")
        self.fail(exception.HostError(reason="no session"))
        self.detach.side_effect = stuck
        with self.assertRaises(exception.AttachFailed) as raised:
            self.ask()
        (row,) = rows.attachments()
        for part in (
            row["id"],
            "no session",
            "The shelf burns",
            f"DELETE /attachments/{row['id']}",
        ):
            self.assertIn(part, str(raised.exception))

    def test_what_is_gone_by_itself_is_taken_back(self):
        def reconcile(_ctx, _host, attachment_id):
            rows.remove_attachment(attachment_id)
            raise exception.HostError(reason="no session")

        self.reconcile.side_effect = reconcile
        with self.assertRaisesRegex(exception.HostError, "no session"):
            self.ask()

    def test_what_nobody_can_tell_the_end_of_stays_and_is_named(self):
        for error in (
            exception.AgentTimeout(host=HOST, attachment_id="(id)"),
            exception.AgentUnavailable(host=HOST, since="since noon"),
            exception.Unavailable(reason="The queue is away."),
        ):
            self.volume = Volume.get(self.ctx, rows.add_volume()["id"])
            self.reconcile.side_effect = error
            with self.subTest(type(error).__name__), self.assertRaises(type(error)) as raised:
                self.ask()
            (row,) = rows.attachments(self.volume.id)
            self.assertEqual("connected", row["state"])
            self.assertRegex(str(raised.exception), rf"{row['id']}|\(id\)")


class KeyTest(Case):
    """A request with a key goes on with what there is, and begins anew where nothing is left."""

    def setUp(self):
        super().setUp()
        self.claim = self.next_claim()

    def next_claim(self):
        known = idempotency_keys.claim("digest", "fingerprint", 60)
        return idempotency.IdempotencyClaim(
            "digest", known.resource_id, known.repeated, known.made
        )

    def test_who_did_not_wait_long_enough_gets_the_truth(self):
        self.reconcile.side_effect = exception.AgentTimeout(host=HOST, attachment_id="x")
        with self.assertRaises(exception.AgentTimeout):
            self.ask(self.claim)
        agents.silence(HOST)  # it has done its part
        rows.change_attachment(self.claim.resource_id, state="attached", device="/dev/sdb")
        self.assertEqual("/dev/sdb", self.ask(self.next_claim())["device"])
        self.attach.assert_called_once()

    def test_the_agent_is_asked_again(self):
        self.reconcile.side_effect = exception.AgentTimeout(host=HOST, attachment_id="x")
        with self.assertRaises(exception.AgentTimeout):
            self.ask(self.claim)
        self.reconcile.side_effect = self.work
        self.assertEqual(self.claim.resource_id, self.ask(self.next_claim())["id"])

    def test_what_was_taken_back_may_be_made_anew(self):
        self.reconcile.side_effect = self.refuse
        with self.assertRaises(exception.HostError):
            self.ask(self.claim)
        self.assertEqual([], rows.attachments())
        self.reconcile.side_effect = self.work
        self.assertEqual(self.claim.resource_id, self.ask(self.next_claim())["id"])

    def refuse(self, ctx, host, attachment_id):
        if rows.attachment(attachment_id)["state"] == "withdrawing":
            return self.work(ctx, host, attachment_id)
        raise exception.HostError(reason="no session")

    def test_what_was_deleted_since_is_not_made_again(self):
        self.ask(self.claim)
        rows.change_attachment(self.claim.resource_id, state="withdrawing")
        with self.assertRaisesRegex(exception.Conflict, "is being deleted"):
            self.ask(self.next_claim())
        rows.remove_attachment(self.claim.resource_id)
        with self.assertRaises(idempotency.KeyResourceGone):
            self.ask(self.next_claim())


class LaterTest(Case):
    def setUp(self):
        super().setUp()
        self.async_response = mock.Mock()

    def test_the_manager_is_told_and_nobody_waited_for(self):
        shown = self.ask(async_response=self.async_response)
        self.assertEqual(("attaching", HOST), (shown["status"], shown["agent"]))
        self.async_response.accept.assert_called_once_with("attachments", shown["id"])
        self.process_pending.assert_called_once()
        self.assertEqual("connecting", self.state())
        self.reconcile.assert_not_called()

    def test_what_is_connected_waits_for_the_agent(self):
        identity = self.ask(async_response=self.async_response, instance_uuid=SERVER)["id"]
        rows.change_attachment(identity, state="connected")
        self.assertEqual(
            identity, self.ask(async_response=self.async_response, instance_uuid=SERVER)["id"]
        )
        self.request_reconcile.assert_called_once_with(self.ctx, HOST, identity)
        self.assertEqual(2, self.async_response.accept.call_count)

    def test_what_is_attached_is_answered_at_once(self):
        identity = self.ask(instance_uuid=SERVER)["id"]
        self.assertEqual(
            identity, self.ask(async_response=self.async_response, instance_uuid=SERVER)["id"]
        )
        self.async_response.accept.assert_not_called()

    def test_a_refusal_leaves_nothing(self):
        refused = exception.AttachmentLimitExceeded(what="x", count=1, limit=1, name="y")
        with (
            mock.patch.object(connection.due, "connect", side_effect=refused),
            self.assertRaises(exception.AttachmentLimitExceeded),
        ):
            self.ask(async_response=self.async_response)
        self.assertEqual([], rows.attachments())
