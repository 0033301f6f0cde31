# SPDX-License-Identifier: Apache-2.0
"""Reserving and moving attachments, and the effect on their volumes."""

import datetime
from unittest import mock

from attachd import exception, states
from attachd.db import models
from attachd.db.attachments import attachment_rows, attachment_store
from attachd.db.cluster.volume_leases import VolumeLeaseToken
from attachd.db.engine import session
from attachd.states import AttachmentState, Event, VolumeState
from attachd.tests.fixtures import backends, databases, db_rows


class Case(databases.DatabaseCase):
    """A test with a database, which functional/test_databases.py replaces by others."""

    def _reserve(self, volume_id, instance=None):
        values = {"project_id": db_rows.PROJECT, "instance_uuid": instance}
        return attachment_store.reserve(volume_id, values)["id"]

    def _status(self, volume_id):
        row = db_rows.get_volume(volume_id)
        return row["status"], row["attach_status"]

    def _assert_derived(self, volume_id):
        held = [AttachmentState(row["state"]) for row in db_rows.list_attachments(volume_id)]
        own = VolumeState(db_rows.get_volume(volume_id)["state"])
        self.assertEqual(states.derive(own, held), self._status(volume_id))


class CompleteTest(Case):
    def _complete(self, row):
        attachment_store.complete(row)

    def test_complete_is_two_statements_and_event(self):
        row = db_rows.add_attachment(db_rows.add_volume()["id"], "connected")
        before = session.counters()
        self._complete(row)
        statements, transactions = session.counters()
        self.assertEqual((3, 1), (statements - before[0], transactions - before[1]))
        self.assertEqual("attached", db_rows.get_attachment(row["id"])["state"])

    def test_complete_updates_volume_in_each_state(self):
        for own in VolumeState:
            for other in AttachmentState:
                with self.subTest(own=own.value, other=other.value):
                    volume = db_rows.add_volume(own.value, multiattach=True)["id"]
                    db_rows.add_attachment(volume, other.value)
                    self._complete(db_rows.add_attachment(volume, "connected"))
                    self.assertEqual("attached", self._status(volume)[1])
                    self._assert_derived(volume)

    def test_complete_from_other_state_is_refused(self):
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

    def test_complete_of_deleted_attachment_raises_not_found(self):
        volume = db_rows.add_volume()["id"]
        with self.assertRaises(exception.AttachmentNotFound):
            attachment_store.complete(_NOTHING | {"volume_id": volume})
        self._assert_derived(volume)


