# SPDX-License-Identifier: Apache-2.0
"""Rows that are there to be locked; what they keep apart is shown by whoever uses them."""

import unittest

import sqlalchemy as sa

from attachd.db import api, locks, models
from attachd.tests import databases


class TakeTest(unittest.TestCase):
    def test_sqlite_needs_none(self):
        databases.use(self, "sqlite")
        with api.writer() as connection:
            locks.take(connection, models.host_locks, "h")
            rows = connection.execute(sa.select(models.host_locks)).all()
        self.assertEqual([], rows)
