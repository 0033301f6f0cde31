# SPDX-License-Identifier: Apache-2.0
"""Notifications of volume types."""

import unittest
from unittest import mock

from attachd import exception
from attachd.conf import CONF
from attachd.notifications import types
from attachd.tests.fixtures import api_context, captured_notifications


class TypesTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.notifications = captured_notifications.use(self)
        self.row = api_context.add_type(extra_specs={"a": "b"})

    def read_one(self):
        (message,) = self.notifications.messages()
        publisher = message["publisher_id"].removesuffix(f".{CONF.host}")
        return message["event_type"], publisher, message["priority"], message["payload"]

    def test_volume_type_notification_has_type_as_payload(self):
        types.volume_type("create", self.row)
        kind, publisher, priority, payload = self.read_one()
        self.assertEqual(("volume_type.create", "volumeType", "INFO"), (kind, publisher, priority))
        shown = payload["volume_types"]
        self.assertEqual(("gold", {"a": "b"}), (shown["name"], shown["extra_specs"]))
        self.assertRegex(shown["created_at"], r"^\d{4}-.*\+00:00$")

    def test_failed_change_notification_has_reason(self):
        with (
            self.assertRaises(exception.TypeExists),
            types.failures_of_type("create", name="gold"),
        ):
            raise exception.TypeExists(name="gold")
        kind, _publisher, priority, payload = self.read_one()
        self.assertEqual(("volume_type.create", "ERROR"), (kind, priority))
        self.assertEqual(
            {"volume_types": None, "name": "gold", "id": None,
             "error_message": "Volume Type gold already exists."},
            payload,
        )  # fmt: skip

    def test_extra_specs_notification_has_type_id_and_key(self):
        types.type_specs("update", self.row, id="a")
        kind, publisher, _priority, payload = self.read_one()
        self.assertEqual("volume_type_extra_specs.update", kind)
        self.assertEqual("volumeTypeExtraSpecs", publisher)
        self.assertEqual((self.row["id"], "a"), (payload["type_id"], payload["id"]))
        self.assertLessEqual({"created_at", "updated_at"}, set(payload))

    def test_access_notification_has_project_id(self):
        types.type_access("add", "t1", "p1")
        kind, publisher, _priority, payload = self.read_one()
        self.assertEqual("volume_type_project.access.add", kind)
        self.assertEqual("volume_type_project", publisher)
        self.assertEqual({"volume_type_id": "t1", "project_id": "p1"}, payload)


class OffTest(unittest.TestCase):
    def test_type_notifications_when_off_are_not_sent(self):
        captured_notifications.use(self, "noop")
        with mock.patch("attachd.notifications.sender.send") as send:
            types.volume_type("create", {})
            with (
                self.assertRaises(exception.TypeExists),
                types.failures_of_type("create", name="gold"),
            ):
                raise exception.TypeExists(name="gold")
            types.type_specs("create", {})
            types.type_access("add", "t", "p")
        send.assert_not_called()
