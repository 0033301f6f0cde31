# SPDX-License-Identifier: Apache-2.0
"""Tests of detaching the attachments of a drained host."""

from unittest import mock

from attachd import exception, notifications
from attachd.api.attachments import agent_detach
from attachd.api.fencing import detach_attachments
from attachd.db import host_fences
from attachd.tests.fixtures import api_context, captured_notifications, db_rows

HOST = "node-1"
SERVER = "11111111-2222-4333-8444-555555555555"


class DetachAttachmentsTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context("member")
        self.host_row, _is_new = host_fences.drain(HOST, "repair", "u")

    def add(self, state="attached", **columns):
        return db_rows.add_attachment(
            db_rows.add_volume()["id"],
            state,
            host=HOST,
            agent=HOST,
            connector={"host": HOST},
            **columns,
        )["id"]

    def rows(self):
        return host_fences.list_attachments(HOST)

    def detach(self, *errors):
        """Have each detach end with one of these errors, or None; return those that were tried."""
        detach_attachments.request(self.host_row, self.rows(), detach_attachments.ALL)
        with mock.patch.object(agent_detach, "disconnect", side_effect=errors) as disconnect:
            self.errors = detach_attachments.detach(self.ctx, self.host_row)
        self.contexts = [call.args[0] for call in disconnect.call_args_list]
        return [call.args[1].id for call in disconnect.call_args_list]

    def statuses(self, errors=None):
        drain = detach_attachments.show(host_fences.find(HOST), self.rows(), errors)
        return {item["attachment_id"]: item["status"] for item in drain["attachments"]}

    def test_those_that_have_failed_before_come_last(self):
        failed = self.add("disconnect_failed", error="It is away.")
        pending, first, second = self.add("withdrawing"), self.add(), self.add()
        self.assertEqual([first, second, failed, pending], self.detach(*[None] * 4))

    def test_detach_that_waits_for_an_agent_that_is_down_says_so(self):
        waiting, other = self.add("withdrawing"), self.add()
        detach_attachments.request(self.host_row, self.rows(), detach_attachments.ALL)
        for state, expected in (("down", True), ("conflict", True), ("up", False)):
            drain = detach_attachments.show(host_fences.find(HOST), self.rows(), None, state)
            reasons = {item["attachment_id"]: item["reason"] for item in drain["attachments"]}
            self.assertEqual(expected, f" {HOST}" in (reasons[waiting] or ""))
            self.assertIsNone(reasons[other])
            self.assertEqual({waiting: "detaching", other: "waiting"}, self.statuses())

    def test_error_of_one_does_not_keep_the_next(self):
        first, second, third = self.add(), self.add(), self.add()
        errors = (exception.Conflict(reason="busy"), ValueError(), exception.NotFound())
        self.assertEqual([first, second, third], self.detach(*errors))
        self.assertEqual("busy", self.errors[first])
        self.assertIn("log of the API", self.errors[second])
        self.assertEqual(
            {first: "failed", second: "failed", third: "waiting"}, self.statuses(self.errors)
        )

    def test_too_many_calls_end_the_request(self):
        first, second = self.add(), self.add()
        self.assertEqual([first], self.detach(exception.TooManyCalls(reason="one too many")))
        self.assertEqual({first: "waiting", second: "waiting"}, self.statuses(self.errors))

    def test_attachments_of_other_projects_are_detached_for_a_caller_with_the_rule(self):
        self.add()
        self.detach(None)
        self.assertEqual([True], [context.is_admin for context in self.contexts])
        self.assertFalse(self.ctx.is_admin)

    def test_host_that_is_resumed_keeps_the_rest(self):
        self.add()
        detach_attachments.request(self.host_row, self.rows(), detach_attachments.ALL)
        host_fences.resume(HOST)
        self.assertEqual({}, detach_attachments.detach(self.ctx, self.host_row))
        with self.assertRaisesRegex(exception.Conflict, "resumed by another request"):
            detach_attachments.request(self.host_row, self.rows(), detach_attachments.ALL)

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
        detach_attachments.request(self.host_row, self.rows(), detach_attachments.ALL)
        self.assertEqual(expected, self.statuses())

    def test_end_is_notified_when_nothing_is_under_way(self):
        sent = captured_notifications.use(self)
        step = notifications.HostStep(0, None, "u")
        for counts in ({"waiting": 1}, {"detaching": 1, "failed": 1}):
            drain = {"counts": counts, "attachments": []}
            detach_attachments.notify_end(HOST, step, drain)
        detach_attachments.notify_end(HOST, step, None)
        self.assertEqual([], sent.messages())
        drain = {"counts": {"failed": 1}, "attachments": []}
        detach_attachments.notify_end(HOST, step, drain)
        (message,) = sent.messages()
        self.assertEqual("host.drain.end", message["event_type"])
