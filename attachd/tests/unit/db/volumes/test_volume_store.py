# SPDX-License-Identifier: Apache-2.0
"""Creating, reading, moving and resetting volumes."""

import itertools

from attachd import exception, states
from attachd.db import models
from attachd.db.cluster import members
from attachd.db.engine import session
from attachd.db.types import type_store
from attachd.db.volumes import volume_store
from attachd.states import AttachmentState, Event, VolumeState
from attachd.tests.fixtures import databases, db_rows

OWNED = {
    *(VolumeState.CREATING, VolumeState.DELETING, VolumeState.EXTENDING),
    *(VolumeState.MANAGING, VolumeState.UNMANAGING, VolumeState.REVERTING),
    *(VolumeState.DOWNLOADING, VolumeState.UPLOADING),
}
ON_REMOVAL = {Event.DELETE, Event.DELETED, Event.UNMANAGE, Event.UNMANAGED}
NOT_MANAGED = {VolumeState.MANAGING, VolumeState.ERROR_MANAGING}


class Case(databases.DatabaseCase):
    """A test with a database, which functional/test_databases.py replaces by others."""

    def _assert_derived(self, volume_id):
        row = db_rows.get_volume(volume_id)
        held = [
            AttachmentState(attachment["state"])
            for attachment in db_rows.list_attachments(volume_id)
        ]
        derived = states.derive(VolumeState(row["state"]), held)
        self.assertEqual(derived, (row["status"], row["attach_status"]))


class ReadTest(Case):
    def test_get_without_type_and_metadata_returns_volume(self):
        row = db_rows.add_volume()
        found = volume_store.get(row["id"], None)
        self.assertEqual(({}, None), (found["metadata"], found["volume_type_name"]))

    def test_get_is_one_statement(self):
        values = {"project_id": db_rows.PROJECT, "size_gib": 3}
        row = volume_store.create(values, {str(number): "x" for number in range(20)})
        before = session.counters().statements
        self.assertEqual(20, len(volume_store.get(row["id"], db_rows.PROJECT)["metadata"]))
        self.assertEqual(1, session.counters().statements - before)

    def test_get_of_other_project_raises_not_found(self):
        row = db_rows.add_volume()
        for wanted, project in ((row["id"], "other"), ("gone", None)):
            self.assertRaises(exception.VolumeNotFound, volume_store.get, wanted, project)

    def test_update_changes_names_but_no_state(self):
        row = db_rows.add_volume()
        volume_store.update(row["id"], {"name": "new", "description": None})
        self.assertEqual("new", db_rows.get_volume(row["id"])["name"])
        self.assertRaises(exception.VolumeNotFound, volume_store.update, "gone", {"name": "x"})
        self.assertRaises(AssertionError, volume_store.update, row["id"], {"status": "available"})


class MoveTest(Case):
    def test_move_follows_state_table_for_each_state_and_event(self):
        for event, allowed in states.VOLUME_TRANSITIONS.items():
            for state in VolumeState:
                with self.subTest(event=event.name, state=state.name):
                    volume = db_rows.add_volume(state, host="h@b#p")["id"]
                    if event not in ON_REMOVAL:
                        db_rows.add_attachment(volume, "attached")
                    before = db_rows.get_volume(volume)
                    if state not in allowed.sources:
                        with self.assertRaisesRegex(exception.InvalidTransition, state):
                            volume_store.transition(volume, event)
                        self.assertEqual(before, db_rows.get_volume(volume))
                        continue
                    row = volume_store.transition(volume, event, {"error": "why"})
                    if allowed.target is None:
                        self.assertRaises(exception.VolumeNotFound, volume_store.get, volume, None)
                        continue
                    stored = db_rows.get_volume(volume)
                    self.assertEqual(stored, row)
                    self.assertEqual((allowed.target, "why"), (stored["state"], stored["error"]))
                    owned = allowed.target in OWNED or event is Event.EXTEND_LOST
                    owner = "h@b" if owned else None
                    self.assertEqual(owner, stored["owner"])
                    self._assert_derived(volume)

    def test_move_is_three_statements(self):
        volume = db_rows.add_volume()["id"]
        before = session.counters()
        volume_store.transition(volume, Event.EXTEND, {"new_size_gib": 5})
        statements, transactions = session.counters()
        self.assertEqual((3, 1), (statements - before[0], transactions - before[1]))

    def test_removal_of_held_volume_names_holders(self):
        removals = (Event.DELETE, Event.UNMANAGE)
        for state, event in itertools.product(AttachmentState, removals):
            with self.subTest(state=state.name, event=event.name):
                volume = db_rows.add_volume()["id"]
                held = db_rows.add_attachment(volume, state)["id"]
                if state in states.INACTIVE:
                    volume_store.transition(volume, event)
                    continue
                named = "os-reserve" if state == "held" else held
                with self.assertRaisesRegex(exception.InvalidVolume, named):
                    volume_store.transition(volume, event)
                self._assert_derived(volume)

    def test_delete_removes_failed_attachments(self):
        volume = db_rows.add_volume("deleting")["id"]
        db_rows.add_attachment(volume, "connect_failed")
        volume_store.transition(volume, Event.DELETED)
        self.assertEqual(([], []), (db_rows.list_volumes(), db_rows.list_attachments()))

    def test_delete_removes_metadata(self):
        row = volume_store.create(
            {"project_id": "p", "size_gib": 1, "state": "deleting"}, {"a": "b"}
        )
        volume_store.transition(row["id"], Event.DELETED)
        with session.reader() as connection:
            count = connection.exec_driver_sql("SELECT count(*) FROM volume_metadata").scalar()
        self.assertEqual(0, count)

    def test_move_without_backend_stores_no_owner(self):
        volume = db_rows.add_volume(host=None)["id"]
        self.assertIsNone(volume_store.transition(volume, Event.DELETE)["owner"])

    def test_move_truncates_long_error(self):
        volume = db_rows.add_volume("creating")["id"]
        volume_store.transition(volume, Event.CREATE_FAILED, {"error": "x" * 5000})
        self.assertEqual("x" * 1023, db_rows.get_volume(volume)["error"])

    def test_move_deleted_volume_raises_not_found(self):
        self.assertRaises(exception.VolumeNotFound, volume_store.transition, "gone", Event.DELETE)

    def test_list_recoverable_returns_work_of_backend_oldest_first(self):
        expected = []
        for state in VolumeState:
            for owner in ("h@b", "h@bb", None):
                volume = db_rows.add_volume(state, owner=owner)["id"]
                if state in {*OWNED, VolumeState.ERROR_EXTENDING} and owner == "h@b":
                    expected.append(volume)
        self.assertEqual(
            expected, [row["id"] for row in volume_store.list_recoverable("h@b", "us")]
        )


