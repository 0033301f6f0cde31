# SPDX-License-Identifier: Apache-2.0
"""Notifications of fenced and drained hosts."""

from unittest import mock

from attachd.db import host_fences
from attachd.db.host_fences import Notified
from attachd.notifications import hosts, sender
from attachd.tests.fixtures import api_context, captured_notifications

ROW = {"generation": 2, "reason": "dead", "user_id": "u", "boot_id": "b"}


class HostsTest(api_context.ApiContextCase):
    def test_notification_has_the_fence(self):
        notifications = captured_notifications.use(self)
        hosts.host("drain.end", "h", hosts.HostStep.from_fence(ROW), attachments=[])
        (message,) = notifications.messages()
        self.assertEqual(("host.drain.end", "WARN"), (message["event_type"], message["priority"]))
        expected = {"host": "h", "generation": 2, "reason": "dead", "user_id": "u"}
        self.assertEqual({**expected, "attachments": []}, message["payload"])

    def test_nothing_is_built_without_notifications(self):
        hosts.host("unfence", "h", None)


class FenceTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.sent = captured_notifications.use(self)
        host_fences.fence("h", "dead", "u")

    def test_sent_start_and_end_are_stored_after_it(self):
        ended = []
        hosts.fence_start(host_fences.find("h"), lambda: ended.append("start"))
        self.sent.messages()
        row = host_fences.find("h")
        self.assertEqual(("start", None), (row["notified"], row["notify_after"]))
        sender.reset_after_fork()
        hosts.fence_end(row, [{"result": "proved"}], Notified.END, lambda: ended.append("end"))
        start, end = self.sent.messages()
        self.assertEqual("end", host_fences.find("h")["notified"])
        self.assertEqual(["start", "end"], ended)
        self.assertEqual("host.fence.start", start["event_type"])
        self.assertEqual(
            ("host.fence.end", [{"result": "proved"}]),
            (end["event_type"], end["payload"]["attachments"]),
        )

    def test_lost_start_is_not_stored(self):
        ended = []
        with (
            mock.patch.object(sender.Sender, "_notify", side_effect=OSError("no broker")),
            self.assertLogs("attachd.notifications.sender", "ERROR"),
        ):
            hosts.fence_start(host_fences.find("h"), lambda: ended.append("lost"))
            self.sent.messages()
        self.assertIsNone(host_fences.find("h")["notified"])
        self.assertEqual(["lost"], ended)
