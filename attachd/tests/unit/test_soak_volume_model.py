# SPDX-License-Identifier: Apache-2.0
import unittest

from attachd.tests.soak import linearizability, phases, volume_model
from attachd.tests.soak.linearizability import Operation
from attachd.tests.soak.phases import Phase
from attachd.tests.soak.volume_model import (
    Completed,
    HadAttached,
    HadStatus,
    Listed,
    Made,
    NotConnected,
    Posted,
    Refused,
    Sent,
    State,
    Was,
)

RESERVED = frozenset({Phase.RESERVED})
CONNECTED = frozenset({Phase.CONNECTED})
GONE = frozenset({Phase.GONE})
MADE_A, MADE_B = Made("alice", "a", RESERVED), Made("bob", "b", RESERVED)
IS_CONNECTED = Was("a", CONNECTED)
A_IS_GONE = Was("a", GONE)


def listed(**pairs):
    return Listed(frozenset(pairs.items()))


class Case(unittest.TestCase):
    def check(self, shared, steps):
        """Check sequential operations; those of a list are concurrent."""
        history = []
        for moment, step in enumerate(steps):
            together = step if isinstance(step, list) else [step]
            history += [Operation(moment, moment + 0.5, item) for item in together]
        model = volume_model.Volume(shared=shared)
        return linearizability.check(history, State(), model.step)

    def possible(self, *steps, shared=(False, True)):
        for item in shared:
            found = self.check(item, steps)
            self.assertTrue(found.linearizable, (item, found))

    def impossible(self, *steps, shared=(False, True)):
        for item in shared:
            found = self.check(item, steps)
            self.assertIs(False, found.linearizable, (item, found))

    def only_shared(self, *steps):
        self.possible(*steps, shared=[True])
        self.impossible(*steps, shared=[False])

    def only_ordinary(self, *steps):
        self.possible(*steps, shared=[False])
        self.impossible(*steps, shared=[True])


class AnsweredTest(Case):
    def test_model_allows_complete_life_cycle(self):
        self.possible(
            HadStatus("available"),
            MADE_A,
            HadStatus("reserved"),
            listed(a="reserved"),
            Sent("a", "connect"),
            IS_CONNECTED,
            listed(a="attaching"),
            HadAttached(frozenset()),
            Completed("a"),
            listed(a="attached"),
            HadAttached(frozenset("a")),
            HadStatus("in-use"),
            Sent("a", "delete"),
            A_IS_GONE,
            listed(),
            HadStatus("available"),
        )

    def test_model_forbids_vanished_and_returned_attachments(self):
        self.impossible(MADE_A, listed())
        self.impossible(MADE_A, A_IS_GONE)
        self.impossible(listed(a="reserved"))
        gone = (MADE_A, Sent("a", "delete"), A_IS_GONE)
        for after in (listed(a="detaching"), HadStatus("reserved"), IS_CONNECTED, Completed("a")):
            self.impossible(*gone, after)

    def test_model_forbids_transition_without_call(self):
        self.impossible(MADE_A, listed(a="attaching"))
        self.impossible(MADE_A, listed(a="attached"))
        self.impossible(MADE_A, Completed("a"), listed(a="detaching"))
        connected = (MADE_A, Sent("a", "connect"), IS_CONNECTED)
        self.impossible(*connected, listed(a="error_attaching"))
        self.impossible(*connected, listed(a="attached"))

    def test_model_allows_one_attachment_of_ordinary_volume(self):
        self.only_shared(MADE_A, MADE_B)
        self.only_shared([MADE_A, MADE_B])
        self.possible(MADE_A, Sent("a", "delete"), MADE_B)
        self.impossible(MADE_A, Sent("a", "delete"), MADE_B, listed(a="reserved", b="reserved"),
                        shared=[False])  # fmt: skip

    def test_model_allows_refusal_only_after_other_attachment(self):
        self.only_ordinary(MADE_A, Refused("bob"))
        self.only_ordinary([MADE_A, Refused("bob")])
        self.impossible(Refused("bob"), MADE_A)

    def test_model_allows_refusal_of_volume_in_error(self):
        doubtful = (MADE_A, Sent("a", "connect"), HadStatus("error"), Refused("bob"))
        self.possible(*doubtful)
        self.possible(*doubtful[:-1], listed(a="error_attaching"), Refused("bob"))

    def test_model_allows_refused_connect_only_with_delete(self):
        self.impossible(MADE_A, NotConnected("a"))
        self.possible(MADE_A, Sent("a", "delete"), NotConnected("a"))

    def test_model_status_is_that_of_highest_attachment(self):
        both = (MADE_A, MADE_B, Completed("b"))
        self.possible(*both, HadStatus("in-use"), shared=[True])
        self.impossible(*both, HadStatus("reserved"), shared=[True])
        self.assertEqual("detaching", phases.status([Phase.LEAVING, Phase.RESERVED]))
        self.assertEqual("error", phases.status([Phase.STUCK, Phase.FAILED]))

    def test_model_forbids_incomplete_list(self):
        self.impossible(MADE_A, MADE_B, listed(a="reserved"), shared=[True])
        self.impossible(MADE_A, Completed("a"), HadAttached(frozenset()))


