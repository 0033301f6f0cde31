# SPDX-License-Identifier: Apache-2.0
"""What is told of a host's attachments."""

import unittest
from unittest import mock

from keystoneauth1 import exceptions as transport

from attachd import exception
from attachd.agent.journal import Entry
from attachd.tests.unit.client.stand import Stand


class ListingTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.stand = Stand(self)
        self.volume = self.stand.volume()
        self.attached = self.stand.client.attach(self.volume)

    def listed(self):
        return self.stand.client.attached()

    def one(self):
        (found,) = self.listed()
        return found

    def test_all_is_told(self):
        found = self.one()
        self.assertEqual(self.attached.attachment_id, found.attachment_id)
        self.assertEqual((self.volume, self.attached.path), (found.volume_id, found.path))
        self.assertEqual(
            ("attached", "attached", "local"), (found.status, found.step, found.owner)
        )
        self.assertEqual((True, "rw", None), (found.present, found.mode, found.error))
        self.assertIsNone(found.mountpoint)

    def test_what_is_gone_is_told(self):
        self.stand.service().delete(self.attached.attachment_id)
        self.stand.host.connector.devices.clear()
        self.assertEqual(("gone", False), (self.one().status, self.one().present))

    def test_a_service_that_does_not_answer_is_waited_for_once(self):
        self.stand.client.attach(self.stand.volume())
        for error in (transport.ConnectFailure("no"), transport.Unauthorized("no")):
            with mock.patch("attachd.client.service.Service._ask", side_effect=error) as asked:
                self.assertEqual(["unknown"] * 2, [each.status for each in self.listed()])
            asked.assert_called_once()

    def test_another_service_is_not_asked(self):
        (entry,) = self.stand.entries()
        self.stand.host.journal.write(entry, cloud="http://elsewhere/v3")
        self.assertEqual("unknown", self.one().status)

    def test_a_reservation_that_may_not_have_been_made_is_told(self):
        self.stand.host.journal.write(Entry("v"))
        found = next(each for each in self.listed() if each.volume_id == "v")
        self.assertEqual(
            (None, None, "unknown", "reserving", False),
            (found.attachment_id, found.path, found.status, found.step, found.present),
        )

    def test_a_device_that_cannot_be_looked_at_is_not_there(self):
        error = exception.HostError(reason="no")
        with mock.patch.object(self.stand.host.connector, "is_present", side_effect=error):
            self.assertIs(False, self.one().present)
