# SPDX-License-Identifier: Apache-2.0
"""Locked rows; the tests of their users show the exclusion."""

import unittest

import sqlalchemy as sa

from attachd.db import models
from attachd.db.engine import row_locks, session
from attachd.tests.fixtures import databases


class LockRowTest(unittest.TestCase):
    def test_lock_row_on_sqlite_does_nothing(self):
        databases.use(self, "sqlite")
        with session.writer() as connection:
            row_locks.lock_row(connection, models.host_locks, "h")
            rows = connection.execute(sa.select(models.host_locks)).all()
        self.assertEqual([], rows)
