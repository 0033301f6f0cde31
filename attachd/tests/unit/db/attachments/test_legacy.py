# SPDX-License-Identifier: Apache-2.0
"""Holds, pending detaches, connections, and legacy attachments."""

from attachd import exception
from attachd.db.attachments import attachment_store, legacy
from attachd.tests.fixtures import databases, db_rows
from attachd.tests.fixtures.db_rows import CONNECTOR, OTHER_CONNECTOR

SERVER = "11111111-1111-4111-8111-111111111111"
OTHER_SERVER = "22222222-2222-4222-8222-222222222222"


def claim(server=SERVER, **values):
    return {
        "project_id": db_rows.PROJECT,
        "user_id": "u",
        "instance_uuid": server,
        "host": None,
        "mountpoint": "/dev/vdb",
        "mode": "rw",
        **values,
    }


def begin(locked):
    return {
        "connector": CONNECTOR,
        "host": CONNECTOR["host"],
        "generation": locked.attachment["generation"] + 1,
    }


class Case(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume()["id"]

    def multiattach(self):
        db_rows.change_volume(self.volume_id, multiattach=True)

    def status(self):
        row = db_rows.get_volume(self.volume_id)
        return row["status"], row["attach_status"]

    def kinds(self):
        return [(row["kind"], row["state"]) for row in db_rows.list_attachments(self.volume_id)]

    def hold(self):
        legacy.reserve(self.volume_id, db_rows.PROJECT, "u")

    def hold_ids(self):
        return [row["id"] for row in legacy.list_rows(self.volume_id) if row["kind"] == "hold"]

    def release(self):
        legacy.release(self.volume_id, self.hold_ids()[:1])

    def connect(self, connector=CONNECTOR, **values):
        """Put a connection there; return its id."""
        row = db_rows.add_attachment(
            self.volume_id,
            "connected",
            kind="connection",
            **{"connector": connector, "host": connector["host"], "user_id": "u", **values},
        )
        return row["id"]

    def attach(self, server=SERVER, **values):
        return legacy.attach(self.volume_id, claim(server, **values))


class ReserveTest(Case):
    def test_reserve_makes_volume_attaching_without_attachment(self):
        self.hold()
        self.assertEqual(("attaching", "detached"), self.status())
        self.assertEqual([("hold", "held")], self.kinds())

    def test_reserve_twice_of_ordinary_volume_is_refused(self):
        self.hold()
        with self.assertRaisesRegex(exception.VolumeNotAvailable, "attaching; .* of os-reserve"):
            self.hold()

    def test_reserve_and_attachment_reservation_exclude_each_other(self):
        self.hold()
        with self.assertRaisesRegex(exception.VolumeNotAvailable, "a reservation of os-reserve"):
            attachment_store.reserve(self.volume_id, {"project_id": db_rows.PROJECT})
        self.release()
        attachment_id = attachment_store.reserve(self.volume_id, {"project_id": db_rows.PROJECT})[
            "id"
        ]
        with self.assertRaisesRegex(
            exception.VolumeNotAvailable, f"reserved; .* attachment {attachment_id}"
        ):
            self.hold()

    def test_reserve_of_multiattach_volume_is_unlimited(self):
        self.multiattach()
        db_rows.add_attachment(self.volume_id, "attached")
        self.hold()
        self.hold()
        self.assertEqual(("in-use", "attached"), self.status())

    def test_reserve_in_other_state_is_refused(self):
        for state in ("creating", "extending", "deleting", "maintenance", "error"):
            self.volume_id = db_rows.add_volume(state)["id"]
            with self.assertRaisesRegex(exception.VolumeNotAvailable, state):
                self.hold()

    def test_release_restores_volume(self):
        self.hold()
        self.release()
        self.assertEqual(("available", "detached"), self.status())
        self.release()
        self.assertEqual([], self.kinds())

    def test_release_of_one_of_several_holds_keeps_others(self):
        self.multiattach()
        self.hold()
        self.hold()
        self.release()
        self.assertEqual([("hold", "held")], self.kinds())

    def test_release_keeps_hold_of_later_user(self):
        self.hold()
        seen = self.hold_ids()
        self.release()
        self.hold()
        legacy.release(self.volume_id, seen)
        self.assertEqual(("attaching", "detached"), self.status())


class DetachingTest(Case):
    def test_begin_detaching_changes_volume_not_attachment(self):
        self.attach()
        legacy.begin_detaching(self.volume_id)
        self.assertEqual(("detaching", "attached"), self.status())
        self.assertEqual([("legacy", "attached")], self.kinds())
        legacy.roll_detaching(self.volume_id)
        self.assertEqual(("in-use", "attached"), self.status())

    def test_begin_detaching_twice_or_without_attachment_is_refused(self):
        self.attach()
        legacy.begin_detaching(self.volume_id)
        with self.assertRaisesRegex(exception.InvalidVolume, "status is detaching"):
            legacy.begin_detaching(self.volume_id)
        for state in ("ready", "error", "extending"):
            self.volume_id = db_rows.add_volume(state)["id"]
            with self.assertRaises(exception.InvalidVolume):
                legacy.begin_detaching(self.volume_id)

    def test_begin_detaching_of_multiattach_volume_is_counted_for_each_server(self):
        self.multiattach()
        self.attach()
        self.attach(OTHER_SERVER)
        for _ in range(2):
            legacy.begin_detaching(self.volume_id)
            self.assertEqual(("detaching", "attached"), self.status())
        with self.assertRaisesRegex(exception.InvalidVolume, "must be in-use"):
            legacy.begin_detaching(self.volume_id)
        for status in ("detaching", "in-use"):
            legacy.roll_detaching(self.volume_id)
            self.assertEqual((status, "attached"), self.status())

    def test_roll_detaching_without_begin_changes_nothing(self):
        before = db_rows.get_volume(self.volume_id)
        legacy.roll_detaching(self.volume_id)
        self.assertEqual(before, db_rows.get_volume(self.volume_id))


class AttachTest(Case):
    def test_attach_uses_hold(self):
        self.hold()
        row = self.attach(host="compute-1", mode="ro")
        self.assertEqual(("in-use", "attached"), self.status())
        self.assertEqual([("legacy", "attached")], self.kinds())
        stored = db_rows.get_attachment(row["id"])
        self.assertEqual(claim(host="compute-1", mode="ro"), {k: stored[k] for k in claim()})
        self.assertIsNotNone(stored["attached_at"])
        self.assertEqual(
            {"readonly": "False", "attached_mode": "ro"},
            db_rows.get_volume(self.volume_id)["admin_metadata"],
        )

    def test_attach_without_hold_of_free_volume_succeeds(self):
        self.attach()
        self.assertEqual(("in-use", "attached"), self.status())

    def test_attach_repeated_changes_nothing(self):
        for who in (claim(), claim(None, host="compute-1")):
            self.volume_id = db_rows.add_volume()["id"]
            first = legacy.attach(self.volume_id, who)
            again = legacy.attach(self.volume_id, {**who, "mountpoint": "elsewhere"})
            self.assertEqual(first["id"], again["id"])
            self.assertEqual("/dev/vdb", db_rows.get_attachment(first["id"])["mountpoint"])

    def test_attach_of_held_ordinary_volume_names_holder(self):
        attachment_id = self.attach()["id"]
        for other in (claim(OTHER_SERVER), claim(None, host="compute-1")):
            with self.assertRaisesRegex(
                exception.InvalidVolume, f"{attachment_id} of server {SERVER}"
            ):
                legacy.attach(self.volume_id, other)

    def test_attach_of_multiattach_volume_again_succeeds(self):
        self.multiattach()
        self.attach()
        self.attach(OTHER_SERVER)
        self.attach(None, host="compute-1")
        self.assertEqual([("legacy", "attached")] * 3, self.kinds())

    def test_attach_of_read_only_volume_is_ro(self):
        db_rows.change_volume(self.volume_id, admin_metadata={"readonly": "True"})
        with self.assertRaisesRegex(exception.BadRequest, "Invalid attaching mode 'rw'"):
            self.attach()
        self.attach(mode="ro")
        self.assertEqual(("in-use", "attached"), self.status())

    def test_attach_completes_reservation_of_same_server(self):
        attachment_id = attachment_store.reserve(
            self.volume_id, {"project_id": db_rows.PROJECT, "instance_uuid": SERVER}
        )
        self.assertEqual(attachment_id["id"], self.attach()["id"])
        self.assertEqual([("attachment", "attached")], self.kinds())
        self.assertEqual(("in-use", "attached"), self.status())

    def test_attach_keeps_reservation_of_other_server(self):
        attachment_store.reserve(
            self.volume_id, {"project_id": db_rows.PROJECT, "instance_uuid": SERVER}
        )
        with self.assertRaisesRegex(exception.InvalidVolume, f"of server {SERVER}"):
            self.attach(OTHER_SERVER)
        self.assertEqual(("reserved", "reserved"), self.status())

    def test_attach_while_connecting_is_refused(self):
        db_rows.add_attachment(self.volume_id, "connecting", instance_uuid=SERVER)
        with self.assertRaisesRegex(exception.InvalidTransition, "connecting"):
            self.attach()

    def test_attach_beside_failed_connect_succeeds(self):
        db_rows.add_attachment(self.volume_id, "connect_failed", instance_uuid=SERVER)
        self.attach()
        self.assertIn(("legacy", "attached"), self.kinds())

    def test_attach_in_other_state_is_refused(self):
        for state in ("creating", "extending", "deleting", "maintenance", "error"):
            self.volume_id = db_rows.add_volume(state)["id"]
            with self.assertRaisesRegex(exception.InvalidVolume, state):
                self.attach()


class ParentTest(Case):
    """Which connections belong to an attachment."""

    def serves(self, *ids):
        return [db_rows.get_attachment(id_)["parent_id"] for id_ in ids]

    def test_attach_ordinary_volume_takes_all_connections(self):
        one, two = self.connect(), self.connect(OTHER_CONNECTOR)
        attachment_id = self.attach()["id"]
        self.assertEqual([attachment_id, attachment_id], self.serves(one, two))
        self.assertEqual(SERVER, db_rows.get_attachment(one)["instance_uuid"])

    def test_attach_multiattach_volume_takes_connection_of_host(self):
        self.multiattach()
        one, two = self.connect(), self.connect(OTHER_CONNECTOR)
        attachment_id = self.attach(host="compute-2")["id"]
        self.assertEqual([None, attachment_id], self.serves(one, two))

    def test_attach_multiattach_volume_takes_only_connection(self):
        self.multiattach()
        one = self.connect()
        first = self.attach()["id"]
        two = self.connect(OTHER_CONNECTOR)
        second = self.attach(OTHER_SERVER)["id"]
        self.assertEqual([first, second], self.serves(one, two))

    def test_attach_multiattach_volume_takes_connection_of_user(self):
        self.multiattach()
        theirs, one = self.connect(user_id="other"), self.connect(OTHER_CONNECTOR)
        attachment_id = self.attach()["id"]
        self.assertEqual([None, attachment_id], self.serves(theirs, one))
        self.attach(OTHER_SERVER)
        self.assertEqual([None, attachment_id], self.serves(theirs, one))

    def test_attach_with_machine_as_server_takes_its_connection(self):
        self.multiattach()
        machine = {"host": SERVER, "initiator": "iqn.2026-01.org.example:node"}
        one, two = self.connect(machine), self.connect()
        attachment_id = self.attach()["id"]
        self.assertEqual([attachment_id, None], self.serves(one, two))

    def test_attach_with_ambiguous_connections_takes_none(self):
        self.multiattach()
        ids = [self.connect(), self.connect(OTHER_CONNECTOR)]
        self.attach()
        self.assertEqual([None, None], self.serves(*ids))


class ConnectionTest(Case):
    def open(self, guard=begin):
        return legacy.begin_connection(
            self.volume_id, legacy.Creator(db_rows.PROJECT, "u"), CONNECTOR, guard
        )

    def test_begin_connection_inserts_connecting_row(self):
        moved = self.open()
        self.assertEqual([("connection", "connecting")], self.kinds())
        self.assertEqual(("attaching", "attaching"), self.status())
        stored = db_rows.get_attachment(moved.attachment["id"])
        self.assertEqual((1, CONNECTOR), (stored["generation"], stored["connector"]))
        self.assertEqual((db_rows.PROJECT, "u"), (stored["project_id"], stored["user_id"]))

    def test_begin_connection_chooses_existing_row(self):
        db_rows.add_attachment(self.volume_id, "connect_failed")
        values = {"kind": "connection", "connector": CONNECTOR, "user_id": "other"}
        existing = db_rows.add_attachment(self.volume_id, "connect_failed", **values)["id"]
        moved = self.open()
        self.assertEqual((existing, "u"), (moved.attachment["id"], moved.attachment["user_id"]))
        self.assertEqual(2, len(self.kinds()))

    def test_begin_connection_refused_inserts_no_row(self):
        def refuse(*_args):
            raise exception.InvalidVolume(reason="no")

        with self.assertRaises(exception.InvalidVolume):
            self.open(guard=refuse)
        self.assertEqual([], self.kinds())
        self.assertEqual(("available", "detached"), self.status())

    def test_list_rows_returns_all_kinds_without_secrets(self):
        self.hold()
        self.connect()
        self.attach()
        found = legacy.list_rows(self.volume_id)
        self.assertEqual(["connection", "legacy"], [row["kind"] for row in found])
        self.assertEqual(set(), {"connector", "secret", "connection_info"} & found[0].keys())