class ReserveTest(Case):
    def test_reserve_free_volume_is_two_statements_and_event(self):
        volume = db_rows.add_volume()["id"]
        before = session.counters()
        row = attachment_store.reserve(volume, {"project_id": db_rows.PROJECT, "mode": "ro"})
        statements, transactions = session.counters()
        self.assertEqual((3, 1), (statements - before[0], transactions - before[1]))
        stored = db_rows.get_attachment(row["id"])
        self.assertEqual(row, {name: stored[name] for name in row})
        self.assertEqual(("reserved", "ro", 0), (row["state"], row["mode"], row["generation"]))
        self.assertEqual(("reserved", "reserved"), self._status(volume))

    def test_reserve_twice_names_holder(self):
        volume = db_rows.add_volume()["id"]
        first = self._reserve(volume, "server-1")
        with self.assertRaisesRegex(exception.VolumeNotAvailable, f"{first} of server server-1"):
            self._reserve(volume, "server-2")
        self.assertEqual(1, len(db_rows.list_attachments(volume)))
        self._assert_derived(volume)

    def test_reserve_same_server_twice_succeeds(self):
        volume = db_rows.add_volume()["id"]
        self._reserve(volume, "server")
        self._reserve(volume, "server")
        self.assertEqual(2, len(db_rows.list_attachments(volume)))
        self.assertRaises(exception.VolumeNotAvailable, self._reserve, volume, "another")
        self.assertRaises(exception.VolumeNotAvailable, self._reserve, volume)

    def test_reserve_twice_without_server_is_refused(self):
        volume = db_rows.add_volume()["id"]
        self._reserve(volume)
        self.assertRaises(exception.VolumeNotAvailable, self._reserve, volume)

    def test_reserve_multiattach_volume_repeatedly_succeeds(self):
        volume = db_rows.add_volume(multiattach=True)["id"]
        db_rows.add_attachment(volume, "attached")
        for instance in ("a", "b", None):
            self._reserve(volume, instance)
        self.assertEqual(("in-use", "attached"), self._status(volume))

    def test_reserve_after_clean_failure_succeeds(self):
        volume = db_rows.add_volume()["id"]
        db_rows.add_attachment(volume, "connect_failed", instance_uuid="old")
        self._reserve(volume, "new")
        self.assertEqual(("reserved", "reserved"), self._status(volume))

    def test_reserve_after_uncertain_connect_is_refused(self):
        for multiattach in (False, True):
            volume = db_rows.add_volume(multiattach=multiattach)["id"]
            db_rows.add_attachment(volume, "connect_unknown", instance_uuid="old")
            self.assertRaises(exception.VolumeNotAvailable, self._reserve, volume, "new")

    def test_reserve_volume_that_is_not_ready_is_refused(self):
        for state in VolumeState:
            if state is VolumeState.READY:
                continue
            for multiattach in (False, True):
                volume = db_rows.add_volume(state, multiattach=multiattach)["id"]
                with self.assertRaisesRegex(exception.VolumeNotAvailable, f"status is {state}"):
                    self._reserve(volume)
                self.assertEqual([], db_rows.list_attachments(volume))

    def test_reserve_deleted_volume_raises_not_found(self):
        self.assertRaises(exception.VolumeNotFound, self._reserve, "gone")


