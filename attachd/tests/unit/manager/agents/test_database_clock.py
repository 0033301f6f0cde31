# SPDX-License-Identifier: Apache-2.0
"""Moments of the database's clock by that of the process."""

import datetime
import unittest

from attachd.manager.agents.database_clock import TOLERANCE, DatabaseClock

START = datetime.datetime(2026, 11, 29, 12, 0, 0)  # noqa: DTZ001  as the database has it


def moment(seconds):
    return START + datetime.timedelta(seconds=seconds)


class DatabaseClockTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.clock = DatabaseClock()
        self.clock.compare(moment(0), 1000.0)

    def test_moment_is_not_before_the_first_comparison(self):
        self.assertEqual(1000.0, self.clock.get_time(moment(-50)))
        self.assertEqual(1005.0, self.clock.get_time(moment(5)))

    def test_clock_that_jumps_forward_begins_anew(self):
        self.clock.compare(moment(10 + TOLERANCE + 0.1), 1010.0)
        self.assertEqual(1010.0, self.clock.get_time(moment(5)))

    def test_clock_that_goes_a_little_faster_makes_moments_later(self):
        self.clock.compare(moment(10 + TOLERANCE), 1010.0)
        self.assertEqual(1010.0 + TOLERANCE, self.clock.get_time(moment(10 + TOLERANCE)))

    def test_answer_that_is_long_in_coming_makes_moments_later(self):
        self.clock.compare(moment(10), 1010.5)
        self.clock.compare(moment(20), 1020.0)
        self.assertEqual(1020.5, self.clock.get_time(moment(20)))

    def test_clock_that_is_set_back_is_followed(self):
        self.clock.compare(moment(-100), 1010.0)
        self.assertEqual(1020.0, self.clock.get_time(moment(-90)))

    def test_nothing_is_known_after_a_reset(self):
        self.clock.reset()
        self.clock.compare(moment(20), 1020.0)
        self.assertEqual(1020.0, self.clock.get_time(moment(5)))
