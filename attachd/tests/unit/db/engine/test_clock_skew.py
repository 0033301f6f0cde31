# SPDX-License-Identifier: Apache-2.0
"""The clocks of databases, against this machine's."""

import datetime
import unittest
from unittest import mock

from attachd.db import models
from attachd.db.engine import clock_skew
from attachd.tests.fixtures import databases

HOUR = datetime.timedelta(hours=1)


class ClocksTest(unittest.TestCase):
    def test_servers_on_this_machine_have_its_time(self):
        for kind in databases.KINDS:
            databases.use(self, kind)
            self.assertLess(abs(clock_skew.database_offset()), 60, kind)

    def test_a_machine_that_is_late_sees_the_database_ahead(self):
        databases.use(self, "mariadb")
        late = models.now() - HOUR
        with mock.patch.object(models, "now", return_value=late):
            self.assertAlmostEqual(3600, clock_skew.database_offset(), delta=60)

    def test_without_reports_none_is_in_the_future(self):
        databases.use(self)
        self.assertEqual({}, clock_skew.future_reports())