class MoveTest(Case):
    def test_move_follows_state_table_for_each_state_and_event(self):
        for event, allowed in states.ATTACHMENT_TRANSITIONS.items():
            for state in AttachmentState:
                with self.subTest(event=event.name, state=state.name):
                    volume = db_rows.add_volume()["id"]
                    attachment_id = db_rows.add_attachment(volume, state)["id"]
                    before = db_rows.get_volume(volume), db_rows.list_attachments(volume)
                    if state not in allowed.sources:
                        with self.assertRaisesRegex(exception.InvalidTransition, state):
                            attachment_store.transition(attachment_id, volume, event)
                        after = db_rows.get_volume(volume), db_rows.list_attachments(volume)
                        self.assertEqual(before, after)
                        continue
                    transitioned = attachment_store.transition(attachment_id, volume, event).volume
                    left = [row["state"] for row in db_rows.list_attachments(volume)]
                    self.assertEqual([] if allowed.target is None else [allowed.target], left)
                    self._assert_derived(volume)
                    stored = db_rows.get_volume(volume)
                    result = {key: transitioned[key] for key in transitioned if key in stored}
                    self.assertEqual(stored, {**stored, **result})

    def test_move_is_three_or_four_statements_and_event(self):
        volume = db_rows.add_volume()["id"]
        attachment_id = db_rows.add_attachment(volume)["id"]
        for event, cost in ((Event.CONNECT, 5), (Event.CONNECT, 3), (Event.GRANTED, 4)):
            before = session.counters()
            attachment_store.transition(attachment_id, volume, event)
            statements, transactions = session.counters()
            self.assertEqual((cost, 1), (statements - before[0], transactions - before[1]))

    def test_move_stores_values(self):
        volume = db_rows.add_volume()["id"]
        attachment_id = db_rows.add_attachment(volume)["id"]
        transitioned = attachment_store.transition(
            attachment_id, volume, Event.CONNECT, {"host": "o", "error": "e" * 2000}
        )
        stored = db_rows.get_attachment(attachment_id)
        self.assertEqual(stored, {**stored, **transitioned.attachment})
        self.assertEqual(("o", 1023), (stored["host"], len(stored["error"])))
        self.assertIsNotNone(stored["updated_at"])

    def test_move_passes_rows_to_guard_and_stores_its_values(self):
        volume = db_rows.add_volume(multiattach=True)["id"]
        attachment_id = db_rows.add_attachment(volume)["id"]
        other = db_rows.add_attachment(volume, "attached")["id"]

        def guard(locked):
            self.assertEqual(volume, locked.volume["id"])
            self.assertEqual(attachment_id, locked.attachment["id"])
            self.assertEqual([other], [row["id"] for row in locked.others])
            return {"generation": locked.attachment["generation"] + 1}

        transitioned = attachment_store.transition(
            attachment_id, volume, Event.CONNECT, {"host": "o"}, guard
        )
        self.assertEqual([other], [row["id"] for row in transitioned.others])
        stored = db_rows.get_attachment(attachment_id)
        self.assertEqual((1, "o"), (stored["generation"], stored["host"]))

    def test_move_with_raising_guard_changes_nothing(self):
        volume = db_rows.add_volume()["id"]
        attachment_id = db_rows.add_attachment(volume)["id"]

        def guard(*_):
            raise exception.Conflict(reason="no")

        with self.assertRaises(exception.Conflict):
            attachment_store.transition(attachment_id, volume, Event.CONNECT, guard=guard)
        self.assertEqual("reserved", db_rows.get_attachment(attachment_id)["state"])

    def test_move_with_other_generation_is_refused(self):
        volume = db_rows.add_volume()["id"]
        attachment_id = db_rows.add_attachment(volume, "connecting", generation=3)["id"]
        for stale in (2, 4):
            with self.assertRaises(exception.InvalidTransition):
                attachment_store.transition(attachment_id, volume, Event.GRANTED, generation=stale)
        attachment_store.transition(attachment_id, volume, Event.GRANTED, generation=3)
        self.assertEqual("connected", db_rows.get_attachment(attachment_id)["state"])

    def test_move_deleted_attachment_or_of_other_volume_raises_not_found(self):
        volume, other = db_rows.add_volume()["id"], db_rows.add_volume()["id"]
        attachment_id = db_rows.add_attachment(volume)["id"]
        for wanted, parent in (("gone", volume), (attachment_id, other)):
            with self.assertRaises(exception.AttachmentNotFound):
                attachment_store.transition(wanted, parent, Event.CONNECT)
        with self.assertRaises(exception.VolumeNotFound):
            attachment_store.transition(attachment_id, "gone", Event.CONNECT)

    def test_move_last_detach_makes_volume_in_error_available(self):
        volume = db_rows.add_volume("error")["id"]
        attachment_id = db_rows.add_attachment(volume, "disconnecting")["id"]
        attachment_store.transition(attachment_id, volume, Event.REVOKED)
        self.assertEqual(("available", "detached"), self._status(volume))
        self.assertEqual("ready", db_rows.get_volume(volume)["state"])

    def test_move_at_volume_being_removed_is_refused(self):
        for state in ("deleting", "unmanaging"):
            volume = db_rows.add_volume(state)["id"]
            attachment_id = db_rows.add_attachment(volume, "connect_failed")["id"]
            for event in (Event.CONNECT, Event.DISCONNECT):
                with self.subTest(event), self.assertRaisesRegex(exception.Conflict, state):
                    attachment_store.transition(attachment_id, volume, event)
            self.assertEqual((state, "detached"), self._status(volume))


_NOTHING = {"id": "nothing", "volume_id": "v", "project_id": "p", "kind": "attachment"}


