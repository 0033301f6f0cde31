# SPDX-License-Identifier: Apache-2.0
"""Tests of notifications of attachments without a manager."""

import unittest

from attachd.api.attachments import notify
from attachd.objects import Attachment, Volume
from attachd.tests import asking, hearing, rows


class NotifyTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.heard = hearing.use(self)
        self.volume = rows.add_volume()["id"]

    def attachment(self, state):
        row = rows.add_attachment(self.volume, state)
        return Attachment.get(asking.context(), row["id"])

    def test_attach_completed_sends_attach_end(self):
        notify.attach_completed(self.attachment("attached"), "connected")
        self.assertEqual(["volume.attach.end"], self.heard.kinds())

    def test_attach_completed_of_reservation_sends_start_and_end(self):
        notify.attach_completed(self.attachment("attached"), "reserved")
        self.assertEqual(["volume.attach.start", "volume.attach.end"], self.heard.kinds())

    def test_attach_completed_repeated_sends_nothing(self):
        notify.attach_completed(self.attachment("attached"), "attached")
        self.assertEqual([], self.heard.kinds())

    def test_legacy_attach_repeated_sends_nothing(self):
        volume = Volume.get(asking.context(), self.volume)
        notify.legacy_attach(volume)
        self.assertEqual(["volume.attach.start", "volume.attach.end"], self.heard.kinds())
        self.attachment("attached")
        notify.legacy_attach(Volume.get(asking.context(), self.volume))
        self.assertEqual(2, len(self.heard.kinds()))

    def test_reservation_cancelled_sends_detach_start_and_end(self):
        given_up = self.attachment("reserved")
        rows.remove_all()
        notify.reservation_cancelled(given_up, [])
        start, end = self.heard.messages()
        self.assertEqual("volume.detach.start", start["event_type"])
        (shown,) = start["payload"]["volume_attachment"]
        self.assertEqual((given_up.id, "reserved"), (shown["id"], shown["attach_status"]))
        self.assertEqual("reserved", start["payload"]["status"])
        self.assertEqual("volume.detach.end", end["event_type"])
        self.assertEqual([], end["payload"]["volume_attachment"])
