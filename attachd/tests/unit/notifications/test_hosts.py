# SPDX-License-Identifier: Apache-2.0
"""Notifications of fenced and drained hosts."""

from attachd.notifications import hosts
from attachd.tests.fixtures import api_context, captured_notifications

ROW = {"generation": 2, "reason": "dead", "user_id": "u", "boot_id": "b"}


class HostsTest(api_context.ApiContextCase):
    def test_notification_has_the_fence(self):
        notifications = captured_notifications.use(self)
        hosts.host("fence.end", "h", ROW, attachments=[])
        (message,) = notifications.messages()
        self.assertEqual(("host.fence.end", "WARN"), (message["event_type"], message["priority"]))
        expected = {"host": "h", "generation": 2, "reason": "dead", "user_id": "u"}
        self.assertEqual({**expected, "attachments": []}, message["payload"])

    def test_nothing_is_built_without_notifications(self):
        hosts.host("unfence", "h", {})
