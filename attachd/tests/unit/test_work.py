# SPDX-License-Identifier: Apache-2.0
"""What a thread works on."""

import threading
import unittest

from attachd import work


class WorkTest(unittest.TestCase):
    def test_steps_are_noted_in_order_with_how_they_ended(self):
        with work.begun() as at:
            with work.step("first"):
                pass
            with self.assertRaises(KeyError), work.step("second"):
                raise KeyError
        self.assertEqual([("first", False), ("second", True)], [s[::2] for s in _told(at)])
        self.assertTrue(all(seconds >= 0 for _, seconds, _ in _told(at)))

    def test_nothing_is_noted_outside(self):
        with work.step("lonely"):
            self.assertIsNone(work.current())

    def test_work_within_work_is_another_one(self):
        with work.begun() as outer:
            with work.begun() as inner, work.step("inner"):
                self.assertIs(inner, work.current())
            self.assertIs(outer, work.current())
        self.assertEqual([], outer.steps)
        self.assertIsNone(work.current())

    def test_each_thread_has_its_own(self):
        seen = []
        with work.begun():
            thread = threading.Thread(target=lambda: seen.append(work.current()))
            thread.start()
            thread.join()
        self.assertEqual([None], seen)

    def test_its_time_goes_on(self):
        with work.begun() as at:
            before = at.seconds
            self.assertGreaterEqual(at.seconds, before)


def _told(at):
    return [(each.name, each.seconds, each.failed) for each in at.steps]
