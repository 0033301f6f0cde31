# SPDX-License-Identifier: Apache-2.0
"""Tests of the schemas of volume types; functional/bad_input has a table of invalid bodies."""

import unittest

from attachd import exception
from attachd.api.types import schema


class SpecsTest(unittest.TestCase):
    def test_multiattach_specs_are_checked(self):
        schema.check_specs({"multiattach": "<is> True", "colour": "red"})
        with self.assertRaisesRegex(exception.InvalidInput, "extra_specs.mode"):
            schema.check_specs({"mode": "red"})
