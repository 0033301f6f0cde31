# SPDX-License-Identifier: Apache-2.0
"""Times that a list is compared with."""

import datetime
import unittest

from attachd import exception
from attachd.api import times


class TimesTest(unittest.TestCase):
    def test_each_is_an_operator_and_a_moment_in_utc(self):
        (after, until) = times.comparisons("a", "gt:2026-01-31T12:00:00+01:00,lte:2026-02-01")
        self.assertEqual(
            ("a", "gt", datetime.datetime.fromisoformat("2026-01-31T11:00:00")), after
        )
        self.assertEqual(("a", "lte", datetime.datetime.fromisoformat("2026-02-01")), until)

    def test_anything_else_is_refused_by_the_name_of_the_filter(self):
        many = ",".join(["gt:2026-01-01"] * 101)
        for text in ("", "gt", "gt:", "2026-01-01", "about:2026-01-01", "gt:2026-13-01", many):
            with (
                self.subTest(text[:30]),
                self.assertRaisesRegex(exception.InvalidInput, "attribute since"),
            ):
                times.comparisons("since", text)
