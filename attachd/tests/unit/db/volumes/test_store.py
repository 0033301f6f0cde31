# SPDX-License-Identifier: Apache-2.0
"""Reading, moving and resetting volumes."""

import unittest

from attachd import exception, states
from attachd.db.engine import session
from attachd.db.types import store as types
from attachd.db.volumes import store as volumes
from attachd.states import AttachmentState, Event, VolumeState
from attachd.tests.fixtures import databases, db_rows

OWNED = {VolumeState.CREATING, VolumeState.DELETING, VolumeState.EXTENDING}
ON_REMOVAL = {Event.DELETE, Event.DELETED}


class Case(unittest.TestCase):
    """A test with a database, which functional/test_databases.py replaces by others."""

    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)

    def _assert_derived(self, volume_id):
        row = db_rows.get_volume(volume_id)
        held = [AttachmentState(each["state"]) for each in db_rows.list_attachments(volume_id)]
        derived = states.derive(VolumeState(row["state"]), held)
        self.assertEqual(derived, (row["status"], row["attach_status"]))


class ReadTest(Case):
    def test_a_volume_of_no_type_and_without_metadata_is_found_as_well(self):
        row = db_rows.add_volume()
        found = volumes.get(row["id"], None)
        self.assertEqual(({}, None), (found["metadata"], found["volume_type_name"]))

    def test_a_volume_is_read_by_one_statement(self):
        values = {"project_id": db_rows.PROJECT, "size_gib": 3}
        row = volumes.create(values, {str(number): "x" for number in range(20)})
        before = session.counters().statements
        self.assertEqual(20, len(volumes.get(row["id"], db_rows.PROJECT)["metadata"]))
        self.assertEqual(1, session.counters().statements - before)

    def test_a_volume_of_another_project_is_not_found(self):
        row = db_rows.add_volume()
        for wanted, project in ((row["id"], "other"), ("gone", None)):
            self.assertRaises(exception.VolumeNotFound, volumes.get, wanted, project)

    def test_names_can_be_changed_but_no_state(self):
        row = db_rows.add_volume()
        volumes.update(row["id"], {"name": "new", "description": None})
        self.assertEqual("new", db_rows.get_volume(row["id"])["name"])
        self.assertRaises(exception.VolumeNotFound, volumes.update, "gone", {"name": "x"})
        self.assertRaises(AssertionError, volumes.update, row["id"], {"status": "available"})


