# SPDX-License-Identifier: Apache-2.0
"""Rows that hold a volume, their descriptions, and changes of a volume when one of them moves."""

import unittest

import sqlalchemy as sa

from attachd import exception, states
from attachd.db import models
from attachd.db.attachments import attachment_rows, attachment_store
from attachd.db.engine import session
from attachd.states import AttachmentKind, AttachmentState, Event
from attachd.tests.fixtures import databases, db_rows

SERVER = "11111111-1111-4111-8111-111111111111"


def row(state="attached", kind="attachment", **values):
    return {"id": "a1", "state": state, "kind": kind, "instance_uuid": None, "host": "h", **values}


class HoldingTest(unittest.TestCase):
    def test_holding_excludes_failed_connects_only(self):
        rows = [row(state) for state in AttachmentState]
        counted = {item["state"] for item in attachment_rows.holding(rows)}
        self.assertEqual(set(AttachmentState) - states.INACTIVE, counted)


class KindTest(unittest.TestCase):
    def test_visible_includes_both_kinds_of_attachments(self):
        rows = [row(kind=kind) for kind in AttachmentKind]
        self.assertEqual(
            states.VISIBLE_KINDS, {item["kind"] for item in attachment_rows.visible(rows)}
        )

    def test_of_kind_returns_one_kind(self):
        rows = [row(kind=kind) for kind in AttachmentKind]
        for kind in AttachmentKind:
            self.assertEqual(
                [kind], [item["kind"] for item in attachment_rows.of_kind(rows, kind)]
            )


class DescribeTest(unittest.TestCase):
    def test_describe_names_each_kind(self):
        for named, item in (
            ("attachment a1", row()),
            ("attachment a1 of server s", row(instance_uuid="s")),
            ("a reservation of os-reserve", row("held", "hold")),
            ("the connection of host h (os-initialize_connection)", row(kind="connection")),
        ):
            self.assertEqual(named, attachment_rows.describe(item))

    def test_describe_names_attachment_and_server(self):
        row = {"id": "a", "kind": "attachment", "instance_uuid": None, "host": "h"}
        named = {
            "attachment a": row,
            f"attachment a of server {SERVER}": {**row, "instance_uuid": SERVER},
            "the connection of host h (os-initialize_connection)": {**row, "kind": "connection"},
            "a reservation of os-reserve": {**row, "kind": "hold"},
        }
        self.assertEqual(list(named), [attachment_rows.describe(item) for item in named.values()])


class ListHoldingTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume()["id"]

    def found(self):
        with session.reader() as connection:
            return attachment_rows.list_holding(connection, self.volume_id)

    def test_list_holding_excludes_failed_connects(self):
        db_rows.add_attachment(self.volume_id, "connect_failed")
        attachment_id = db_rows.add_attachment(self.volume_id, "connected")["id"]
        self.assertEqual([attachment_id], [item["id"] for item in self.found()])

    def test_describe_all_includes_wire_state(self):
        db_rows.add_attachment(self.volume_id, "connected")
        with self.assertRaisesRegex(exception.InvalidVolume, r"attachment .* \(attaching\)"):
            attachment_rows.check_detached(db_rows.get_volume(self.volume_id), self.found())
        attachment_rows.check_detached(db_rows.get_volume(self.volume_id), [])

    def test_delete_of_volume_records_events(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "connect_failed")["id"]
        with session.writer() as connection:
            attachment_rows.delete_of_volume(connection, self.volume_id)
        self.assertEqual([], db_rows.list_attachments(self.volume_id))
        with session.reader() as connection:
            (result,) = connection.execute(sa.select(models.events))
        self.assertEqual(("deleted", attachment_id), (result.type, result.attachment_id))


class VolumeChangesTest(databases.DatabaseCase):
    def volume(self, *states, **values):
        """Make a volume; return its id and those of its attachments."""
        volume_id = db_rows.add_volume(multiattach=True, **values)["id"]
        return volume_id, [db_rows.add_attachment(volume_id, state)["id"] for state in states]

    def seen(self, volume_id):
        row = db_rows.get_volume(volume_id)
        return row["status"], row["pending_detaches"]

    def test_detach_decrements_pending_detaches(self):
        volume_id, (first, second) = self.volume("attached", "attached", pending_detaches=1)
        self.assertEqual(("detaching", 1), self.seen(volume_id))
        attachment_store.transition(first, volume_id, Event.DISCONNECT)
        self.assertEqual(("in-use", 0), self.seen(volume_id))
        attachment_store.transition(second, volume_id, Event.DISCONNECT)
        self.assertEqual(("detaching", 0), self.seen(volume_id))

    def test_detach_keeps_other_pending_detach(self):
        volume_id, (first, _second) = self.volume("attached", "attached", pending_detaches=2)
        self.assertEqual(("detaching", 2), self.seen(volume_id))
        attachment_store.transition(first, volume_id, Event.DISCONNECT)
        self.assertEqual(("detaching", 1), self.seen(volume_id))

    def test_detach_of_unattached_keeps_pending_detaches(self):
        volume_id, (_first, second) = self.volume("attached", "connected", pending_detaches=1)
        attachment_store.transition(second, volume_id, Event.DISCONNECT)
        attachment_store.transition(second, volume_id, Event.REVOKED)
        self.assertEqual(("detaching", 1), self.seen(volume_id))

    def test_complete_resets_pending_detaches(self):
        for complete in (
            lambda attachment_id, _volume_id: attachment_store.complete(
                db_rows.get_attachment(attachment_id)
            ),
            lambda attachment_id, volume_id: attachment_store.transition(
                attachment_id, volume_id, Event.COMPLETE
            ),
        ):
            volume_id, (attachment_id,) = self.volume("attached", pending_detaches=1)
            complete(attachment_id, volume_id)
            self.assertEqual(("in-use", 0), self.seen(volume_id))

    def test_detach_removes_attached_mode_only(self):
        result = {"readonly": "False", "attached_mode": "rw"}
        volume_id, (attachment,) = self.volume("attached", admin_metadata=result)
        attachment_store.transition(attachment, volume_id, Event.DISCONNECT)
        self.assertEqual(result, db_rows.get_volume(volume_id)["admin_metadata"])
        attachment_store.transition(attachment, volume_id, Event.REVOKED)
        self.assertEqual({"readonly": "False"}, db_rows.get_volume(volume_id)["admin_metadata"])

    def test_detach_of_visible_attachment_ends_error_of_volume(self):
        for kind, left in (("connection", "error"), ("attachment", "ready"), ("legacy", "ready")):
            volume_id = db_rows.add_volume("error")["id"]
            attachment_id = db_rows.add_attachment(volume_id, "disconnecting", kind=kind)["id"]
            attachment_store.transition(attachment_id, volume_id, Event.REVOKED)
            self.assertEqual(left, db_rows.get_volume(volume_id)["state"], kind)
