# SPDX-License-Identifier: Apache-2.0
"""The table of states against a second one, written by hand.

The tables here are not derived from attachd.states, so that a change of the table has to be
made twice.
"""

from collections.abc import Iterator
import itertools
import unittest

from attachd import exception, states
from attachd.db.attachments import attachment_store
from attachd.db.volumes import snapshot_store, volume_store
from attachd.states import AttachmentState, Event, SnapshotState, VolumeState
from attachd.tests.fixtures import databases, db_rows

GONE = "(gone)"

# What may happen to an attachment: event -> {from: to}.  Everything else is refused.
ATTACHMENT_ARROWS = {
    Event.CONNECT: {
        "reserved": "connecting",
        "connecting": "connecting",
        "attached": "connecting",
        "connect_failed": "connecting",
        "connect_unknown": "connecting",
    },
    Event.GRANTED: {"connecting": "connected"},
    Event.CONNECT_FAILED: {
        "connecting": "connect_failed",
        "connect_unknown": "connect_failed",
    },
    Event.CONNECT_LOST: {"connecting": "connect_unknown"},
    Event.COMPLETE: {"reserved": "attached", "connected": "attached", "attached": "attached"},
    Event.CANCEL: {"reserved": GONE},
    Event.RELEASE: {"held": GONE},
    Event.WITHDRAW: {
        "connected": "withdrawing",
        "attached": "withdrawing",
        "withdrawing": "withdrawing",
    },
    Event.REFUSE_DETACH: {"withdrawing": "attached"},
    Event.DISCONNECT: {
        "reserved": "disconnecting",
        "connecting": "disconnecting",
        "connected": "disconnecting",
        "attached": "disconnecting",
        "withdrawing": "disconnecting",
        "disconnecting": "disconnecting",
        "connect_failed": "disconnecting",
        "connect_unknown": "disconnecting",
        "disconnect_failed": "disconnecting",
    },
    Event.REVOKED: {"disconnecting": GONE},
    Event.DISCONNECT_FAILED: {"disconnecting": "disconnect_failed"},
}
VOLUME_ARROWS = {
    Event.CREATED: {"creating": "ready"},
    Event.CREATE_FAILED: {"creating": "error"},
    Event.DELETE: {
        "ready": "deleting",
        "error": "deleting",
        "error_deleting": "deleting",
        "error_extending": "deleting",
    },
    Event.DELETED: {"deleting": GONE},
    Event.DELETE_FAILED: {"deleting": "error_deleting"},
    Event.EXTEND: {"ready": "extending"},
    Event.EXTENDED: {"extending": "ready"},
    Event.EXTEND_FAILED: {"extending": "error_extending"},
    Event.EXTEND_LOST: {"extending": "error_extending"},
    Event.EXTEND_RESOLVED: {"error_extending": "ready"},
    Event.MANAGED: {"managing": "ready"},
    Event.MANAGE_FAILED: {"managing": "error_managing"},
    Event.UNMANAGE: {
        "ready": "unmanaging",
        "error": "unmanaging",
        "error_extending": "unmanaging",
        "error_managing": "unmanaging",
        "error_unmanaging": "unmanaging",
    },
    Event.UNMANAGED: {"unmanaging": GONE},
    Event.UNMANAGE_FAILED: {"unmanaging": "error_unmanaging"},
    Event.REIMAGE: {"ready": "downloading", "error": "downloading"},
    Event.REIMAGED: {"downloading": "ready"},
    Event.REIMAGE_FAILED: {"downloading": "error"},
    Event.UPLOAD: {"ready": "uploading"},
    Event.UPLOADED: {"uploading": "ready"},
    Event.UPLOAD_FAILED: {"uploading": "ready"},
    Event.OFFER: {"ready": "awaiting-transfer"},
    Event.ACCEPT: {"awaiting-transfer": "ready"},
    Event.WITHDRAW_OFFER: {"awaiting-transfer": "ready"},
    Event.REVERT: {"ready": "reverting"},
    Event.REVERTED: {"reverting": "ready"},
    Event.REVERT_FAILED: {"reverting": "error"},
}
SNAPSHOT_ARROWS = {
    Event.CREATED: {"creating": "available"},
    Event.CREATE_FAILED: {"creating": "error"},
    Event.DELETE: {
        "available": "deleting",
        "error": "deleting",
        "error_deleting": "deleting",
    },
    Event.DELETED: {"deleting": GONE},
    Event.DELETE_FAILED: {"deleting": "error_deleting"},
    Event.UPLOADED: {"creating": "deleting"},
    Event.UNMANAGE: {"available": "unmanaging", "error": "unmanaging"},
    Event.UNMANAGED: {"unmanaging": GONE},
    Event.UNMANAGE_FAILED: {"unmanaging": "error"},
    Event.REVERT: {"available": "restoring"},
    Event.REVERTED: {"restoring": "available"},
    Event.REVERT_FAILED: {"restoring": "available"},
}
WIRE_NAMES = {
    "held": "attaching",
    "reserved": "reserved",
    "connecting": "attaching",
    "connected": "attaching",
    "attached": "attached",
    "withdrawing": "detaching",
    "disconnecting": "detaching",
    "connect_failed": "error_attaching",
    "connect_unknown": "error_attaching",
    "disconnect_failed": "error_detaching",
}
# The most attached one names the volume; a failed connect that left nothing counts nowhere.
RANKS = ("attached", "attaching", "detaching", "reserved", "error_attaching", "error_detaching")
STATUS_OF = {
    "attached": "in-use",
    "attaching": "attaching",
    "detaching": "detaching",
    "reserved": "reserved",
    "error_attaching": "error",
    "error_detaching": "error",
    "detached": "available",
}


