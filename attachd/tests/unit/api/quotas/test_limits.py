# SPDX-License-Identifier: Apache-2.0
"""What is asked to be limited."""

import unittest

from attachd import exception
from attachd.api.quotas import limits


class LimitsTest(unittest.TestCase):
    def test_numbers_are_read_from_text(self):
        self.assertEqual(
            {"a": -1, "b": 12}, limits.wanted({"a": "-1", "b": "012"}, "set", ["a", "b", "c"])
        )

    def test_what_nobody_knows_is_named_as_far_as_anybody_reads(self):
        many = {f"k{number}": 1 for number in range(100)}
        with self.assertRaises(exception.BadRequest) as caught:
            limits.wanted({**many, "x" * 500: 1}, "quota set", [])
        self.assertRegex(str(caught.exception), "^Bad key.s. in quota set: 'k0', 'k1'")
        self.assertLess(len(str(caught.exception)), 200)