class MoveTest(Case):
    def test_every_pair_of_state_and_event_does_what_the_table_says(self):
        for event, allowed in states.VOLUME_TRANSITIONS.items():
            for state in VolumeState:
                with self.subTest(event=event.name, state=state.name):
                    volume = db_rows.add_volume(state, host="h@b#p")["id"]
                    if event not in ON_REMOVAL:
                        db_rows.add_attachment(volume, "attached")
                    if state in allowed.sources:
                        self._assert_moves(volume, event, allowed.target)
                    else:
                        self._assert_refuses(volume, event)

    def _assert_moves(self, volume, event, target):
        row = volumes.move(volume, event, {"error": "why"})
        if target is None:
            self.assertRaises(exception.VolumeNotFound, volumes.get, volume, None)
            return
        stored = db_rows.get_volume(volume)
        self.assertEqual(stored, row)
        self.assertEqual((target, "why"), (stored["state"], stored["error"]))
        self.assertEqual("h@b" if target in OWNED else None, stored["owner"])
        self._assert_derived(volume)

    def _assert_refuses(self, volume, event):
        before = db_rows.get_volume(volume)
        with self.assertRaises(exception.InvalidTransition) as caught:
            volumes.move(volume, event)
        self.assertIn(before["state"], str(caught.exception))
        self.assertEqual(before, db_rows.get_volume(volume))

    def test_a_move_is_three_statements(self):
        volume = db_rows.add_volume()["id"]
        before = session.counters()
        volumes.move(volume, Event.EXTEND, {"new_size_gib": 5})
        statements, transactions = session.counters()
        self.assertEqual((3, 1), (statements - before[0], transactions - before[1]))

    def test_a_volume_that_is_held_is_not_deleted_and_its_holders_are_named(self):
        for state in AttachmentState:
            with self.subTest(state=state.name):
                volume = db_rows.add_volume()["id"]
                held = db_rows.add_attachment(volume, state)["id"]
                if state in states.INACTIVE:
                    volumes.move(volume, Event.DELETE)
                    continue
                named = "os-reserve" if state == "held" else held
                with self.assertRaisesRegex(exception.InvalidVolume, named):
                    volumes.move(volume, Event.DELETE)
                self._assert_derived(volume)

    def test_what_never_came_to_be_attached_is_removed_with_its_volume(self):
        volume = db_rows.add_volume("deleting")["id"]
        db_rows.add_attachment(volume, "connect_failed")
        volumes.move(volume, Event.DELETED)
        self.assertEqual(([], []), (db_rows.list_volumes(), db_rows.list_attachments()))

    def test_metadata_is_removed_with_its_volume(self):
        row = volumes.create({"project_id": "p", "size_gib": 1, "state": "deleting"}, {"a": "b"})
        volumes.move(row["id"], Event.DELETED)
        with session.reader() as connection:
            count = connection.exec_driver_sql("SELECT count(*) FROM volume_metadata").scalar()
        self.assertEqual(0, count)

    def test_a_volume_without_a_backend_has_no_owner(self):
        volume = db_rows.add_volume(host=None)["id"]
        self.assertIsNone(volumes.move(volume, Event.DELETE)["owner"])

    def test_an_error_is_cut_to_what_its_column_holds(self):
        volume = db_rows.add_volume("creating")["id"]
        volumes.move(volume, Event.CREATE_FAILED, {"error": "x" * 5000})
        self.assertEqual("x" * 1023, db_rows.get_volume(volume)["error"])

    def test_a_volume_that_is_gone_is_not_found(self):
        self.assertRaises(exception.VolumeNotFound, volumes.move, "gone", Event.DELETE)

    def test_recovery_finds_what_its_own_backend_has_to_do_oldest_first(self):
        expected = []
        for state in VolumeState:
            for owner in ("h@b", "h@bb", None):
                volume = db_rows.add_volume(state, owner=owner)["id"]
                if state in OWNED and owner == "h@b":
                    expected.append(volume)
        self.assertEqual(expected, [row["id"] for row in volumes.list_recoverable("h@b", "us")])


