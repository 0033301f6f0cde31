# SPDX-License-Identifier: Apache-2.0
"""Reserving and moving attachments, and what follows for their volumes."""

import datetime
import unittest
from unittest import mock

from attachd import exception, states
from attachd.db import models
from attachd.db.attachments import store as attachments
from attachd.db.attachments import transitions as steps
from attachd.db.cluster.leases import Lease
from attachd.db.engine import session
from attachd.states import AttachmentState, Event, VolumeState
from attachd.tests.fixtures import backends, databases, db_rows


class Case(unittest.TestCase):
    """A test with a database, which functional/test_databases.py replaces by others."""

    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)

    def _reserve(self, volume_id, instance=None):
        values = {"project_id": db_rows.PROJECT, "instance_uuid": instance}
        return attachments.reserve(volume_id, values)["id"]

    def _status(self, volume_id):
        row = db_rows.get_volume(volume_id)
        return row["status"], row["attach_status"]

    def _assert_derived(self, volume_id):
        held = [AttachmentState(row["state"]) for row in db_rows.list_attachments(volume_id)]
        own = VolumeState(db_rows.get_volume(volume_id)["state"])
        self.assertEqual(states.derive(own, held), self._status(volume_id))


class CompleteTest(Case):
    def _complete(self, row):
        attachments.complete(row)

    def test_it_takes_two_statements_and_an_event(self):
        row = db_rows.add_attachment(db_rows.add_volume()["id"], "connected")
        before = session.counters()
        self._complete(row)
        statements, transactions = session.counters()
        self.assertEqual((3, 1), (statements - before[0], transactions - before[1]))
        self.assertEqual("attached", db_rows.get_attachment(row["id"])["state"])

    def test_the_volume_follows_whatever_it_and_its_other_attachments_are_going_through(self):
        for own in VolumeState:
            for other in AttachmentState:
                with self.subTest(own=own.value, other=other.value):
                    volume = db_rows.add_volume(own.value, multiattach=True)["id"]
                    db_rows.add_attachment(volume, other.value)
                    self._complete(db_rows.add_attachment(volume, "connected"))
                    self.assertEqual("attached", self._status(volume)[1])
                    self._assert_derived(volume)

    def test_it_is_possible_from_the_states_of_the_table_only(self):
        for state in AttachmentState:
            with self.subTest(state=state.value):
                row = db_rows.add_attachment(db_rows.add_volume()["id"], state.value)
                if state in states.ATTACHMENT_TRANSITIONS[Event.COMPLETE].sources:
                    self._complete(row)
                else:
                    with self.assertRaisesRegex(exception.InvalidTransition, state.value):
                        self._complete(row)
                    self.assertEqual(state.value, db_rows.get_attachment(row["id"])["state"])
                self._assert_derived(row["volume_id"])

    def test_what_is_gone_is_said_to_be_gone(self):
        volume = db_rows.add_volume()["id"]
        with self.assertRaises(exception.AttachmentNotFound):
            attachments.complete(_NOTHING | {"volume_id": volume})
        self._assert_derived(volume)