def _multisets(max_count: int) -> Iterator[tuple[AttachmentState, ...]]:
    return itertools.chain.from_iterable(
        itertools.combinations_with_replacement(AttachmentState, count)
        for count in range(max_count + 1)
    )


def _expected(
    state: VolumeState, attachments: tuple[AttachmentState, ...], pending_detaches: int = 0
) -> tuple[str, str]:
    names = {
        WIRE_NAMES[attachment]
        for attachment in attachments
        if attachment not in {"connect_failed", "held"}
    }
    attach_status = next((name for name in RANKS if name in names), "detached")
    if state != "ready":
        return state.value, attach_status
    if pending_detaches and AttachmentState.ATTACHED in attachments:
        return "detaching", attach_status
    if "held" in attachments:
        names |= {"attaching"}
    return STATUS_OF[next((name for name in RANKS if name in names), "detached")], attach_status


class TransitionsTest(databases.DatabaseCase):
    """Each state and each event, through the functions that move rows."""

    def test_events_of_attachments_and_volumes_are_disjoint(self):
        self.assertEqual(set(Event), set(ATTACHMENT_ARROWS) | set(VOLUME_ARROWS))
        self.assertEqual(set(), set(ATTACHMENT_ARROWS) & set(VOLUME_ARROWS))

    def test_attachment_transitions_are_those_of_table(self):
        for state, event in itertools.product(AttachmentState, ATTACHMENT_ARROWS):
            with self.subTest(state=state, event=event.name):
                target = ATTACHMENT_ARROWS[event].get(state.value)
                volume_id = db_rows.add_volume()["id"]
                attachment_id = db_rows.add_attachment(volume_id, state.value)["id"]
                if target is None:
                    with self.assertRaises(exception.InvalidTransition) as refused:
                        attachment_store.transition(attachment_id, volume_id, event)
                    self.assertIn(attachment_id, str(refused.exception))
                    self.assertIn(state.value, str(refused.exception))
                else:
                    attachment_store.transition(attachment_id, volume_id, event)
                left = [row["state"] for row in db_rows.list_attachments(volume_id)]
                self.assertEqual([] if target == GONE else [target or state.value], left)
                volume = db_rows.get_volume(volume_id)
                expected = _expected(VolumeState.READY, tuple(map(AttachmentState, left)))
                self.assertEqual(expected, (volume["status"], volume["attach_status"]))

    def test_snapshot_transitions_are_those_of_table(self):
        for state, event in itertools.product(SnapshotState, SNAPSHOT_ARROWS):
            with self.subTest(state=state, event=event.name):
                target = SNAPSHOT_ARROWS[event].get(state.value)
                snapshot_id = db_rows.add_snapshot(db_rows.add_volume()["id"], state.value)["id"]
                if target is None:
                    with self.assertRaises(exception.InvalidTransition) as refused:
                        snapshot_store.transition(snapshot_id, event)
                    self.assertIn(snapshot_id, str(refused.exception))
                else:
                    snapshot_store.transition(snapshot_id, event)
                left = [row for row in db_rows.list_snapshots() if row["id"] == snapshot_id]
                expected = [] if target == GONE else [target or state.value]
                self.assertEqual(expected, [row["state"] for row in left])

    def test_volume_transitions_are_those_of_table(self):
        for state, event in itertools.product(VolumeState, VOLUME_ARROWS):
            with self.subTest(state=state, event=event.name):
                target = VOLUME_ARROWS[event].get(state.value)
                volume_id = db_rows.add_volume(state.value)["id"]
                if target is None:
                    with self.assertRaises(exception.AttachdError):
                        volume_store.transition(volume_id, event, {})
                else:
                    volume_store.transition(volume_id, event, {})
                left = [row for row in db_rows.list_volumes() if row["id"] == volume_id]
                expected = [] if target == GONE else [target or state.value]
                self.assertEqual(expected, [row["state"] for row in left])
                for row in left:
                    self.assertEqual(_expected(VolumeState(row["state"]), ())[0], row["status"])


