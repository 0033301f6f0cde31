# SPDX-License-Identifier: Apache-2.0
"""Durations on the command line."""

import argparse
import unittest

from attachd import durations


class DurationTest(unittest.TestCase):
    def test_duration_of_number_and_unit_is_parsed(self):
        for text, seconds in (("0s", 0), ("90s", 90), ("30m", 1800), ("2h", 7200), ("7d", 604800)):
            self.assertEqual(seconds, durations.age(text).total_seconds())

    def test_invalid_duration_is_refused(self):
        for text in ("", "2", "h", "two", "-1h", "2w", "1e3s", "999999d", "\u0662h", "1h\n"):
            with (
                self.subTest(text),
                self.assertRaisesRegex(argparse.ArgumentTypeError, "not a duration"),
            ):
                durations.age(text)
