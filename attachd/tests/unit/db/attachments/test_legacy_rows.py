# SPDX-License-Identifier: Apache-2.0
"""The hold that os-attach uses, and the connections that end with an attachment."""

import contextlib

from attachd import exception
from attachd.db.attachments import legacy, legacy_rows
from attachd.tests.fixtures import db_rows
from attachd.tests.fixtures.db_rows import OTHER_CONNECTOR
from attachd.tests.unit.db.attachments import test_legacy


class FindHoldTest(test_legacy.Case):
    """Whose hold an attachment uses."""

    def setUp(self):
        super().setUp()
        self.multiattach()
        legacy.reserve(self.volume_id, db_rows.PROJECT, "other")

    def test_find_hold_ignores_hold_of_other_user(self):
        self.attach()
        self.assertEqual([("hold", "held"), ("legacy", "attached")], self.kinds())
        self.hold()
        self.attach(test_legacy.OTHER_SERVER)
        self.assertEqual(["other"], [row["user_id"] for row in self.holds()])

    def holds(self):
        return [row for row in legacy.list_rows(self.volume_id) if row["kind"] == "hold"]

    def test_attach_repeated_uses_no_other_hold(self):
        self.hold()
        self.attach()
        self.hold()
        self.attach()
        self.assertEqual(["other", "u"], [row["user_id"] for row in self.holds()])

    def test_attach_with_hold_of_other_user_is_refused(self):
        for come_in in (lambda: None, self.connect, self.hold):
            come_in()
            expected = exception.Forbidden if come_in != self.hold else ()
            with self.subTest(come_in), contextlib.ExitStack() as stack:
                if expected:
                    stack.enter_context(self.assertRaises(expected))
                legacy.attach(self.volume_id, test_legacy.claim(), "volume:multiattach")


class ConnectionsToCloseTest(test_legacy.Case):
    def setUp(self):
        super().setUp()
        self.multiattach()

    def closed(self, attachment_id):
        held = db_rows.list_attachments(self.volume_id)
        (row,) = [item for item in held if item["id"] == attachment_id]
        return {
            connection["id"]
            for connection in legacy_rows.connections_to_close(row, [x for x in held if x != row])
        }

    def test_detach_closes_connections_of_attachment(self):
        attachment_id, other = self.attach()["id"], self.attach(test_legacy.OTHER_SERVER)["id"]
        one, _two = (
            self.connect(parent_id=attachment_id),
            self.connect(OTHER_CONNECTOR, parent_id=other),
        )
        _orphan = self.connect()
        self.assertEqual({one}, self.closed(attachment_id))

    def test_last_detach_closes_connections_without_parent(self):
        attachment_id = self.attach()["id"]
        orphan = self.connect()
        self.assertEqual({orphan}, self.closed(attachment_id))
        self.hold()
        self.assertEqual(set(), self.closed(attachment_id))

    def test_detach_of_reservation_closes_no_other_connection(self):
        attachment_id = self.attach()["id"]
        orphan = self.connect()
        db_rows.add_attachment(self.volume_id, "attached", user_id="u")
        self.assertEqual({orphan}, self.closed(attachment_id))

    def test_last_detach_keeps_connection_of_attachment_of_api(self):
        attachment_id = self.attach()["id"]
        other = db_rows.add_attachment(self.volume_id, "attached", user_id="u")["id"]
        self.connect(OTHER_CONNECTOR, parent_id=other)
        self.assertEqual(set(), self.closed(attachment_id))

    def test_detach_keeps_connection_of_other_user(self):
        attachment_id = self.attach()["id"]
        self.connect(user_id="other")
        self.assertEqual(set(), self.closed(attachment_id))

    def test_detach_closes_connections_of_same_user_only(self):
        attachment_id = self.attach()["id"]
        theirs = legacy.attach(
            self.volume_id, test_legacy.claim(test_legacy.OTHER_SERVER, user_id="other")
        )["id"]
        one, two = self.connect(), self.connect(OTHER_CONNECTOR, user_id="other")
        self.assertEqual(({one}, {two}), (self.closed(attachment_id), self.closed(theirs)))

    def test_delete_of_api_attachment_closes_own_connections_only(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "attached")["id"]
        self.connect()
        self.assertEqual(set(), self.closed(attachment_id))