class ResetTest(Case):
    def test_reset_without_attachments_accepts_matching_status(self):
        for status, state in volume_store.RESET_STATES.items():
            for before in set(VolumeState) - NOT_MANAGED:
                with self.subTest(status, before=before.name):
                    volume = db_rows.add_volume(before, owner="h@b", new_size_gib=9)["id"]
                    if status in {"in-use", "attaching", "detaching"}:
                        self._assert_refused(volume, status, None, "no attachment")
                        continue
                    row = volume_store.reset(volume, status, None)
                    self.assertEqual(db_rows.get_volume(volume), row)
                    self.assertEqual((status, state), (row["status"], row["state"]))
                    self.assertEqual((None, None), (row["owner"], row["new_size_gib"]))
                    self._assert_derived(volume)

    def test_reset_of_volume_without_its_object_is_refused(self):
        for before in NOT_MANAGED:
            volume = db_rows.add_volume(before)["id"]
            for status in ("available", "error", "deleting"):
                with self.assertRaisesRegex(exception.InvalidTransition, "unmanage it"):
                    volume_store.reset(volume, status, None)
            self.assertEqual(before, db_rows.get_volume(volume)["state"])

    def test_reset_to_available_is_refused_while_a_manager_replaces_the_data(self):
        member = models.new_id()
        members.join(member, "manager-1")
        for before in ("creating", "downloading", "reverting", "deleting", "unmanaging"):
            with self.subTest(before):
                volume = db_rows.add_volume(before, owner="h@b", lease_holder=member)["id"]
                with self.assertRaisesRegex(exception.InvalidTransition, "manager-1 is working"):
                    volume_store.reset(volume, "available", None)
                self.assertEqual(before, db_rows.get_volume(volume)["state"])
                volume_store.reset(volume, "error", None)
                with self.assertRaisesRegex(exception.InvalidTransition, "manager-1 is working"):
                    volume_store.reset(volume, "available", None)
        for before in ("uploading", "extending", "ready"):
            volume = db_rows.add_volume(before, owner="h@b", lease_holder=member)["id"]
            self.assertEqual("ready", volume_store.reset(volume, "available", None)["state"])

    def _assert_refused(self, volume, status, attach_status, text):
        before = db_rows.get_volume(volume)
        with self.assertRaisesRegex(exception.BadRequest, text):
            volume_store.reset(volume, status, attach_status)
        self.assertEqual(before, db_rows.get_volume(volume))

    def test_reset_against_attachments_is_refused_naming_them(self):
        true = {
            "reserved": set(),
            "connecting": {"attaching"},
            "connected": {"attaching"},
            "attached": {"in-use"},
            "disconnecting": {"detaching"},
            "connect_failed": {"available"},
            "connect_unknown": set(),
            "disconnect_failed": set(),
        }
        for state, statuses in true.items():
            for status in ("available", "in-use", "attaching", "detaching"):
                with self.subTest(status, attachment=state):
                    volume = db_rows.add_volume("maintenance")["id"]
                    held = db_rows.add_attachment(volume, state)["id"]
                    if status in statuses:
                        self.assertEqual(
                            status, volume_store.reset(volume, status, None)["status"]
                        )
                    else:
                        named = held if state != "connect_failed" else "no attachment"
                        self._assert_refused(volume, status, None, named)

    def test_reset_to_available_removes_hold(self):
        for status in ("available", "attaching"):
            volume = db_rows.add_volume()["id"]
            db_rows.add_attachment(volume, "held")
            self.assertEqual(status, volume_store.reset(volume, status, None)["status"])
            left = [] if status == "available" else ["held"]
            self.assertEqual(left, [row["state"] for row in db_rows.list_attachments(volume)])

    def test_refused_reset_keeps_hold(self):
        volume = db_rows.add_volume()["id"]
        db_rows.add_attachment(volume, "held")
        for status in ("in-use", "detaching"):
            self._assert_refused(volume, status, None, "attachment")
            self.assertEqual(1, len(db_rows.list_attachments(volume)))

    def test_reset_to_in_use_ends_pending_detach(self):
        volume = db_rows.add_volume(pending_detaches=1)["id"]
        db_rows.add_attachment(volume, "attached")
        self.assertEqual("detaching", db_rows.get_volume(volume)["status"])
        row = volume_store.reset(volume, "in-use", None)
        self.assertEqual(("in-use", 0), (row["status"], row["pending_detaches"]))

    def test_extended_volume_with_pending_detach_is_detaching(self):
        volume = db_rows.add_volume("extending", pending_detaches=1)["id"]
        db_rows.add_attachment(volume, "attached")
        self.assertEqual("detaching", volume_store.transition(volume, Event.EXTENDED)["status"])

    def test_reset_of_attach_status_needs_match(self):
        free, held = db_rows.add_volume()["id"], db_rows.add_volume()["id"]
        attachment_id = db_rows.add_attachment(held, "attached")["id"]
        self.assertEqual("detached", volume_store.reset(free, None, "detached")["attach_status"])
        self.assertEqual(
            "attached", volume_store.reset(held, "in-use", "attached")["attach_status"]
        )
        self._assert_refused(held, None, "detached", attachment_id)
        self._assert_refused(held, "error", "detached", attachment_id)
        self._assert_refused(free, None, "attached", "no attachment")

    def test_reset_of_attached_volume_to_error_succeeds(self):
        volume = db_rows.add_volume()["id"]
        db_rows.add_attachment(volume, "attached")
        row = volume_store.reset(volume, "error", None)
        self.assertEqual(("error", "attached"), (row["status"], row["attach_status"]))

    def test_reset_from_error_clears_message(self):
        volume = db_rows.add_volume("error", error="broken")["id"]
        self.assertEqual("broken", volume_store.reset(volume, "error_deleting", None)["error"])
        self.assertIsNone(volume_store.reset(volume, "available", None)["error"])

    def test_reset_clears_owner(self):
        volume = db_rows.add_volume(host="h@b#p")["id"]
        for status in ("creating", "deleting"):
            volume_store.reset(volume, status, None)
            self.assertEqual([], volume_store.list_recoverable("h@b", "us"))

    def test_reset_deleted_volume_raises_not_found(self):
        self.assertRaises(exception.VolumeNotFound, volume_store.reset, "gone", "error", None)


