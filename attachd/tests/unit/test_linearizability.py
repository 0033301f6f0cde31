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
    """Specify what is not determined: a throw that nobody sees, and what lies there."""
    if what == "throw":
        return ["heads", "tails"]
    return [state] if state == what else []


def verdict(*history, initial=0, step=register):
    return linearizability.check([Operation(*each) for each in history], initial, step)


class RegisterTest(unittest.TestCase):
    def assert_linearizable(self, *history):
        found = verdict(*history)
        self.assertTrue(found.linearizable, found)

    def assert_not_linearizable(self, *history):
        found = verdict(*history)
        self.assertIs(False, found.linearizable, found)
        return found

    def test_nothing_is_linearizable(self):
        self.assert_linearizable()

    def test_one_after_the_other(self):
        self.assert_linearizable((0, 1, ("write", 1)), (2, 3, ("read", 1)))

    def test_a_read_that_began_after_a_write_sees_it(self):
        self.assert_not_linearizable((0, 1, ("write", 1)), (2, 3, ("read", 0)))

    def test_a_read_beside_a_write_sees_either(self):
        for value in (0, 1):
            self.assert_linearizable((0, 10, ("write", 1)), (2, 3, ("read", value)))

    def test_what_was_seen_once_stays(self):
        write = (0, 10, ("write", 1))
        self.assert_linearizable(write, (1, 2, ("read", 0)), (3, 4, ("read", 1)))
        self.assert_not_linearizable(write, (1, 2, ("read", 1)), (3, 4, ("read", 0)))

    def test_two_readers_agree_on_the_order_of_two_writes(self):
        writes = ((0, 100, ("write", 1)), (0, 100, ("write", 2)))
        first = ((1, 2, ("read", 1)), (5, 6, ("read", 2)))
        self.assert_linearizable(*writes, *first, (3, 4, ("read", 1)), (7, 8, ("read", 2)))
        self.assert_not_linearizable(*writes, *first, (3, 4, ("read", 2)), (7, 8, ("read", 1)))

    def test_a_swap_succeeds_for_one_of_two(self):
        def swaps(one, other):
            return [(0, 9, ("swap", 0, 1, one)), (0, 9, ("swap", 0, 2, other))]

        self.assert_linearizable(*swaps(True, False))
        self.assert_not_linearizable(*swaps(True, True))
        self.assert_not_linearizable(*swaps(False, False))

    def test_where_one_ends_the_moment_that_the_other_begins_either_may_be_first(self):
        self.assert_linearizable((0, 1, ("write", 1)), (1, 2, ("read", 0)))

    def test_what_was_never_answered_may_have_taken_effect_or_not(self):
        lost = (0, None, ("write", 1))
        for value in (0, 1):
            self.assert_linearizable(lost, (5, 6, ("read", value)))

    def test_what_was_never_answered_may_take_effect_late(self):
        lost = (0, None, ("write", 1))
        self.assert_linearizable(lost, (5, 6, ("read", 0)), (7, 8, ("read", 1)))

    def test_what_was_never_answered_takes_effect_once_only(self):
        lost = (0, None, ("write", 1))
        reads = [(5, 6, ("read", 1)), (7, 8, ("write", 2)), (9, 10, ("read", 1))]
        self.assert_not_linearizable(lost, *reads)
        self.assert_linearizable(lost, lost, *reads)

    def test_what_was_never_answered_does_not_take_effect_before_it_was_asked(self):
        self.assert_not_linearizable((5, None, ("write", 1)), (0, 1, ("read", 1)))

    def test_a_verdict_tells_how_far_it_came(self):
        found = self.assert_not_linearizable(
            (0, 1, ("write", 1)), (2, 3, ("write", 2)), (4, 5, ("read", 1))
        )
        self.assertEqual([("write", 1), ("write", 2)], [each.what for each in found.order])
        self.assertEqual(2, found.state)
        self.assertEqual([("read", 1)], [each.what for each in found.stuck])

    def test_a_verdict_tells_the_order(self):
        found = verdict((0, 10, ("write", 1)), (2, 3, ("read", 0)))
        self.assertEqual([("read", 0), ("write", 1)], [each.what for each in found.order])

    def test_it_gives_up_after_so_many_situations(self):
        writes = [Operation(0, 100, ("write", value)) for value in range(12)]
        history = [*writes, Operation(200, 201, ("read", 99))]
        found = linearizability.check(history, 0, register, most=1000)
        self.assertIsNone(found.linearizable)

    def test_what_really_happened_one_after_the_other_is_linearizable_however_long(self):
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
    def test_what_a_specification_leaves_open_may_be_either(self):
        throw = (0, 1, "throw")
        for side in ("heads", "tails"):
            found = verdict(throw, (2, 3, side), initial="", step=coin)
            self.assertTrue(found.linearizable)
            self.assertEqual(side, found.state)
        found = verdict(throw, (2, 3, "heads"), (4, 5, "tails"), initial="", step=coin)
        self.assertIs(False, found.linearizable)
