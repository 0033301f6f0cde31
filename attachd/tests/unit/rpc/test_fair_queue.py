# SPDX-License-Identifier: Apache-2.0

import unittest

from hypothesis import given
from hypothesis import strategies as st

from attachd.rpc.fair_queue import FairQueue


def always(_place):
    return True


class FairQueueTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.queue = FairQueue()

    def fill(self, *places):
        """Put an item in line for each project and volume, written as one word."""
        for number, (project, volume) in enumerate(places):
            self.queue.put((project, volume), number)

    def drain(self, may_take=always):
        taken = []
        while (found := self.queue.take(may_take)) is not None:
            taken.append(found[1])
        return taken

    def test_projects_have_turns_one_after_the_other(self):
        self.fill("pv", "pw", "px", "qv", "rv", "qw")
        self.assertEqual([0, 3, 4, 1, 5, 2], self.drain())

    def test_volumes_of_project_have_turns_one_after_the_other(self):
        self.fill("pv", "pv", "pv", "pw")
        self.assertEqual([0, 3, 1, 2], self.drain())

    def test_place_put_first_has_the_next_turn(self):
        self.fill("pv", "qv", "pv")
        self.queue.put_first(("r", ""), 3)
        self.queue.put_first(("q", "w"), 4)
        self.assertEqual([4, 3, 0, 1, 2], self.drain())

    def test_item_taken_at_its_place_costs_its_owners_their_turn(self):
        self.fill("pv", "pw", "qv", "pw")
        self.assertEqual(1, self.queue.take_at(("p", "w")))
        self.assertEqual([2, 0, 3], self.drain())

    def test_names_are_those_of_waiting_items_in_turn(self):
        self.fill("pv", "pw", "qv")
        self.queue.take(always)
        names = [list(self.queue.names(*place)) for place in ((), "p", "q", "r")]
        self.assertEqual([["q", "p"], ["w"], ["v"], []], names)

    def test_places_of_a_refused_owner_are_not_asked_for(self):
        self.fill("qv", *(("p", f"v{number}") for number in range(1000)), "rv")
        asked = []

        def may_take(place):
            asked.append(place)
            return place[0] == "r"

        self.assertEqual((("r", "v"), 1001), self.queue.take(may_take))
        self.assertEqual([("q",), ("p",), ("r",), ("r", "v")], asked)

    def test_item_that_may_not_be_taken_keeps_its_place(self):
        self.fill("pv", "pw", "pv")
        self.assertEqual([1], self.drain(lambda place: place[-1] != "v"))
        self.assertEqual(2, self.queue.length)
        self.assertEqual([0, 2], self.drain())

    def test_removed_item_leaves_the_turns_of_others(self):
        self.fill("pv", "qv", "pw")
        self.queue.remove(("p", "v"), 0)
        self.assertEqual((2, 2), (self.queue.length, len(self.queue.names())))
        self.assertEqual([2, 1], self.drain())
        self.assertEqual((0, 0), (self.queue.length, len(self.queue.names())))

    @given(st.lists(st.tuples(st.sampled_from("pqr"), st.sampled_from("vwx")), max_size=30))
    def test_each_item_is_taken_once_and_each_volume_in_order(self, places):
        self.queue = FairQueue()
        self.fill(*places)
        taken = self.drain()
        self.assertEqual(list(range(len(places))), sorted(taken))
        for place in set(places):
            own = [number for number in taken if places[number] == place]
            self.assertEqual(sorted(own), own)
        self.assertEqual(0, self.queue.length)
