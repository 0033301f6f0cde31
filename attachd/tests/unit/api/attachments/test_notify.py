# SPDX-License-Identifier: Apache-2.0
"""What is told of attachments without a manager."""

import unittest

from attachd.api.attachments import notify
from attachd.objects import Attachment, Volume
from attachd.tests import asking, hearing, rows


class TellingTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.heard = hearing.use(self)
        self.volume = rows.add_volume()["id"]

    def attachment(self, state):
        row = rows.add_attachment(self.volume, state)
        return Attachment.get(asking.context(), row["id"])

    def test_the_end_of_an_attach_is_told(self):
        notify.attach_completed(self.attachment("attached"), "connected")
        self.assertEqual(["volume.attach.end"], self.heard.kinds())

    def test_what_no_manager_has_begun_begins_with_its_end(self):
        notify.attach_completed(self.attachment("attached"), "reserved")
        self.assertEqual(["volume.attach.start", "volume.attach.end"], self.heard.kinds())

    def test_it_is_told_once(self):
        notify.attach_completed(self.attachment("attached"), "attached")
        self.assertEqual([], self.heard.kinds())

    def test_what_the_older_calls_say_is_told_once(self):
        volume = Volume.get(asking.context(), self.volume)
        notify.legacy_attach(volume)
        self.assertEqual(["volume.attach.start", "volume.attach.end"], self.heard.kinds())
        self.attachment("attached")
        notify.legacy_attach(Volume.get(asking.context(), self.volume))
        self.assertEqual(2, len(self.heard.kinds()))

    def test_a_reservation_is_told_to_be_given_up(self):
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
