# SPDX-License-Identifier: Apache-2.0
"""Lengths of time as people type them."""

import argparse
import unittest

from attachd import durations


class AgeTest(unittest.TestCase):
    def test_a_number_and_a_unit(self):
        for text, seconds in (("0s", 0), ("90s", 90), ("30m", 1800), ("2h", 7200), ("7d", 604800)):
            self.assertEqual(seconds, durations.age(text).total_seconds())

    def test_nothing_else(self):
        for text in ("", "2", "h", "two", "-1h", "2w", "1e3s", "999999d", "\u0662h", "1h\n"):
            with (
                self.subTest(text),
                self.assertRaisesRegex(argparse.ArgumentTypeError, "not a duration"),
            ):
                durations.age(text)
