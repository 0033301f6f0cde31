# SPDX-License-Identifier: Apache-2.0
"""Notifications of volumes."""

import datetime
import json
import unittest
from unittest import mock

from attachd import exception
from attachd.conf import CONF
from attachd.db.volumes import volume_store
from attachd.notifications import volumes
from attachd.tests.fixtures import api_context, captured_notifications, db_rows

KEYS = {
    "tenant_id", "host", "user_id", "availability_zone", "volume_id", "volume_type",
    "display_name", "launched_at", "created_at", "status", "snapshot_id", "size",
    "replication_status", "replication_extended_status", "replication_driver_data", "metadata",
    "volume_attachment",
}  # fmt: skip
"""The keys of a payload, as in Cinder 29."""

BORN = datetime.datetime.fromisoformat("2026-01-31T12:00:00")
SECRETS = ("connector", "connection_info", "secret", "initiator", "5" * 32)


class Case(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.notifications = captured_notifications.use(self)
        volumes._recent.clear()
        self.volume = db_rows.add_volume(name="disk", created_at=BORN, launched_at=BORN)

    def read_one(self):
        (message,) = self.notifications.messages()
        return message


class PayloadTest(Case):
    def test_volume_payload_has_keys_of_cinder(self):
        volumes.volume("attach.start", self.volume["id"])
        message = self.read_one()
        self.assertEqual("volume.attach.start", message["event_type"])
        self.assertEqual(f"volume.{CONF.host}", message["publisher_id"])
        payload = message["payload"]
        self.assertEqual(KEYS, set(payload))
        expected = {
            "tenant_id": db_rows.PROJECT,
            "host": "here@fake#pool",
            "volume_id": self.volume["id"],
            "display_name": "disk",
            "size": 1,
            "status": "available",
            "created_at": "2026-01-31T12:00:00+00:00",
            "launched_at": "2026-01-31T12:00:00+00:00",
            "metadata": {},
            "volume_attachment": [],
        }
        self.assertEqual(expected, {key: payload[key] for key in expected})

    def test_volume_payload_has_attachments_without_secrets(self):
        row = db_rows.add_attachment(
            self.volume["id"],
            "attached",
            connection_info={"data": {"auth_password": "secret"}},
            attached_at=BORN,
            mode="rw",
        )
        for attachments in (None, db_rows.list_attachments(self.volume["id"])):
            volumes.volume("attach.end", self.volume["id"], attachments=attachments)
        for message in self.notifications.messages():
            (shown,) = message["payload"]["volume_attachment"]
            self.assertEqual(
                (row["id"], "attached", "compute-1", "2026-01-31T12:00:00+00:00"),
                (shown["id"], shown["attach_status"], shown["attached_host"],
                 shown["attach_time"]),
            )  # fmt: skip
            text = json.dumps(message)
            for word in SECRETS:
                self.assertNotIn(word, text)

    def test_values_of_caller_override_those_of_database(self):
        volumes.volume("attach.start", self.volume["id"], {"status": "attaching"}, [])
        db_rows.change_volume(self.volume["id"], status="in-use")
        payload = self.read_one()["payload"]
        self.assertEqual(("attaching", "disk"), (payload["status"], payload["display_name"]))

    def test_row_of_caller_is_not_read_again(self):
        row = volume_store.get(self.volume["id"], None)
        with mock.patch.object(volume_store, "get") as get:
            volumes.volume("delete.end", self.volume["id"], row, [])
            self.assertEqual("disk", self.read_one()["payload"]["display_name"])
        get.assert_not_called()

    def test_rows_changed_after_call_are_sent_unchanged(self):
        row = volume_store.get(self.volume["id"], None)
        attachment = db_rows.add_attachment(self.volume["id"])
        held = [attachment]
        volumes.volume("update.start", self.volume["id"], row, held)
        row["name"] = "later"
        attachment["state"] = "attached"
        held.clear()
        payload = self.read_one()["payload"]
        self.assertEqual("disk", payload["display_name"])
        self.assertEqual("reserved", payload["volume_attachment"][0]["attach_status"])

    def test_deleted_volume_is_sent_with_last_known_values(self):
        volumes.volume("detach.start", self.volume["id"])
        self.notifications.messages()
        db_rows.remove_all()
        volumes.volume("detach.end", self.volume["id"], {"status": "available"}, [])
        payload = self.notifications.messages()[-1]["payload"]
        self.assertEqual(("disk", "available"), (payload["display_name"], payload["status"]))

    def test_unknown_volume_is_sent_with_empty_values(self):
        volumes.volume("detach.end", "gone", {"status": "available"}, [])
        payload = self.read_one()["payload"]
        self.assertEqual(KEYS, set(payload))
        self.assertIsNone(payload["display_name"])

    def test_number_of_remembered_volumes_is_limited(self):
        with mock.patch.object(volumes, "_MAX_REMEMBERED", 2):
            for _ in range(4):
                volumes._read(db_rows.add_volume()["id"])
        self.assertEqual(2, len(volumes._recent))

    def test_additional_values_are_in_payload_and_publisher(self):
        volumes.volume("resize.end", self.volume["id"], host="there@fake", size=7)
        message = self.read_one()
        self.assertEqual("volume.there@fake", message["publisher_id"])
        self.assertEqual(7, message["payload"]["size"])

    def test_urgent_volume_has_priority_warn(self):
        volumes.urgent_volume("detach.override", self.volume["id"], reason="because")
        message = self.read_one()
        self.assertEqual(("WARN", "because"), (message["priority"], message["payload"]["reason"]))


class TroubleTest(Case):
    def test_notification_with_unavailable_database_is_logged_as_lost(self):
        away = exception.Unavailable(reason="no database")
        with (
            mock.patch.object(volume_store, "get", side_effect=away),
            self.assertLogs("attachd.notifications.sender", "ERROR") as logged,
        ):
            volumes.volume("attach.start", self.volume["id"])
            self.assertEqual([], self.notifications.messages())
        self.assertIn(f"volume.attach.start of {self.volume['id']} is lost", logged.output[0])


class OffTest(unittest.TestCase):
    def test_volume_notifications_when_off_are_not_sent(self):
        captured_notifications.use(self, "noop")
        with mock.patch("attachd.notifications.sender.send") as send:
            volumes.volume("attach.start", "v1")
            volumes.urgent_volume("detach.override", "v1")
        send.assert_not_called()