class ReserveTest(Case):
    def test_a_free_volume_is_taken_by_two_statements_and_an_event(self):
        volume = db_rows.add_volume()["id"]
        before = session.counters()
        row = attachments.reserve(volume, {"project_id": db_rows.PROJECT, "mode": "ro"})
        statements, transactions = session.counters()
        self.assertEqual((3, 1), (statements - before[0], transactions - before[1]))
        stored = db_rows.get_attachment(row["id"])
        self.assertEqual(row, {name: stored[name] for name in row})
        self.assertEqual(("reserved", "ro", 0), (row["state"], row["mode"], row["generation"]))
        self.assertEqual(("reserved", "reserved"), self._status(volume))

    def test_a_volume_is_taken_once_and_the_holder_is_named(self):
        volume = db_rows.add_volume()["id"]
        first = self._reserve(volume, "server-1")
        with self.assertRaisesRegex(exception.VolumeNotAvailable, f"{first} of server server-1"):
            self._reserve(volume, "server-2")
        self.assertEqual(1, len(db_rows.list_attachments(volume)))
        self._assert_derived(volume)

    def test_a_server_may_be_attached_from_two_hosts(self):
        volume = db_rows.add_volume()["id"]
        self._reserve(volume, "server")
        self._reserve(volume, "server")
        self.assertEqual(2, len(db_rows.list_attachments(volume)))
        self.assertRaises(exception.VolumeNotAvailable, self._reserve, volume, "another")
        self.assertRaises(exception.VolumeNotAvailable, self._reserve, volume)

    def test_two_attachments_without_a_server_are_not_of_the_same_one(self):
        volume = db_rows.add_volume()["id"]
        self._reserve(volume)
        self.assertRaises(exception.VolumeNotAvailable, self._reserve, volume)

    def test_a_multiattach_volume_is_taken_by_everybody(self):
        volume = db_rows.add_volume(multiattach=True)["id"]
        db_rows.add_attachment(volume, "attached")
        for instance in ("a", "b", None):
            self._reserve(volume, instance)
        self.assertEqual(("in-use", "attached"), self._status(volume))

    def test_a_connect_that_failed_cleanly_does_not_hold_the_volume(self):
        volume = db_rows.add_volume()["id"]
        db_rows.add_attachment(volume, "connect_failed", instance_uuid="old")
        self._reserve(volume, "new")
        self.assertEqual(("reserved", "reserved"), self._status(volume))

    def test_a_connect_nobody_knows_the_end_of_holds_the_volume(self):
        for multiattach in (False, True):
            volume = db_rows.add_volume(multiattach=multiattach)["id"]
            db_rows.add_attachment(volume, "connect_unknown", instance_uuid="old")
            self.assertRaises(exception.VolumeNotAvailable, self._reserve, volume, "new")

    def test_a_volume_that_is_not_ready_is_not_taken(self):
        for state in VolumeState:
            if state is VolumeState.READY:
                continue
            for multiattach in (False, True):
                volume = db_rows.add_volume(state, multiattach=multiattach)["id"]
                with self.assertRaisesRegex(exception.VolumeNotAvailable, f"status is {state}"):
                    self._reserve(volume)
                self.assertEqual([], db_rows.list_attachments(volume))

    def test_a_volume_that_is_gone_is_not_found(self):
        self.assertRaises(exception.VolumeNotFound, self._reserve, "gone")


