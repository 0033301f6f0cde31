# SPDX-License-Identifier: Apache-2.0
"""Tests of notifications of attachments without a manager."""

import unittest

from attachd.api.attachments import notify
from attachd.objects import Attachment, Volume
from attachd.tests.fixtures import api_context, captured_notifications, db_rows


class NotifyTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        api_context.use(self)
        self.heard = captured_notifications.use(self)
        self.volume = db_rows.add_volume()["id"]

    def attachment(self, state):
        row = db_rows.add_attachment(self.volume, state)
        return Attachment.get(api_context.make_context(), row["id"])

    def test_attach_completed_sends_attach_end(self):
        notify.attach_completed(self.attachment("attached"), "connected")
        self.assertEqual(["volume.attach.end"], self.heard.event_types())

    def test_attach_completed_of_reservation_sends_start_and_end(self):
        notify.attach_completed(self.attachment("attached"), "reserved")
        self.assertEqual(["volume.attach.start", "volume.attach.end"], self.heard.event_types())

    def test_attach_completed_repeated_sends_nothing(self):
        notify.attach_completed(self.attachment("attached"), "attached")
        self.assertEqual([], self.heard.event_types())

    def test_legacy_attach_repeated_sends_nothing(self):
        volume = Volume.get(api_context.make_context(), self.volume)
        notify.legacy_attach(volume)
        self.assertEqual(["volume.attach.start", "volume.attach.end"], self.heard.event_types())
        self.attachment("attached")
        notify.legacy_attach(Volume.get(api_context.make_context(), self.volume))
        self.assertEqual(2, len(self.heard.event_types()))

    def test_reservation_cancelled_sends_detach_start_and_end(self):
        given_up = self.attachment("reserved")
        db_rows.remove_all()
        notify.reservation_cancelled(given_up, [])
        start, end = self.heard.messages()
        self.assertEqual("volume.detach.start", start["event_type"])
        (shown,) = start["payload"]["volume_attachment"]
        self.assertEqual((given_up.id, "reserved"), (shown["id"], shown["attach_status"]))
        self.assertEqual("reserved", start["payload"]["status"])
        self.assertEqual("volume.detach.end", end["event_type"])
        self.assertEqual([], end["payload"]["volume_attachment"])
