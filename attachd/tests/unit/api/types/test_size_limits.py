# SPDX-License-Identifier: Apache-2.0
"""How small and how large volumes of a type may be."""

import unittest

from attachd import exception
from attachd.api.types import size_limits


class SizesTest(unittest.TestCase):
    def check(self, size_gib, **limits):
        specs = {f"provisioning:{name}_vol_size": value for name, value in limits.items()}
        size_limits.check({"name": "gold", "extra_specs": specs}, size_gib)

    def test_the_limits_themselves_are_allowed(self):
        self.check(2, min="2", max="4")
        self.check(4, min="2", max="4")
        self.check(1, max="4")
        self.check(99, min="2")

    def test_what_is_beyond_them_is_refused_with_the_limit_and_the_type(self):
        with self.assertRaisesRegex(exception.InvalidInput, "gold have at least 2 GiB"):
            self.check(1, min="2", max="4")
        with self.assertRaisesRegex(exception.InvalidInput, "gold have at most 4 GiB"):
            self.check(5, min="2", max="4")

    def test_no_type_and_no_number_limit_nothing(self):
        size_limits.check(None, 5)
        for nonsense in ("", "many", "-1", "1.5", None):
            self.check(5, min=nonsense, max=nonsense)