class DerivationTest(unittest.TestCase):
    """The status of a volume that is derived from the states of its attachments."""

    def test_derive_status_from_highest_attachment(self):
        for state in VolumeState:
            for held in _multisets(3):
                derived = states.derive(state, held)
                self.assertEqual(_expected(state, held), tuple(derived), (state, held))

    def test_derive_detaching_while_attached_ones_are_pending_detach(self):
        for held in _multisets(3):
            for pending_detaches in range(4):
                derived = states.derive(VolumeState.READY, held, pending_detaches)
                expected = _expected(VolumeState.READY, held, pending_detaches)
                self.assertEqual(expected, tuple(derived), (held, pending_detaches))

    def test_remaining_detaches_is_limited_by_attached(self):
        for held in _multisets(3):
            attached = held.count(AttachmentState.ATTACHED)
            for pending_detaches in range(5):
                left = states.remaining_detaches(pending_detaches, held)
                self.assertEqual(min(pending_detaches, attached), left)

    def test_derive_with_hold_is_attaching_and_detached(self):
        derived = states.derive(VolumeState.READY, [AttachmentState.HELD])
        self.assertEqual(("attaching", "detached"), derived)

    def test_derive_is_independent_of_order(self):
        for held in _multisets(3):
            found = {
                states.derive(VolumeState.READY, order) for order in itertools.permutations(held)
            }
            self.assertEqual(1, len(found), held)

    def test_derive_with_connect_failed_is_available(self):
        derived = states.derive(VolumeState.READY, [AttachmentState.CONNECT_FAILED])
        self.assertEqual(("available", "detached"), derived)

    def test_derive_with_uncertain_access_is_error(self):
        for state in (AttachmentState.CONNECT_UNKNOWN, AttachmentState.DISCONNECT_FAILED):
            self.assertEqual("error", states.derive(VolumeState.READY, [state]).status)

    def test_preserves_status_agrees_with_derivation(self):
        for event, arrows in ATTACHMENT_ARROWS.items():
            after = {
                target: () if target == GONE else (AttachmentState(target),)
                for target in arrows.values()
            }
            changes_nothing = all(
                _expected(own, (*others, AttachmentState(source)))
                == _expected(own, (*others, *after[target]))
                for source, target in arrows.items()
                for others in _multisets(2)
                for own in VolumeState
            )
            self.assertEqual(changes_nothing, states.preserves_status(event), event)

    def test_move_without_volume_refuses_event_that_changes_status(self):
        with self.assertRaises(AssertionError):
            attachment_store.transition_without_volume({"id": "any"}, Event.CONNECT_LOST, {}, 1)

    def test_state_after_detach_changes_only_error(self):
        changed = {state: states.state_after_detach(state) for state in VolumeState}
        kept = {state: state for state in VolumeState}
        self.assertEqual(kept | {VolumeState.ERROR: VolumeState.READY}, changed)


class NamesTest(unittest.TestCase):
    """Names of the states on the wire."""

    def test_states_have_wire_names(self):
        self.assertEqual(WIRE_NAMES, {state.value: state.wire for state in AttachmentState})

    def test_attachment_states_returns_states_of_wire_name(self):
        for name in {*WIRE_NAMES.values(), "detached", ""}:
            inner = {state for state, wire in WIRE_NAMES.items() if wire == name}
            self.assertEqual(inner, states.attachment_states(name), name)

    def test_groups_of_states_are_disjoint(self):
        groups = [states.INACTIVE, states.LIVE, states.ACCESS_UNKNOWN]
        self.assertEqual(sum(map(len, groups)), len(frozenset().union(*groups)))
        rest = frozenset(AttachmentState).difference(*groups)
        self.assertEqual({"held", "reserved", "disconnecting"}, rest)