class MoveTest(Case):
    def test_every_pair_of_state_and_event_does_what_the_table_says(self):
        for event, allowed in states.ATTACHMENT_TRANSITIONS.items():
            for state in AttachmentState:
                with self.subTest(event=event.name, state=state.name):
                    volume = db_rows.add_volume()["id"]
                    mine = db_rows.add_attachment(volume, state)["id"]
                    if state in allowed.sources:
                        self._assert_moves(mine, volume, event, allowed.target)
                    else:
                        self._assert_refuses(mine, volume, event)

    def _assert_moves(self, mine, volume, event, target):
        moved = attachments.move(mine, volume, event)
        left = [row["state"] for row in db_rows.list_attachments(volume)]
        self.assertEqual([] if target is None else [target], left)
        self._assert_derived(volume)
        joined = {"front_end_qos", "type_specs"}
        told = {key: each for key, each in moved.volume.items() if key not in joined}
        self.assertEqual(db_rows.get_volume(volume), {**db_rows.get_volume(volume), **told})

    def _assert_refuses(self, mine, volume, event):
        before = db_rows.get_volume(volume), db_rows.list_attachments(volume)
        with self.assertRaises(exception.InvalidTransition) as caught:
            attachments.move(mine, volume, event)
        self.assertIn(before[1][0]["state"], str(caught.exception))
        self.assertEqual(before, (db_rows.get_volume(volume), db_rows.list_attachments(volume)))

    def test_a_move_costs_an_event_and_four_statements_or_three_if_the_volume_looks_the_same(self):
        volume = db_rows.add_volume()["id"]
        mine = db_rows.add_attachment(volume)["id"]
        for event, cost in ((Event.CONNECT, 5), (Event.CONNECT, 3), (Event.GRANTED, 4)):
            before = session.counters()
            attachments.move(mine, volume, event)
            statements, transactions = session.counters()
            self.assertEqual((cost, 1), (statements - before[0], transactions - before[1]))

    def test_values_are_stored_with_the_move(self):
        volume = db_rows.add_volume()["id"]
        mine = db_rows.add_attachment(volume)["id"]
        moved = attachments.move(mine, volume, Event.CONNECT, {"host": "o", "error": "e" * 2000})
        stored = db_rows.get_attachment(mine)
        self.assertEqual(stored, {**stored, **moved.attachment})
        self.assertEqual(("o", 1023), (stored["host"], len(stored["error"])))
        self.assertIsNotNone(stored["updated_at"])

    def test_a_guard_sees_everything_and_adds_values(self):
        volume = db_rows.add_volume(multiattach=True)["id"]
        mine = db_rows.add_attachment(volume)["id"]
        other = db_rows.add_attachment(volume, "attached")["id"]

        def guard(seen_volume, seen_mine, seen_others):
            self.assertEqual(volume, seen_volume["id"])
            self.assertEqual(mine, seen_mine["id"])
            self.assertEqual([other], [row["id"] for row in seen_others])
            return {"generation": seen_mine["generation"] + 1}

        moved = attachments.move(mine, volume, Event.CONNECT, {"host": "o"}, guard)
        self.assertEqual([other], [row["id"] for row in moved.others])
        stored = db_rows.get_attachment(mine)
        self.assertEqual((1, "o"), (stored["generation"], stored["host"]))

    def test_a_guard_that_raises_forbids_the_move(self):
        volume = db_rows.add_volume()["id"]
        mine = db_rows.add_attachment(volume)["id"]

        def guard(*_):
            raise exception.Conflict(reason="no")

        with self.assertRaises(exception.Conflict):
            attachments.move(mine, volume, Event.CONNECT, guard=guard)
        self.assertEqual("reserved", db_rows.get_attachment(mine)["state"])

    def test_only_the_owner_of_the_present_generation_moves_it(self):
        volume = db_rows.add_volume()["id"]
        mine = db_rows.add_attachment(volume, "connecting", generation=3)["id"]
        for stale in (2, 4):
            with self.assertRaises(exception.InvalidTransition):
                attachments.move(mine, volume, Event.GRANTED, generation=stale)
        attachments.move(mine, volume, Event.GRANTED, generation=3)
        self.assertEqual("connected", db_rows.get_attachment(mine)["state"])

    def test_what_is_gone_or_of_another_volume_is_not_found(self):
        volume, other = db_rows.add_volume()["id"], db_rows.add_volume()["id"]
        mine = db_rows.add_attachment(volume)["id"]
        for wanted, of in (("gone", volume), (mine, other)):
            with self.assertRaises(exception.AttachmentNotFound):
                attachments.move(wanted, of, Event.CONNECT)
        with self.assertRaises(exception.VolumeNotFound):
            attachments.move(mine, "gone", Event.CONNECT)

    def test_the_last_detach_of_a_volume_in_error_makes_it_usable_again(self):
        volume = db_rows.add_volume("error")["id"]
        mine = db_rows.add_attachment(volume, "disconnecting")["id"]
        attachments.move(mine, volume, Event.REVOKED)
        self.assertEqual(("available", "detached"), self._status(volume))
        self.assertEqual("ready", db_rows.get_volume(volume)["state"])

    def test_nothing_moves_at_a_volume_that_is_being_deleted(self):
        volume = db_rows.add_volume("deleting")["id"]
        mine = db_rows.add_attachment(volume, "connect_failed")["id"]
        for event in (Event.CONNECT, Event.DISCONNECT):
            with self.subTest(event), self.assertRaisesRegex(exception.Conflict, "being deleted"):
                attachments.move(mine, volume, event)
        self.assertEqual(("deleting", "detached"), self._status(volume))


_NOTHING = {"id": "nothing", "volume_id": "v", "project_id": "p", "kind": "attachment"}


