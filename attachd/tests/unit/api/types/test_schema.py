# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests on types; what they may be is in the tables of functional/bad_input."""

import unittest

from attachd import exception
from attachd.api.types import schema


class SpecsTest(unittest.TestCase):
    def test_multiattach_specs_are_checked(self):
        schema.check_specs({"multiattach": "<is> True", "colour": "red"})
        with self.assertRaisesRegex(exception.InvalidInput, "extra_specs.mode"):
            schema.check_specs({"mode": "red"})
