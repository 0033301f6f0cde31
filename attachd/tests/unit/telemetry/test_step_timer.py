# SPDX-License-Identifier: Apache-2.0
"""What a thread works on."""

import threading
import unittest

from attachd.telemetry import step_timer


class WorkTest(unittest.TestCase):
    def test_steps_are_noted_in_order_with_how_they_ended(self):
        with step_timer.operation() as at:
            with step_timer.step("first"):
                pass
            with self.assertRaises(KeyError), step_timer.step("second"):
                raise KeyError
        self.assertEqual([("first", False), ("second", True)], [s[::2] for s in _told(at)])
        self.assertTrue(all(seconds >= 0 for _, seconds, _ in _told(at)))

    def test_nothing_is_noted_outside(self):
        with step_timer.step("lonely"):
            self.assertIsNone(step_timer.current())

    def test_work_within_work_is_another_one(self):
        with step_timer.operation() as outer:
            with step_timer.operation() as inner, step_timer.step("inner"):
                self.assertIs(inner, step_timer.current())
            self.assertIs(outer, step_timer.current())
        self.assertEqual([], outer.steps)
        self.assertIsNone(step_timer.current())

    def test_each_thread_has_its_own(self):
        seen = []
        with step_timer.operation():
            thread = threading.Thread(target=lambda: seen.append(step_timer.current()))
            thread.start()
            thread.join()
        self.assertEqual([None], seen)

    def test_its_time_goes_on(self):
        with step_timer.operation() as at:
            before = at.seconds
            self.assertGreaterEqual(at.seconds, before)


def _told(at):
    return [(each.name, each.seconds, each.failed) for each in at.steps]