class EndTest(Case):
    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume()["id"]
        self.lease = Lease(self.volume_id, "us")

    def _begin(self, **values):
        mine = db_rows.add_attachment(self.volume_id, "attached", **values)["id"]
        guard = lambda _volume, row, _others: steps.next_generation(row)  # noqa: E731
        return attachments.move(
            mine, self.volume_id, Event.DISCONNECT, guard=guard, lease=self.lease
        )

    def _end(self, begun):
        before = session.counters().statements
        ended = attachments.finish_disconnect(begun, self.lease)
        statements = session.counters().statements - before
        self.assertIsNone(self.lease.generation)
        left = {each["id"] for each in db_rows.list_attachments(self.volume_id)}
        self.assertNotIn(begun.attachment["id"], left)
        self._assert_derived(self.volume_id)
        stored = db_rows.get_volume(self.volume_id)
        self.assertEqual(stored, stored | ended.volume)
        return statements

    def test_the_only_attachment_ends_without_anything_being_read(self):
        self.assertEqual(3, self._end(self._begin()))
        self.assertEqual(("available", "detached"), self._status(self.volume_id))

    def test_whoever_has_joined_meanwhile_is_seen(self):
        db_rows.change_volume(self.volume_id, multiattach=True)
        begun = self._begin()
        values = {"project_id": db_rows.PROJECT, "user_id": "u"}
        attachments.reserve(self.volume_id, values)
        self._end(begun)
        self.assertEqual(("reserved", "reserved"), self._status(self.volume_id))

    def test_others_that_stay_are_seen(self):
        db_rows.change_volume(self.volume_id, multiattach=True)
        db_rows.add_attachment(self.volume_id, "attached")
        self._end(self._begin())
        self.assertEqual(("in-use", "attached"), self._status(self.volume_id))

    def test_what_else_has_changed_of_the_volume_stays(self):
        begun = self._begin()
        db_rows.change_volume(self.volume_id, name="new", state="error")
        self._end(begun)
        self.assertEqual("new", db_rows.get_volume(self.volume_id)["name"])
        self.assertEqual(("available", "detached"), self._status(self.volume_id))

    def test_what_was_told_of_its_mode_goes(self):
        told = {"readonly": "False", steps.ATTACHED_MODE: "rw"}
        db_rows.change_volume(self.volume_id, admin_metadata=told)
        self._end(self._begin())
        self.assertEqual(
            {"readonly": "False"}, db_rows.get_volume(self.volume_id)["admin_metadata"]
        )

    def test_who_has_lost_the_volume_cannot_end_it(self):
        begun = self._begin()
        db_rows.change_volume(self.volume_id, lease_holder="them", lease_generation=7)
        self.assertRaises(exception.TakenOver, attachments.finish_disconnect, begun, self.lease)
        self.assertEqual("disconnecting", db_rows.get_attachment(begun.attachment["id"])["state"])

    def test_who_has_lost_the_attachment_cannot_end_it(self):
        begun = self._begin()
        db_rows.change_attachment(begun.attachment["id"], generation=9)
        before = db_rows.get_volume(self.volume_id)
        self.assertRaises(
            exception.InvalidTransition, attachments.finish_disconnect, begun, self.lease
        )
        self.assertEqual(before, db_rows.get_volume(self.volume_id))


class MoveAloneTest(Case):
    def test_it_is_a_statement_and_an_event_in_one_transaction(self):
        volume = db_rows.add_volume()["id"]
        mine = db_rows.add_attachment(volume, "connecting", generation=1)
        before = session.counters()
        attachments.move_without_volume(mine, Event.GRANTED, {"error": None}, 1)
        statements, transactions = session.counters()
        self.assertEqual((2, 1), (statements - before[0], transactions - before[1]))
        self.assertEqual("connected", db_rows.get_attachment(mine["id"])["state"])
        self._assert_derived(volume)

    def test_it_too_is_refused_in_the_wrong_state_or_generation(self):
        volume = db_rows.add_volume()["id"]
        for state, generation in (("connecting", 2), ("connected", 1), ("reserved", 1)):
            mine = db_rows.add_attachment(volume, state, generation=generation)
            with self.assertRaises(exception.InvalidTransition):
                attachments.move_without_volume(mine, Event.GRANTED, {}, 1)
        with self.assertRaises(exception.InvalidTransition):
            attachments.move_without_volume(_NOTHING, Event.GRANTED, {}, 1)

    def test_what_changes_the_volume_is_no_lonely_move(self):
        with self.assertRaises(AssertionError):
            attachments.move_without_volume(_NOTHING, Event.CONNECT, {}, 1)


