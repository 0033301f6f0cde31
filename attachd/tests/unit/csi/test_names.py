# SPDX-License-Identifier: Apache-2.0
import unittest

from attachd.csi import names


class NamesTest(unittest.TestCase):
    def test_digest_depends_on_driver_and_name(self):
        digests = {
            names.digest(driver, name)
            for driver, name in (("a", "b"), ("ab", ""), ("", "ab"), ("b", "a"))
        }
        self.assertEqual(4, len(digests))
        self.assertRegex(names.digest("a", "\N{SNOWMAN}"), "^[0-9a-f]{64}$")

    def test_control_characters_are_not_printed(self):
        self.assertEqual("a b \N{SNOWMAN}", names.printable("a\tb\n\N{SNOWMAN}"))

    def test_keys_differ_by_identity_values_and_number(self):
        keys = {
            names.make_key(identity, values, number)
            for identity in ("a" * 64, "b" * 64)
            for values in ({}, {"size": 1})
            for number in (0, 1)
        }
        self.assertEqual(8, len(keys))
        self.assertLess(max(map(len, keys)), 255)
        one, same = (
            names.make_key("a", values, 0) for values in ({"b": 1, "a": 2}, {"a": 2, "b": 1})
        )
        self.assertEqual(one, same)