class FinishDisconnectTest(Case):
    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume()["id"]
        self.volume_lease = VolumeLeaseToken(self.volume_id, "us")

    def _begin(self, **values):
        attachment_id = db_rows.add_attachment(self.volume_id, "attached", **values)["id"]
        guard = lambda locked: attachment_rows.next_generation(locked.attachment)  # noqa: E731
        return attachment_store.transition(
            attachment_id,
            self.volume_id,
            Event.DISCONNECT,
            guard=guard,
            volume_lease=self.volume_lease,
        )

    def _end(self, started):
        before = session.counters().statements
        ended = attachment_store.finish_disconnect(started, self.volume_lease)
        statements = session.counters().statements - before
        self.assertIsNone(self.volume_lease.generation)
        left = {attachment["id"] for attachment in db_rows.list_attachments(self.volume_id)}
        self.assertNotIn(started.attachment["id"], left)
        self._assert_derived(self.volume_id)
        stored = db_rows.get_volume(self.volume_id)
        ended_row = {key: ended.volume[key] for key in ended.volume if key in stored}
        self.assertEqual(stored, stored | ended_row)
        return statements

    def test_finish_disconnect_of_only_attachment_reads_nothing(self):
        self.assertEqual(3, self._end(self._begin()))
        self.assertEqual(("available", "detached"), self._status(self.volume_id))

    def test_finish_disconnect_sees_later_attachment(self):
        db_rows.change_volume(self.volume_id, multiattach=True)
        started = self._begin()
        values = {"project_id": db_rows.PROJECT, "user_id": "u"}
        attachment_store.reserve(self.volume_id, values)
        self._end(started)
        self.assertEqual(("reserved", "reserved"), self._status(self.volume_id))

    def test_finish_disconnect_keeps_other_attachments(self):
        db_rows.change_volume(self.volume_id, multiattach=True)
        db_rows.add_attachment(self.volume_id, "attached")
        self._end(self._begin())
        self.assertEqual(("in-use", "attached"), self._status(self.volume_id))

    def test_finish_disconnect_keeps_other_changes_of_volume(self):
        started = self._begin()
        db_rows.change_volume(self.volume_id, name="new", state="error")
        self._end(started)
        self.assertEqual("new", db_rows.get_volume(self.volume_id)["name"])
        self.assertEqual(("available", "detached"), self._status(self.volume_id))

    def test_finish_disconnect_removes_attached_mode(self):
        result = {"readonly": "False", attachment_rows.ATTACHED_MODE: "rw"}
        db_rows.change_volume(self.volume_id, admin_metadata=result)
        self._end(self._begin())
        self.assertEqual(
            {"readonly": "False"}, db_rows.get_volume(self.volume_id)["admin_metadata"]
        )

    def test_finish_disconnect_after_takeover_of_volume_is_refused(self):
        started = self._begin()
        db_rows.change_volume(self.volume_id, lease_holder="them", lease_generation=7)
        self.assertRaises(
            exception.TakenOver, attachment_store.finish_disconnect, started, self.volume_lease
        )
        self.assertEqual(
            "disconnecting", db_rows.get_attachment(started.attachment["id"])["state"]
        )

    def test_finish_disconnect_with_other_generation_is_refused(self):
        started = self._begin()
        db_rows.change_attachment(started.attachment["id"], generation=9)
        before = db_rows.get_volume(self.volume_id)
        self.assertRaises(
            exception.InvalidTransition,
            attachment_store.finish_disconnect,
            started,
            self.volume_lease,
        )
        self.assertEqual(before, db_rows.get_volume(self.volume_id))


class MoveWithoutVolumeTest(Case):
    def test_move_without_volume_is_statement_and_event(self):
        volume = db_rows.add_volume()["id"]
        attachment = db_rows.add_attachment(volume, "connecting", generation=1)
        before = session.counters()
        attachment_store.transition_without_volume(attachment, Event.GRANTED, {"error": None}, 1)
        statements, transactions = session.counters()
        self.assertEqual((2, 1), (statements - before[0], transactions - before[1]))
        self.assertEqual("connected", db_rows.get_attachment(attachment["id"])["state"])
        self._assert_derived(volume)

    def test_move_without_volume_in_other_state_or_generation_is_refused(self):
        volume = db_rows.add_volume()["id"]
        for state, generation in (("connecting", 2), ("connected", 1), ("reserved", 1)):
            attachment = db_rows.add_attachment(volume, state, generation=generation)
            with self.assertRaises(exception.InvalidTransition):
                attachment_store.transition_without_volume(attachment, Event.GRANTED, {}, 1)
        with self.assertRaises(exception.InvalidTransition):
            attachment_store.transition_without_volume(_NOTHING, Event.GRANTED, {}, 1)

    def test_move_without_volume_with_changing_event_is_refused(self):
        with self.assertRaises(AssertionError):
            attachment_store.transition_without_volume(_NOTHING, Event.CONNECT, {}, 1)


