# SPDX-License-Identifier: Apache-2.0
"""Offsets between the clocks of databases and this machine's."""

import datetime
import unittest
from unittest import mock

from attachd.db import models
from attachd.db.engine import clock_skew
from attachd.tests.fixtures import databases

HOUR = datetime.timedelta(hours=1)


class ClockSkewTest(unittest.TestCase):
    def test_database_offset_on_same_machine_is_small(self):
        for kind in databases.KINDS:
            databases.use(self, kind)
            self.assertLess(abs(clock_skew.database_offset()), 60, kind)

    def test_database_offset_of_late_machine_is_positive(self):
        databases.use(self, "mariadb")
        late = models.now() - HOUR
        with mock.patch.object(models, "now", return_value=late):
            self.assertAlmostEqual(3600, clock_skew.database_offset(), delta=60)

    def test_future_reports_without_reports_is_empty(self):
        databases.use(self)
        self.assertEqual({}, clock_skew.future_reports())
