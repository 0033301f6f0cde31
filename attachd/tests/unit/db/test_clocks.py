# SPDX-License-Identifier: Apache-2.0
"""The clocks of databases, against this machine's."""

import datetime
import unittest
from unittest import mock

from attachd.db import clocks, columns
from attachd.tests import databases

HOUR = datetime.timedelta(hours=1)


class ClocksTest(unittest.TestCase):
    def test_servers_on_this_machine_have_its_time(self):
        for kind in databases.KINDS:
            databases.use(self, kind)
            self.assertLess(abs(clocks.database_ahead()), 60, kind)

    def test_a_machine_that_is_late_sees_the_database_ahead(self):
        databases.use(self, "mariadb")
        late = columns.now() - HOUR
        with mock.patch.object(columns, "now", return_value=late):
            self.assertAlmostEqual(3600, clocks.database_ahead(), delta=60)

    def test_without_reports_none_is_in_the_future(self):
        databases.use(self)
        self.assertEqual({}, clocks.reports_ahead())