class ReadTest(Case):
    def test_get_is_one_statement_with_volume_columns(self):
        volume = db_rows.add_volume(multiattach=True, host="h@b#p")["id"]
        attachment_id = db_rows.add_attachment(volume, "attached")["id"]
        before = session.counters().statements
        row = attachment_store.get(attachment_id, db_rows.PROJECT)
        self.assertEqual(1, session.counters().statements - before)
        stored = db_rows.get_attachment(attachment_id)
        self.assertEqual(stored, {name: row[name] for name in stored})
        of_volume = [row[f"volume_{n}"] for n in ("host", "state", "status", "multiattach")]
        self.assertEqual(["h@b#p", "ready", "in-use", True], of_volume)

    def test_get_of_other_project_raises_not_found(self):
        attachment_id = db_rows.add_attachment(db_rows.add_volume()["id"])["id"]
        self.assertEqual(attachment_id, attachment_store.get(attachment_id, None)["id"])
        for wanted, project in ((attachment_id, "other"), ("gone", None)):
            with self.assertRaises(exception.AttachmentNotFound):
                attachment_store.get(wanted, project)

    def test_list_of_volumes_returns_all_columns_oldest_first(self):
        volume = db_rows.add_volume(multiattach=True)["id"]
        ids = [db_rows.add_attachment(volume, state)["id"] for state in ("attached", "reserved")]
        db_rows.add_attachment(db_rows.add_volume()["id"])
        found = attachment_store.list_of_volumes([volume])
        self.assertEqual(ids, [row["id"] for row in found])
        self.assertEqual(db_rows.CONNECTOR, found[0]["connector"])
        self.assertEqual([], attachment_store.list_of_volumes([]))

    def test_list_recoverable_returns_interrupted_work_of_backend(self):
        found = self._by_state(attachment_store.list_recoverable, "us")
        uncertain = {"connect_unknown", "disconnect_failed"}
        self.assertEqual({"connecting", "disconnecting"} | uncertain, found)

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


class ExpiredTest(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.past = models.now() - datetime.timedelta(seconds=1)

    def _add(self, state="reserved", host=f"{backends.HOST}#pool", **values):
        volume_id = db_rows.add_volume(host=host)["id"]
        return db_rows.add_attachment(volume_id, state, **values)

    def _expired(self):
        return [row["id"] for row in attachment_store.list_expired(backends.HOST)]

    def test_list_expired_returns_what_was_not_connected_in_time(self):
        ended = self._add(expires_at=self.past - datetime.timedelta(seconds=1))
        failed = self._add("connect_failed", expires_at=self.past)
        self._add(expires_at=self.past + datetime.timedelta(hours=1))
        self._add()
        for state in ("connecting", "connected", "attached", "connect_unknown"):
            self._add(state, expires_at=self.past)
        self._add(expires_at=self.past, host="elsewhere@fake#pool")
        self.assertEqual([ended["id"], failed["id"]], self._expired())

    def test_list_expired_sorts_by_expiry_and_is_limited(self):
        second = self._add(expires_at=self.past)
        first = self._add(expires_at=self.past - datetime.timedelta(days=1))
        self.assertEqual([first["id"], second["id"]], self._expired())
        self.enterContext(mock.patch.object(attachment_store, "EXPIRY_BATCH", 1))
        self.assertEqual([first["id"]], self._expired())
