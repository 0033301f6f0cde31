# SPDX-License-Identifier: Apache-2.0
"""Timing of the steps of an operation."""

import threading
import unittest

from attachd.telemetry import step_timer


class OperationTest(unittest.TestCase):
    def test_steps_are_recorded_in_order_with_outcome(self):
        with step_timer.operation() as operation:
            with step_timer.step("first"):
                pass
            with self.assertRaises(KeyError), step_timer.step("second"):
                raise KeyError
        self.assertEqual(
            [("first", False), ("second", True)], [s[::2] for s in _as_tuples(operation)]
        )
        self.assertTrue(all(seconds >= 0 for _, seconds, _ in _as_tuples(operation)))

    def test_step_outside_operation_records_nothing(self):
        with step_timer.step("lonely"):
            self.assertIsNone(step_timer.current())

    def test_nested_operation_records_its_own_steps(self):
        with step_timer.operation() as outer:
            with step_timer.operation() as inner, step_timer.step("inner"):
                self.assertIs(inner, step_timer.current())
            self.assertIs(outer, step_timer.current())
        self.assertEqual([], outer.steps)
        self.assertIsNone(step_timer.current())

    def test_operation_of_other_thread_is_not_seen(self):
        seen = []
        with step_timer.operation():
            thread = threading.Thread(target=lambda: seen.append(step_timer.current()))
            thread.start()
            thread.join()
        self.assertEqual([None], seen)

    def test_seconds_of_operation_increase(self):
        with step_timer.operation() as operation:
            before = operation.seconds
            self.assertGreaterEqual(operation.seconds, before)


def _as_tuples(operation):
    return [(each.name, each.seconds, each.failed) for each in operation.steps]
