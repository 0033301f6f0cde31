# SPDX-License-Identifier: Apache-2.0
"""What is old goes, and nothing else."""

import unittest
from unittest import mock

from attachd.db import api, events, idempotency_keys, messages, models
from attachd.manager.ha import purge
from attachd.tests import databases, rows


class ReapTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        databases.use(self)

    def fill(self):
        idempotency_keys.claim("d", "f", 60)
        row = {"id": models.new_id(), "project_id": rows.PROJECT, "volume_id": models.new_id()}
        for _ in range(3):
            with api.writer() as connection:
                events.tell(connection, row, "reserved")

    def test_what_is_new_stays(self):
        self.fill()
        purge.reap()
        self.assertEqual((3, 0), events.places())
        self.assertIsNotNone(idempotency_keys.get("d"))

    def test_what_is_old_goes_some_at_a_time(self):
        self.fill()
        later = models.now().replace(year=9000)
        moments = mock.patch.object(models, "now", return_value=later)
        clock = mock.patch.object(purge.timeutils, "utcnow", return_value=later)
        with moments, clock, mock.patch.object(purge, "AT_ONCE", 2):
            purge.reap()
        self.assertEqual((3, 3), events.places())
        self.assertIsNone(idempotency_keys.get("d"))
        self.assertEqual(0, messages.reap())
