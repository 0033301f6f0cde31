# SPDX-License-Identifier: Apache-2.0
"""Tests of the schemas of quotas."""

import unittest

from attachd import exception
from attachd.api import validation
from attachd.api.quotas import schema


class LimitsTest(unittest.TestCase):
    def check(self, value):
        for body_schema, key in (
            (schema.UPDATE, "quota_set"),
            (schema.UPDATE_CLASS, "quota_class_set"),
        ):
            validation.Validator(body_schema).check({key: {"volumes": value}})

    def test_limit_takes_integers_and_digits(self):
        for value in (0, -1, 2**31 - 1, "0", "-1", "0012", "2147483647", "1999999999"):
            self.check(value)

    def test_limit_refuses_other_values(self):
        for value in (-2, 2**31, 1.5, True, None, [], {}, "", "-2", "1.5", " 1", "1\n", "²", "x",
                      "2147483648", "9999999999"):  # fmt: skip
            with self.subTest(value), self.assertRaises(exception.InvalidInput):
                self.check(value)
