# SPDX-License-Identifier: Apache-2.0
"""Tests of detaching the attachments of a drained host, without agents and managers."""

from unittest import mock

from attachd import exception
from attachd.closed_hosts import drains
from attachd.db import host_fences
from attachd.db.attachments import async_requests, attachment_store
from attachd.rpc import agent_api, manager_api
from attachd.tests.fixtures import api_context, captured_notifications, db_rows, fake_agent

HOST = "node-1"
SERVER = "11111111-2222-4333-8444-555555555555"


class DrainsTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context("admin")
        fake_agent.report_agent(HOST)
        self.host_row, _is_new = host_fences.drain(HOST, "repair", "u")
        self.asked = []
        for module, name in ((agent_api, "reconcile"), (manager_api, "process_pending")):
            asked = mock.patch.object(module, name, side_effect=self.note)
            asked.start()
            self.addCleanup(asked.stop)

    def note(self, _ctx, *about):
        self.asked.append(about[-1] if isinstance(about[-1], str) else about[-1].id)

    def add(self, state="attached", **columns):
        known = {"host": HOST, "agent": HOST, "connector": {"host": HOST}}
        volume = db_rows.add_volume()["id"]
        return db_rows.add_attachment(volume, state, **{**known, **columns})["id"]

    def rows(self):
        return host_fences.list_attachments(HOST)

    def request(self):
        drains.request(self.host_row, self.rows(), drains.ALL)

    def advance(self, tried=None):
        """Advance the drain; return what its agent or managers are asked for."""
        self.asked.clear()
        self.is_waiting = drains.advance(self.ctx, HOST, tried)
        return list(self.asked)

    def shown(self):
        rows = self.rows()
        drain = drains.show(host_fences.find(HOST), rows, drains.get_agent_states(rows))
        return {item["attachment_id"]: item for item in drain["attachments"]}

    def statuses(self):
        return {name: item["status"] for name, item in self.shown().items()}

    def test_agent_or_manager_is_asked_once_what_is_to_go_is_stored(self):
        device, connecting = self.add(), self.add("connecting")
        self.request()
        self.assertEqual([device, connecting], self.advance())
        states = {row["id"]: row["state"] for row in self.rows()}
        self.assertEqual({device: "withdrawing", connecting: "disconnecting"}, states)
        self.assertTrue(self.is_waiting)
        self.assertEqual([], self.advance())
        self.assertTrue(self.is_waiting)

    def test_only_some_are_detached_at_the_same_time(self):
        ids = [self.add() for _ in range(drains.AT_ONCE + 2)]
        self.request()
        self.assertEqual(ids[: drains.AT_ONCE], self.advance())
        self.assertEqual([], self.advance())
        db_rows.remove_attachment(ids[0])
        self.assertEqual([ids[drains.AT_ONCE]], self.advance())

    def test_what_has_failed_is_tried_once_by_a_request_and_after_the_rest(self):
        failed, device = self.add("disconnect_failed", error="It is away."), self.add()
        refused = self.add(error="It is in use.")
        stuck = self.add("withdrawing", error="The device is busy.")
        self.request()
        self.assertEqual([device], self.advance())
        tried = set()
        self.assertEqual([failed, refused, stuck], self.advance(tried))
        self.assertEqual({failed, refused, stuck}, tried)
        self.assertEqual({None}, {item["reason"] for item in self.shown().values()})
        db_rows.change_attachment(refused, state="attached", error="It is in use.")
        self.assertEqual([], self.advance(tried))

    def test_agent_that_is_not_up_is_waited_for_by_managers_alone(self):
        detaching, waiting = self.add("withdrawing"), self.add()
        self.request()
        fake_agent.expire_heartbeat(HOST)
        self.assertEqual([], self.advance(set()))
        self.assertFalse(self.is_waiting)
        self.assertEqual({detaching: "detaching", waiting: "waiting"}, self.statuses())
        for item in self.shown().values():
            self.assertIn(f"The agent of host {HOST} is down", item["reason"])
        fake_agent.report_agent(HOST)
        self.assertEqual([waiting], self.advance())

    def test_agent_that_was_removed_is_named(self):
        waiting = self.add(agent="node-0")
        self.request()
        self.assertIn("The agent of host node-0 was removed", self.shown()[waiting]["reason"])

    def test_refusal_is_stored_and_does_not_keep_the_next(self):
        first, second = self.add(), self.add()
        self.request()
        errors = iter([exception.Conflict(reason="It moves."), None])

        def withdraw(*_ids):
            if error := next(errors):
                raise error

        with mock.patch.object(async_requests, "withdraw", side_effect=withdraw):
            self.assertEqual([second], self.advance())
        self.assertEqual("It moves.", attachment_store.get(first, None)["error"])
        self.assertEqual({first: "failed", second: "waiting"}, self.statuses())

    def test_lost_message_leaves_the_request(self):
        first = self.add()
        self.request()
        with mock.patch.object(
            agent_api, "reconcile", side_effect=exception.Unavailable(reason="no broker")
        ):
            self.advance()
        self.assertEqual({first: "detaching"}, self.statuses())

    def test_host_that_is_resumed_keeps_the_rest(self):
        self.add()
        self.request()
        host_fences.resume(HOST)
        self.assertEqual([], self.advance())
        self.assertFalse(self.is_waiting)
        with self.assertRaisesRegex(exception.Conflict, "resumed by another request"):
            self.request()

    def test_status_follows_from_the_state(self):
        expected = {
            self.add(): "waiting",
            self.add("connecting"): "waiting",
            self.add("connect_unknown", error="lost"): "failed",
            self.add("withdrawing"): "detaching",
            self.add("disconnecting", error="before"): "detaching",
            self.add("disconnect_failed"): "failed",
            self.add(error="busy"): "failed",
            self.add(instance_uuid=SERVER): "left",
            self.add(kind="connection"): "left",
        }
        self.assertEqual(dict.fromkeys(expected, "attached"), self.statuses())
        self.request()
        self.assertEqual(expected, self.statuses())

    def test_end_is_notified_once_when_nothing_is_waited_for(self):
        sent = captured_notifications.use(self)
        attachment = self.add()
        self.request()
        self.assertEqual([HOST], [row["host"] for row in host_fences.list_draining()])
        drains.notify_end(HOST)
        self.advance()
        drains.notify_end(HOST)
        self.assertEqual([], sent.messages())
        db_rows.remove_attachment(attachment)
        for _ in range(2):
            drains.notify_end(HOST)
        (message,) = sent.messages()
        self.assertEqual("host.drain.end", message["event_type"])
        self.assertEqual("repair", message["payload"]["reason"])
        self.assertEqual([], host_fences.list_draining())
        # Another request has another end.
        self.request()
        drains.notify_end(HOST)
        self.assertEqual(2, len(sent.messages()))
        host_fences.resume(HOST)
        drains.notify_end(HOST)
        self.assertEqual(2, len(sent.messages()))
