# SPDX-License-Identifier: Apache-2.0
"""How long tokens are kept, and how many."""

import unittest
from unittest import mock

from attachd.api import token_cache


class TokenCacheTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.now = 1000.0
        self.enterContext(mock.patch.object(token_cache, "monotonic", lambda: self.now))
        self.cache = token_cache.TokenCache(most=3)

    def kept(self):
        return [key for key in "abcdef" if self.cache.get(key)]

    def test_a_token_is_kept_for_its_time(self):
        self.cache.set("a", b"1", time=10)
        self.now += 9.9
        self.assertEqual(b"1", self.cache.get("a"))
        self.now += 0.1
        self.assertIsNone(self.cache.get("a"))

    def test_without_a_time_nothing_is_kept(self):
        for seconds in (0, -1):
            self.cache.set("a", b"1", time=seconds)
            self.assertIsNone(self.cache.get("a"))

    def test_the_oldest_makes_room(self):
        for key in "abcd":
            self.cache.set(key, b"1", time=10)
        self.assertEqual(["b", "c", "d"], self.kept())

    def test_what_is_set_again_is_new(self):
        for key in "abcad":
            self.cache.set(key, b"1", time=10)
        self.assertEqual(["a", "c", "d"], self.kept())

    def test_what_is_over_takes_no_room(self):
        self.cache.set("a", b"1", time=10)
        self.cache.set("b", b"1", time=10)
        self.now += 10
        self.cache.set("c", b"1", time=10)
        self.assertEqual(1, len(self.cache._kept))
