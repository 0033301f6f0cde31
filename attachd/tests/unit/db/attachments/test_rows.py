# SPDX-License-Identifier: Apache-2.0
"""Rows that hold a volume, and their descriptions; connections_to_close() is tested with its
callers.
"""

import unittest

import sqlalchemy as sa

from attachd import exception, states
from attachd.db import models
from attachd.db.attachments import rows as attachment_rows
from attachd.db.engine import session
from attachd.states import AttachmentKind, AttachmentState
from attachd.tests.fixtures import databases, db_rows


def row(state="attached", kind="attachment", **values):
    return {"id": "a1", "state": state, "kind": kind, "instance_uuid": None, "host": "h", **values}


class HoldingTest(unittest.TestCase):
    def test_holding_excludes_failed_connects_only(self):
        rows = [row(state) for state in AttachmentState]
        counted = {each["state"] for each in attachment_rows.holding(rows)}
        self.assertEqual(set(AttachmentState) - states.INACTIVE, counted)


class KindTest(unittest.TestCase):
    def test_visible_includes_both_kinds_of_attachments(self):
        rows = [row(kind=kind) for kind in AttachmentKind]
        self.assertEqual(
            states.VISIBLE_KINDS, {each["kind"] for each in attachment_rows.visible(rows)}
        )

    def test_of_kind_returns_one_kind(self):
        rows = [row(kind=kind) for kind in AttachmentKind]
        for kind in AttachmentKind:
            self.assertEqual(
                [kind], [each["kind"] for each in attachment_rows.of_kind(rows, kind)]
            )


class DescribeTest(unittest.TestCase):
    def test_describe_names_each_kind(self):
        for named, each in (
            ("attachment a1", row()),
            ("attachment a1 of server s", row(instance_uuid="s")),
            ("a reservation of os-reserve", row("held", "hold")),
            ("the connection of host h (os-initialize_connection)", row(kind="connection")),
        ):
            self.assertEqual(named, attachment_rows.describe(each))


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
        self.assertEqual([attachment_id], [each["id"] for each in self.found()])

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
