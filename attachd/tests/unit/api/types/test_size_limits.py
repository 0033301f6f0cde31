# SPDX-License-Identifier: Apache-2.0
"""Tests of the limits that volume types set to sizes."""

import unittest

from attachd import exception
from attachd.api.types import size_limits


class SizeLimitsTest(unittest.TestCase):
    def check(self, size_gib, **limits):
        specs = {f"provisioning:{name}_vol_size": value for name, value in limits.items()}
        size_limits.check({"name": "gold", "extra_specs": specs}, size_gib)

    def test_check_at_limits_succeeds(self):
        self.check(2, min="2", max="4")
        self.check(4, min="2", max="4")
        self.check(1, max="4")
        self.check(99, min="2")

    def test_check_beyond_limits_names_limit_and_type(self):
        with self.assertRaisesRegex(exception.InvalidInput, "gold have at least 2 GiB"):
            self.check(1, min="2", max="4")
        with self.assertRaisesRegex(exception.InvalidInput, "gold have at most 4 GiB"):
            self.check(5, min="2", max="4")

    def test_check_without_type_or_number_succeeds(self):
        size_limits.check(None, 5)
        for nonsense in ("", "many", "-1", "1.5", None):
            self.check(5, min=nonsense, max=nonsense)