class CreateTest(databases.DatabaseCase):
    def _insert(self, **values):
        given = {"project_id": db_rows.PROJECT, "size_gib": 3, "host": "h@b#p"}
        return volume_store.create({**given, **values}, values.get("metadata", {}))

    def test_create_stores_volume_in_creating_with_owner(self):
        row = self._insert()
        self.assertEqual(("creating", "creating"), (row["state"], row["status"]))
        self.assertEqual(("detached", "h@b"), (row["attach_status"], row["owner"]))
        self.assertEqual(
            [row["id"]], [item["id"] for item in volume_store.list_recoverable("h@b", "us")]
        )

    def test_create_returns_stored_row(self):
        of_type = type_store.create({"name": "t"})
        row = self._insert(
            name="n",
            metadata={"a": "b", "c": "d"},
            volume_type_id=of_type["id"],
            volume_type_name="t",
            multiattach=True,
        )
        self.assertEqual(row, volume_store.get(row["id"], db_rows.PROJECT))

    def test_create_with_deleted_type_raises_not_found(self):
        with self.assertRaisesRegex(exception.VolumeTypeNotFound, "gone"):
            self._insert(volume_type_id="gone")
        self.assertEqual([], db_rows.list_volumes())

    def test_create_with_changed_type_is_refused(self):
        specs = {"multiattach": "<is> True"}
        kind = type_store.create({"name": "shared", "extra_specs": specs})["id"]
        for judged in ({"type_specs": {}}, {}, {"type_specs": {**specs, "mode": "RO"}}):
            with self.assertRaisesRegex(exception.Conflict, f"{kind} has been changed"):
                self._insert(volume_type_id=kind, **judged)
        self.assertEqual([], db_rows.list_volumes())
        self._insert(volume_type_id=kind, type_specs=specs)

    def test_create_in_other_state_stores_no_owner(self):
        row = self._insert(state="ready")
        self.assertEqual(("available", None), (row["status"], row["owner"]))
