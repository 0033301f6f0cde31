# SPDX-License-Identifier: Apache-2.0
"""What holds a volume, and what goes with it."""

import unittest

import sqlalchemy as sa

from attachd import exception
from attachd.db import api, holding, models
from attachd.tests import databases, rows


class HoldingTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        self.volume_id = rows.add_volume()["id"]

    def found(self):
        with api.reader() as connection:
            return holding.of_volume(connection, self.volume_id)

    def test_what_surely_reaches_nothing_does_not_count(self):
        rows.add_attachment(self.volume_id, "connect_failed")
        mine = rows.add_attachment(self.volume_id, "connected")["id"]
        self.assertEqual([mine], [each["id"] for each in self.found()])

    def test_who_holds_it_is_named_with_the_state_that_clients_know(self):
        rows.add_attachment(self.volume_id, "connected")
        with self.assertRaisesRegex(exception.InvalidVolume, r"attachment .* \(attaching\)"):
            holding.check_detached(rows.volume(self.volume_id), self.found())
        holding.check_detached(rows.volume(self.volume_id), [])

    def test_what_goes_with_the_volume_is_told(self):
        mine = rows.add_attachment(self.volume_id, "connect_failed")["id"]
        with api.writer() as connection:
            holding.remove(connection, self.volume_id)
        self.assertEqual([], rows.attachments(self.volume_id))
        with api.reader() as connection:
            (told,) = connection.execute(sa.select(models.events))
        self.assertEqual(("deleted", mine), (told.type, told.attachment_id))
