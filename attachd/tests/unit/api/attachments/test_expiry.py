# SPDX-License-Identifier: Apache-2.0
"""When a new reservation ends."""

import unittest

from oslo_utils import timeutils

from attachd import exception
from attachd.api.attachments import expiry
from attachd.tests import backends

OWN = (1, 0)


class MomentTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.now = timeutils.parse_isotime("2026-07-01T12:00:00Z").replace(tzinfo=None)
        timeutils.set_time_override(self.now)
        self.addCleanup(timeutils.clear_time_override)

    def _seconds(self, wanted, ext_version=OWN):
        moment = expiry.moment(wanted, ext_version)
        return None if moment is None else (moment - self.now).total_seconds()

    def test_it_never_ends_unless_somebody_says_so(self):
        self.assertIsNone(self._seconds({}))
        self.assertEqual(60, self._seconds({"expires_in": 60}))

    def test_the_deployment_says_it_for_all(self):
        backends.override(self, "reservation_ttl", 600, "api")
        self.assertEqual(600, self._seconds({}, None))
        self.assertEqual(600, self._seconds({"connector": {"host": "here"}}, None))
        self.assertEqual(60, self._seconds({"expires_in": 60}))
        self.assertEqual(600, self._seconds({"expires_in": 600}))

    def test_a_request_cannot_ask_for_more(self):
        backends.override(self, "reservation_ttl", 600, "api")
        with self.assertRaisesRegex(exception.InvalidInput, "expires_in.*601.*600 seconds"):
            expiry.moment({"expires_in": 601}, OWN)

    def test_it_can_be_asked_for_under_attachd_1_0_only(self):
        with self.assertRaisesRegex(exception.InvalidInput, "OpenStack-API-Version: attachd 1.0"):
            expiry.moment({"expires_in": 60}, None)

    def test_what_is_connected_at_once_does_not_end(self):
        wanted = {"expires_in": 60, "connector": {"host": "here"}}
        with self.assertRaisesRegex(exception.InvalidInput, "connected at once"):
            expiry.moment(wanted, OWN)
