# SPDX-License-Identifier: Apache-2.0
"""The end of a move at the manager; functional/test_moves.py has all of it."""

from attachd import exception
from attachd.db import host_fences
from attachd.db.attachments import events
from attachd.manager import attach, detach, moves
from attachd.tests.fixtures import backends, db_rows
from attachd.tests.fixtures.db_rows import CONNECTOR, OTHER_CONNECTOR


class MoveCase(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume()["id"]
        self.source = self.connected(CONNECTOR)
        self.destination = self.connected(OTHER_CONNECTOR, move_from=self.source)

    def connected(self, connector, **values):
        attachment_id = db_rows.add_attachment(self.volume_id, **values)["id"]
        attach.attach(self.backend, attachment_id, self.volume_id, connector)
        return attachment_id

    def row(self):
        return db_rows.get_attachment(self.destination)

    def end(self):
        moves.end_move(self.backend, self.destination, self.volume_id)


class EndMoveTest(MoveCase):
    def test_move_is_not_ended_while_the_source_is_there(self):
        with self.assertRaisesRegex(exception.Conflict, self.source):
            self.end()
        self.assertEqual(("ro", self.source), (self.row()["mode"], self.row()["move_from"]))

    def test_deleted_destination_is_not_found(self):
        detach.detach(self.backend, self.destination, self.volume_id)
        with self.assertRaises(exception.AttachmentNotFound):
            self.end()

    def test_ended_move_stays_as_it_is(self):
        detach.finish_move(self.backend, self.destination, self.volume_id)
        self.driver.driver_calls.clear()
        self.end()
        detach.finish_move(self.backend, self.destination, self.volume_id)
        self.assertEqual([], self.driver.driver_calls)

    def test_switch_grants_the_same_export_with_its_secret(self):
        detach.finish_move(self.backend, self.destination, self.volume_id)
        first, again = (
            call.export
            for call in self.driver.driver_calls
            if call.export.attachment_id == self.destination
        )
        self.assertEqual(("ro", "rw"), (first.mode, again.mode))
        self.assertEqual((first.secret, True), (again.secret, again.own_connection))
        self.assertEqual("rw", self.row()["mode"])
        self.assertTrue(events.has_moved(self.destination))

    def test_destination_that_was_fenced_gets_no_write_access(self):
        host_fences.fence(OTHER_CONNECTOR["host"], "it hangs", None)
        with self.assertRaises(exception.HostFenced):
            detach.finish_move(self.backend, self.destination, self.volume_id)
        self.assertEqual("ro", self.row()["mode"])
        host_fences.lift(OTHER_CONNECTOR["host"])
        self.end()
        self.assertEqual("rw", self.row()["mode"])

    def test_source_in_use_by_an_agent_is_not_ended(self):
        db_rows.change_attachment(self.source, agent="node-1", state="withdrawing")
        with self.assertRaisesRegex(exception.Conflict, "has not released the device"):
            detach.finish_move(self.backend, self.destination, self.volume_id)
        self.assertEqual("withdrawing", db_rows.get_attachment(self.source)["state"])
