# SPDX-License-Identifier: Apache-2.0
"""What the garbage collector is told."""

import gc
import unittest
import weakref

from attachd import garbage


class Circle:
    """Refers to itself."""

    def __init__(self):
        self.myself = self


class SettleTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(gc.set_threshold, *gc.get_threshold())
        self.addCleanup(gc.unfreeze)
        self.before = gc.get_threshold()
        garbage.settle()

    def test_what_is_there_is_not_looked_at_any_more(self):
        self.assertGreater(gc.get_freeze_count(), 1000)

    def test_it_is_looked_less_often(self):
        self.assertEqual((garbage.YOUNG, *self.before[1:]), gc.get_threshold())

    def test_circles_made_later_are_found_all_the_same(self):
        seen = weakref.ref(Circle())
        made = [[] for _ in range(2 * garbage.YOUNG)]
        self.assertEqual(2 * garbage.YOUNG, len(made))
        self.assertIsNone(seen())