class UnansweredTest(Case):
    def test_model_allows_unanswered_post_to_take_effect_or_not(self):
        posted = Posted("alice", False, frozenset("a"))
        self.possible(posted, listed())
        self.possible(posted, listed(), listed(a="reserved"), MADE_A)
        self.impossible(posted, listed(a="reserved"), listed())
        self.possible(posted, Refused("bob"), shared=[False])
        self.impossible(posted, HadStatus("attaching"))

    def test_model_allows_steps_of_unanswered_connecting_post(self):
        posted = Posted("alice", True, frozenset("a"))
        made = Made("alice", "a", CONNECTED)
        for word in ("reserved", "attaching"):
            self.possible(posted, listed(a=word), made, listed(a="attaching"))
        self.possible(posted, listed(a="reserved"), listed())
        self.impossible(posted, made, listed(a="reserved"))
        self.impossible(made)

    def test_model_allows_repeated_post_to_start_again(self):
        posted = Posted("alice", True, frozenset("a"))
        made = Made("alice", "a", CONNECTED)
        self.possible(posted, listed(a="reserved"), listed(), listed(a="reserved"), made)
        self.impossible(posted, made, Sent("a", "delete"), A_IS_GONE, listed(a="reserved"))

    def test_model_forbids_effect_of_refused_post(self):
        posted = Posted("alice", False, frozenset("a"))
        self.impossible(posted, [Refused("alice"), MADE_B], listed(a="reserved"), shared=[False])

    def test_model_forbids_two_attachments_of_repeated_post(self):
        posted = Posted("alice", False, frozenset("a"))
        self.impossible(posted, MADE_A, listed(a="reserved", other="reserved"))

    def test_model_allows_each_result_of_unanswered_connect(self):
        sent = (MADE_A, Sent("a", "connect"))
        for word in ("reserved", "attaching", "error_attaching"):
            self.possible(*sent, listed(a=word))
        self.impossible(*sent, listed(a="attached"))
        self.impossible(*sent, listed())

    def test_model_allows_failed_connect_to_release_volume(self):
        sent = (MADE_A, Sent("a", "connect"))
        self.possible(*sent, MADE_B, listed(a="error_attaching", b="reserved"), shared=[False])
        both = listed(a="attaching", b="reserved")
        self.impossible(*sent, MADE_B, both, shared=[False])

    def test_model_allows_unanswered_delete_to_take_effect_late(self):
        sent = (MADE_A, Sent("a", "delete"))
        for word in ("reserved", "detaching", "error_detaching"):
            self.possible(*sent, listed(a=word), listed(a="detaching"), listed())
        self.impossible(*sent, listed(a="detaching"), listed(a="reserved"))

    def test_model_allows_unanswered_complete_to_take_effect_or_not(self):
        sent = (MADE_A, Sent("a", "complete"))
        for word in ("reserved", "attached"):
            self.possible(*sent, listed(a=word))
        self.impossible(*sent, listed(a="attached"), listed(a="reserved"))
