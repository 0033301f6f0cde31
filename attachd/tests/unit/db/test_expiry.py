# SPDX-License-Identifier: Apache-2.0
"""Which reservations have ended."""

import datetime
import unittest
from unittest import mock

from attachd.db import expiry, models
from attachd.tests import backends, rows


class ExpiredTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        backends.use(self)
        self.past = models.now() - datetime.timedelta(seconds=1)

    def _add(self, state="reserved", host=f"{backends.HOST}#pool", **values):
        volume_id = rows.add_volume(host=host)["id"]
        return rows.add_attachment(volume_id, state, **values)

    def _expired(self):
        return [row["id"] for row in expiry.expired(backends.HOST)]

    def test_only_mere_reservations_whose_time_is_over_have_ended(self):
        ended = self._add(expires_at=self.past)
        self._add(expires_at=self.past + datetime.timedelta(hours=1))
        self._add()
        for state in ("connecting", "connected", "attached", "connect_failed"):
            self._add(state, expires_at=self.past)
        self._add(expires_at=self.past, host="elsewhere@fake#pool")
        self.assertEqual([ended["id"]], self._expired())

    def test_the_first_to_end_comes_first_and_there_are_not_too_many(self):
        second = self._add(expires_at=self.past)
        first = self._add(expires_at=self.past - datetime.timedelta(days=1))
        self.assertEqual([first["id"], second["id"]], self._expired())
        self.enterContext(mock.patch.object(expiry, "MOST", 1))
        self.assertEqual([first["id"]], self._expired())
