# SPDX-License-Identifier: Apache-2.0
import random
import unittest

from attachd.tests.soak import linearizability
from attachd.tests.soak.linearizability import Operation


def register(state, what):
    """Specify a register: ("write", value), ("read", value), ("swap", old, new, done)."""
    verb, *rest = what
    if verb == "write":
        return rest
    if verb == "read":
        return [state] if [state] == rest else []
    old, new, done = rest
    if done != (state == old):
        return []
    return [new if done else state]


def coin(state, what):
    """Specify a nondeterministic object: an unseen throw, and its visible result."""
    if what == "throw":
        return ["heads", "tails"]
    return [state] if state == what else []


def verdict(*history, initial=0, step=register):
    return linearizability.check([Operation(*item) for item in history], initial, step)


class RegisterTest(unittest.TestCase):
    def assert_linearizable(self, *history):
        found = verdict(*history)
        self.assertTrue(found.linearizable, found)

    def assert_not_linearizable(self, *history):
        found = verdict(*history)
        self.assertIs(False, found.linearizable, found)
        return found

    def test_empty_history_is_linearizable(self):
        self.assert_linearizable()

    def test_sequential_history_is_linearizable(self):
        self.assert_linearizable((0, 1, ("write", 1)), (2, 3, ("read", 1)))

    def test_stale_read_after_write_is_not_linearizable(self):
        self.assert_not_linearizable((0, 1, ("write", 1)), (2, 3, ("read", 0)))

    def test_read_concurrent_with_write_sees_either_value(self):
        for value in (0, 1):
            self.assert_linearizable((0, 10, ("write", 1)), (2, 3, ("read", value)))

    def test_value_seen_once_is_not_unseen(self):
        write = (0, 10, ("write", 1))
        self.assert_linearizable(write, (1, 2, ("read", 0)), (3, 4, ("read", 1)))
        self.assert_not_linearizable(write, (1, 2, ("read", 1)), (3, 4, ("read", 0)))

    def test_two_readers_agree_on_order_of_writes(self):
        writes = ((0, 100, ("write", 1)), (0, 100, ("write", 2)))
        first = ((1, 2, ("read", 1)), (5, 6, ("read", 2)))
        self.assert_linearizable(*writes, *first, (3, 4, ("read", 1)), (7, 8, ("read", 2)))
        self.assert_not_linearizable(*writes, *first, (3, 4, ("read", 2)), (7, 8, ("read", 1)))

    def test_one_of_two_concurrent_swaps_succeeds(self):
        def swaps(one, other):
            return [(0, 9, ("swap", 0, 1, one)), (0, 9, ("swap", 0, 2, other))]

        self.assert_linearizable(*swaps(True, False))
        self.assert_not_linearizable(*swaps(True, True))
        self.assert_not_linearizable(*swaps(False, False))

    def test_operations_that_touch_may_be_in_either_order(self):
        self.assert_linearizable((0, 1, ("write", 1)), (1, 2, ("read", 0)))

    def test_unanswered_operation_may_have_taken_effect_or_not(self):
        lost = (0, None, ("write", 1))
        for value in (0, 1):
            self.assert_linearizable(lost, (5, 6, ("read", value)))

    def test_unanswered_operation_may_take_effect_late(self):
        lost = (0, None, ("write", 1))
        self.assert_linearizable(lost, (5, 6, ("read", 0)), (7, 8, ("read", 1)))

    def test_unanswered_operation_takes_effect_at_most_once(self):
        lost = (0, None, ("write", 1))
        reads = [(5, 6, ("read", 1)), (7, 8, ("write", 2)), (9, 10, ("read", 1))]
        self.assert_not_linearizable(lost, *reads)
        self.assert_linearizable(lost, lost, *reads)

    def test_unanswered_operation_takes_no_effect_before_it_began(self):
        self.assert_not_linearizable((5, None, ("write", 1)), (0, 1, ("read", 1)))

    def test_verdict_of_failure_has_longest_order_and_stuck_operations(self):
        found = self.assert_not_linearizable(
            (0, 1, ("write", 1)), (2, 3, ("write", 2)), (4, 5, ("read", 1))
        )
        self.assertEqual([("write", 1), ("write", 2)], [item.what for item in found.order])
        self.assertEqual(2, found.state)
        self.assertEqual([("read", 1)], [item.what for item in found.stuck])

    def test_verdict_has_order(self):
        found = verdict((0, 10, ("write", 1)), (2, 3, ("read", 0)))
        self.assertEqual([("read", 0), ("write", 1)], [item.what for item in found.order])

    def test_check_ends_after_limit_of_states(self):
        writes = [Operation(0, 100, ("write", value)) for value in range(12)]
        history = [*writes, Operation(200, 201, ("read", 99))]
        found = linearizability.check(history, 0, register, most=1000)
        self.assertIsNone(found.linearizable)

    def test_long_sequential_history_is_linearizable(self):
        chance = random.Random(5)
        value, history = 0, []
        for moment in range(5000):
            around = (moment - chance.uniform(0, 3), moment + chance.uniform(0, 3))
            if chance.random() < 0.5:
                history.append((*around, ("read", value)))
            else:
                value = chance.randrange(100)
                answered = None if chance.random() < 0.01 else around[1]
                history.append((around[0], answered, ("write", value)))
        found = verdict(*history)
        self.assertTrue(found.linearizable)
        self.assertLess(found.visited, 100_000)
        history.append((6000, 6001, ("read", -1)))
        self.assertIsNot(True, verdict(*history[-200:]).linearizable)


class ChanceTest(unittest.TestCase):
    def test_nondeterministic_specification_allows_either_result(self):
        throw = (0, 1, "throw")
        for side in ("heads", "tails"):
            found = verdict(throw, (2, 3, side), initial="", step=coin)
            self.assertTrue(found.linearizable)
            self.assertEqual(side, found.state)
        found = verdict(throw, (2, 3, "heads"), (4, 5, "tails"), initial="", step=coin)
        self.assertIs(False, found.linearizable)
