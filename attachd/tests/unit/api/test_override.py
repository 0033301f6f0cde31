# SPDX-License-Identifier: Apache-2.0
"""Tests of the override of the check with Nova."""

import webob

from attachd import exception
from attachd.api import override
from attachd.tests.fixtures import api_context, captured_notifications, db_rows

SERVER = "11111111-2222-3333-4444-555555555555"


class OverrideTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context(*api_context.ADMIN)
        volume = db_rows.add_volume()["id"]
        self.held = override.AttachmentRef(
            "a1", volume, db_rows.PROJECT, "u", SERVER, "attached", "compute-1"
        )

    def is_overridden(self, query):
        request = webob.Request.blank(f"/?{query}")
        return override.is_overridden(self.ctx, request, [self.held])

    def test_override_is_logged(self):
        with self.assertLogs("attachd.api.override", "WARNING") as logged:
            self.assertTrue(self.is_overridden("override_reason=host%20is%20gone"))
        (text,) = logged.output
        for word in ("a1", self.held.volume_id, SERVER, "user u", "Reason: host is gone"):
            self.assertIn(word, text)

    def test_override_is_notified(self):
        received = captured_notifications.use(self)
        self.is_overridden("override_reason=host%20is%20gone")
        (message,) = received.messages()
        self.assertEqual(
            ("volume.detach.override", "WARN"), (message["event_type"], message["priority"])
        )
        expected = {"attachment_id": "a1", "instance_uuid": SERVER, "user_id": "u",
                    "reason": "host is gone"}  # fmt: skip
        result = message["payload"]["override"]
        self.assertEqual(expected, {key: result[key] for key in expected})

    def test_override_without_permission_is_forbidden(self):
        self.ctx = api_context.make_context()
        with self.assertRaisesRegex(exception.Forbidden, "volume:attachment_delete_override"):
            self.is_overridden("override_reason=please")

    def test_override_is_optional(self):
        self.assertFalse(self.is_overridden(""))

    def test_blank_reason_returns_400(self):
        for reason in ("", "%20%20", "x" * 256):
            with (
                self.subTest(reason),
                self.assertRaisesRegex(exception.InvalidInput, "override_reason"),
            ):
                self.is_overridden(f"override_reason={reason}")

    def test_reason_cannot_forge_log_lines(self):
        with self.assertRaisesRegex(exception.InvalidInput, "control characters"):
            self.is_overridden("override_reason=a%0Ab")
