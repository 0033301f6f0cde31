# SPDX-License-Identifier: Apache-2.0
"""Tests of notifications of volumes without a manager."""

from attachd import exception
from attachd.api.volumes import notify
from attachd.objects import Volume
from attachd.tests.fixtures import api_context, captured_notifications, db_rows


class NotifyTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.notifications = captured_notifications.use(self)
        row = db_rows.add_volume(name="before")
        self.volume = Volume.get(api_context.make_context(), row["id"])

    def test_change_sends_state_before_and_after(self):
        with notify.change(self.volume, "update"):
            db_rows.change_volume(self.volume.id, name="after")
        events = [(message["event_type"], message["payload"]["display_name"])
                for message in self.notifications.messages()]  # fmt: skip
        self.assertEqual(
            [("volume.update.start", "before"), ("volume.update.end", "after")], events
        )

    def test_failed_change_sends_no_end(self):
        with self.assertRaises(exception.BadRequest), notify.change(self.volume, "update"):
            raise exception.BadRequest(reason="no")
        self.assertEqual(["volume.update.start"], self.notifications.event_types())

    def test_retype_sends_new_type(self):
        notify.retype(self.volume, "gold")
        (message,) = self.notifications.messages()
        self.assertEqual("volume.retype", message["event_type"])
        self.assertEqual("gold", message["payload"]["volume_type"])