class ReadTest(Case):
    def test_one_attachment_is_one_statement_with_what_matters_of_its_volume(self):
        volume = db_rows.add_volume(multiattach=True, host="h@b#p")["id"]
        mine = db_rows.add_attachment(volume, "attached")["id"]
        before = session.counters().statements
        row = attachments.get(mine, db_rows.PROJECT)
        self.assertEqual(1, session.counters().statements - before)
        stored = db_rows.get_attachment(mine)
        self.assertEqual(stored, {name: row[name] for name in stored})
        of_volume = [row[f"volume_{n}"] for n in ("host", "state", "status", "multiattach")]
        self.assertEqual(["h@b#p", "ready", "in-use", True], of_volume)

    def test_an_attachment_of_another_project_is_not_found(self):
        mine = db_rows.add_attachment(db_rows.add_volume()["id"])["id"]
        self.assertEqual(mine, attachments.get(mine, None)["id"])
        for wanted, project in ((mine, "other"), ("gone", None)):
            with self.assertRaises(exception.AttachmentNotFound):
                attachments.get(wanted, project)

    def test_the_attachments_of_volumes_come_oldest_first_with_all_they_have(self):
        volume = db_rows.add_volume(multiattach=True)["id"]
        ids = [db_rows.add_attachment(volume, state)["id"] for state in ("attached", "reserved")]
        db_rows.add_attachment(db_rows.add_volume()["id"])
        found = attachments.list_of_volumes([volume])
        self.assertEqual(ids, [row["id"] for row in found])
        self.assertEqual(db_rows.CONNECTOR, found[0]["connector"])
        self.assertEqual([], attachments.list_of_volumes([]))

    def test_recovery_finds_what_is_half_way_at_its_own_backend(self):
        found = self._by_state(attachments.list_recoverable, "us")
        self.assertEqual({"connecting", "disconnecting"}, found)

    def test_healing_finds_what_is_live_at_its_own_backend(self):
        self.assertEqual(set(states.LIVE), self._by_state(attachments.list_live))

    def _by_state(self, function, *args):
        for host in ("h@b#p", "h@b", "h@bb#p", None):
            volume = db_rows.add_volume(host=host, multiattach=True)["id"]
            for state in AttachmentState:
                db_rows.add_attachment(volume, state)
        found = function("h@b", *args)
        self.assertEqual({"h@b#p", "h@b"}, {row["volume_host"] for row in found})
        by_state = {row["state"] for row in found}
        self.assertEqual(2 * len(by_state), len(found))
        return by_state


class ExpiredTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        backends.use(self)
        self.past = models.now() - datetime.timedelta(seconds=1)

    def _add(self, state="reserved", host=f"{backends.HOST}#pool", **values):
        volume_id = db_rows.add_volume(host=host)["id"]
        return db_rows.add_attachment(volume_id, state, **values)

    def _expired(self):
        return [row["id"] for row in attachments.list_expired_reservations(backends.HOST)]

    def test_only_mere_reservations_whose_time_is_over_have_ended(self):
        ended = self._add(expires_at=self.past)
        self._add(expires_at=self.past + datetime.timedelta(hours=1))
        self._add()
        for state in ("connecting", "connected", "attached", "connect_failed"):
            self._add(state, expires_at=self.past)
        self._add(expires_at=self.past, host="elsewhere@fake#pool")
        self.assertEqual([ended["id"]], self._expired())

    def test_the_first_to_end_comes_first_and_there_are_not_too_many(self):
        second = self._add(expires_at=self.past)
        first = self._add(expires_at=self.past - datetime.timedelta(days=1))
        self.assertEqual([first["id"], second["id"]], self._expired())
        self.enterContext(mock.patch.object(attachments, "EXPIRY_BATCH", 1))
        self.assertEqual([first["id"]], self._expired())