class ResetTest(Case):
    def test_a_volume_without_attachments_is_reset_to_what_does_not_need_any(self):
        for status, state in volumes.RESET_STATES.items():
            for before in VolumeState:
                with self.subTest(status, before=before.name):
                    volume = db_rows.add_volume(before, owner="h@b", new_size_gib=9)["id"]
                    if status in {"in-use", "attaching", "detaching"}:
                        self._assert_refused(volume, status, None, "no attachment")
                        continue
                    row = volumes.reset(volume, status, None)
                    self.assertEqual(db_rows.get_volume(volume), row)
                    self.assertEqual((status, state), (row["status"], row["state"]))
                    self.assertEqual((None, None), (row["owner"], row["new_size_gib"]))
                    self._assert_derived(volume)

    def _assert_refused(self, volume, status, attach_status, text):
        before = db_rows.get_volume(volume)
        with self.assertRaisesRegex(exception.BadRequest, text):
            volumes.reset(volume, status, attach_status)
        self.assertEqual(before, db_rows.get_volume(volume))

    def test_a_status_that_the_attachments_prove_wrong_is_refused_naming_them(self):
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
                        self.assertEqual(status, volumes.reset(volume, status, None)["status"])
                    else:
                        named = held if state != "connect_failed" else "no attachment"
                        self._assert_refused(volume, status, None, named)

    def test_a_hold_is_only_a_word_and_gives_way_to_an_administrators(self):
        for status in ("available", "attaching"):
            volume = db_rows.add_volume()["id"]
            db_rows.add_attachment(volume, "held")
            self.assertEqual(status, volumes.reset(volume, status, None)["status"])
            left = [] if status == "available" else ["held"]
            self.assertEqual(left, [row["state"] for row in db_rows.list_attachments(volume)])

    def test_a_refused_claim_leaves_a_hold_where_it_is(self):
        volume = db_rows.add_volume()["id"]
        db_rows.add_attachment(volume, "held")
        for status in ("in-use", "detaching"):
            self._assert_refused(volume, status, None, "attachment")
            self.assertEqual(1, len(db_rows.list_attachments(volume)))

    def test_a_detach_that_was_only_begun_gives_way_to_in_use(self):
        volume = db_rows.add_volume(pending_detaches=1)["id"]
        db_rows.add_attachment(volume, "attached")
        self.assertEqual("detaching", db_rows.get_volume(volume)["status"])
        row = volumes.reset(volume, "in-use", None)
        self.assertEqual(("in-use", 0), (row["status"], row["pending_detaches"]))

    def test_a_volume_that_is_being_detached_says_so_when_it_has_grown(self):
        volume = db_rows.add_volume("extending", pending_detaches=1)["id"]
        db_rows.add_attachment(volume, "attached")
        self.assertEqual("detaching", volumes.move(volume, Event.EXTENDED)["status"])

    def test_an_attach_status_is_only_confirmed(self):
        free, held = db_rows.add_volume()["id"], db_rows.add_volume()["id"]
        mine = db_rows.add_attachment(held, "attached")["id"]
        self.assertEqual("detached", volumes.reset(free, None, "detached")["attach_status"])
        self.assertEqual("attached", volumes.reset(held, "in-use", "attached")["attach_status"])
        self._assert_refused(held, None, "detached", mine)
        self._assert_refused(held, "error", "detached", mine)
        self._assert_refused(free, None, "attached", "no attachment")

    def test_an_attached_volume_may_be_called_broken(self):
        volume = db_rows.add_volume()["id"]
        db_rows.add_attachment(volume, "attached")
        row = volumes.reset(volume, "error", None)
        self.assertEqual(("error", "attached"), (row["status"], row["attach_status"]))

    def test_what_was_wrong_is_forgotten_with_the_error(self):
        volume = db_rows.add_volume("error", error="broken")["id"]
        self.assertEqual("broken", volumes.reset(volume, "error_deleting", None)["error"])
        self.assertIsNone(volumes.reset(volume, "available", None)["error"])

    def test_nobody_takes_up_work_on_what_was_reset(self):
        volume = db_rows.add_volume(host="h@b#p")["id"]
        for status in ("creating", "deleting"):
            volumes.reset(volume, status, None)
            self.assertEqual([], volumes.list_recoverable("h@b", "us"))

    def test_a_volume_that_is_gone_is_not_found(self):
        self.assertRaises(exception.VolumeNotFound, volumes.reset, "gone", "error", None)


class StoreTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)

    def _insert(self, **values):
        given = {"project_id": db_rows.PROJECT, "size_gib": 3, "host": "h@b#p"}
        return volumes.create({**given, **values}, values.get("metadata", {}))

    def test_a_new_volume_is_to_be_created_by_its_backend(self):
        row = self._insert()
        self.assertEqual(("creating", "creating"), (row["state"], row["status"]))
        self.assertEqual(("detached", "h@b"), (row["attach_status"], row["owner"]))
        self.assertEqual(
            [row["id"]], [each["id"] for each in volumes.list_recoverable("h@b", "us")]
        )

    def test_what_is_returned_is_what_is_stored(self):
        of_type = types.create({"name": "t"})
        row = self._insert(
            name="n",
            metadata={"a": "b", "c": "d"},
            volume_type_id=of_type["id"],
            volume_type_name="t",
            multiattach=True,
        )
        self.assertEqual(row, volumes.get(row["id"], db_rows.PROJECT))

    def test_a_type_that_was_just_deleted_is_not_found(self):
        with self.assertRaisesRegex(exception.VolumeTypeNotFound, "gone"):
            self._insert(volume_type_id="gone")
        self.assertEqual([], db_rows.list_volumes())

    def test_a_type_that_has_changed_since_it_was_judged_is_none(self):
        specs = {"multiattach": "<is> True"}
        kind = types.create({"name": "shared", "extra_specs": specs})["id"]
        for judged in ({"type_specs": {}}, {}, {"type_specs": {**specs, "mode": "RO"}}):
            with self.assertRaisesRegex(exception.Conflict, f"{kind} has been changed"):
                self._insert(volume_type_id=kind, **judged)
        self.assertEqual([], db_rows.list_volumes())
        self._insert(volume_type_id=kind, type_specs=specs)

    def test_a_volume_that_is_stored_in_another_state_has_no_owner(self):
        row = self._insert(state="ready")
        self.assertEqual(("available", None), (row["status"], row["owner"]))
