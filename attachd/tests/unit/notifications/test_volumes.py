# SPDX-License-Identifier: Apache-2.0
"""What is told of volumes."""

import datetime
import json
import unittest
from unittest import mock

from attachd import exception
from attachd.conf import CONF
from attachd.db.volumes import store as db
from attachd.notifications import volumes
from attachd.tests.fixtures import api_context, captured_notifications, db_rows

KEYS = {
    "tenant_id", "host", "user_id", "availability_zone", "volume_id", "volume_type",
    "display_name", "launched_at", "created_at", "status", "snapshot_id", "size",
    "replication_status", "replication_extended_status", "replication_driver_data", "metadata",
    "volume_attachment",
}  # fmt: skip
"""Of a payload, as Cinder 29 has them."""

BORN = datetime.datetime.fromisoformat("2026-01-31T12:00:00")
SECRETS = ("connector", "connection_info", "secret", "initiator", "5" * 32)


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        api_context.use(self)
        self.heard = captured_notifications.use(self)
        volumes._recent.clear()
        self.volume = db_rows.add_volume(name="disk", created_at=BORN, launched_at=BORN)

    def told(self):
        (message,) = self.heard.messages()
        return message


class PayloadTest(Case):
    def test_it_has_the_keys_that_listeners_know(self):
        volumes.volume("attach.start", self.volume["id"])
        message = self.told()
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

    def test_it_tells_the_attachments_without_their_secrets(self):
        row = db_rows.add_attachment(
            self.volume["id"],
            "attached",
            connection_info={"data": {"auth_password": "secret"}},
            attached_at=BORN,
            mode="rw",
        )
        for attachments in (None, db_rows.list_attachments(self.volume["id"])):
            volumes.volume("attach.end", self.volume["id"], attachments=attachments)
        for message in self.heard.messages():
            (shown,) = message["payload"]["volume_attachment"]
            self.assertEqual(
                (row["id"], "attached", "compute-1", "2026-01-31T12:00:00+00:00"),
                (shown["id"], shown["attach_status"], shown["attached_host"],
                 shown["attach_time"]),
            )  # fmt: skip
            text = json.dumps(message)
            for word in SECRETS:
                self.assertNotIn(word, text)

    def test_what_is_known_counts_more_than_what_is_read_later(self):
        volumes.volume("attach.start", self.volume["id"], {"status": "attaching"}, [])
        db_rows.change_volume(self.volume["id"], status="in-use")
        payload = self.told()["payload"]
        self.assertEqual(("attaching", "disk"), (payload["status"], payload["display_name"]))

    def test_what_is_known_whole_is_not_read(self):
        row = db.get(self.volume["id"], None)
        with mock.patch.object(db, "get") as get:
            volumes.volume("delete.end", self.volume["id"], row, [])
            self.assertEqual("disk", self.told()["payload"]["display_name"])
        get.assert_not_called()

    def test_rows_that_change_later_are_told_as_they_were(self):
        row = db.get(self.volume["id"], None)
        attachment = db_rows.add_attachment(self.volume["id"])
        held = [attachment]
        volumes.volume("update.start", self.volume["id"], row, held)
        row["name"] = "later"
        attachment["state"] = "attached"
        held.clear()
        payload = self.told()["payload"]
        self.assertEqual("disk", payload["display_name"])
        self.assertEqual("reserved", payload["volume_attachment"][0]["attach_status"])

    def test_a_volume_that_is_gone_is_told_as_it_was_last(self):
        volumes.volume("detach.start", self.volume["id"])
        self.heard.messages()
        db_rows.remove_all()
        volumes.volume("detach.end", self.volume["id"], {"status": "available"}, [])
        payload = self.heard.messages()[-1]["payload"]
        self.assertEqual(("disk", "available"), (payload["display_name"], payload["status"]))

    def test_a_volume_that_nobody_knows_is_told_all_the_same(self):
        volumes.volume("detach.end", "gone", {"status": "available"}, [])
        payload = self.told()["payload"]
        self.assertEqual(KEYS, set(payload))
        self.assertIsNone(payload["display_name"])

    def test_only_so_many_are_remembered(self):
        with mock.patch.object(volumes, "_MAX_REMEMBERED", 2):
            for _ in range(4):
                volumes._read(db_rows.add_volume()["id"])
        self.assertEqual(2, len(volumes._recent))

    def test_it_has_what_it_is_given_besides(self):
        volumes.volume("resize.end", self.volume["id"], host="there@fake", size=7)
        message = self.told()
        self.assertEqual("volume.there@fake", message["publisher_id"])
        self.assertEqual(7, message["payload"]["size"])

    def test_what_somebody_should_look_at_is_a_warning(self):
        volumes.urgent_volume("detach.override", self.volume["id"], reason="because")
        message = self.told()
        self.assertEqual(("WARN", "because"), (message["priority"], message["payload"]["reason"]))


class TroubleTest(Case):
    def test_a_database_that_is_away_fails_nobody(self):
        away = exception.Unavailable(reason="no database")
        with (
            mock.patch.object(db, "get", side_effect=away),
            self.assertLogs("attachd.notifications.sender", "ERROR") as logged,
        ):
            volumes.volume("attach.start", self.volume["id"])
            self.assertEqual([], self.heard.messages())
        self.assertIn(f"volume.attach.start of {self.volume['id']} is lost", logged.output[0])


class OffTest(unittest.TestCase):
    def test_where_nobody_listens_nothing_is_done(self):
        captured_notifications.use(self, "noop")
        with mock.patch("attachd.notifications.sender.send") as tell:
            volumes.volume("attach.start", "v1")
            volumes.urgent_volume("detach.override", "v1")
        tell.assert_not_called()
