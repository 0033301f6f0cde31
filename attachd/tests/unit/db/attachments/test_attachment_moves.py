# SPDX-License-Identifier: Apache-2.0
"""Rules of the rows of a move; functional/test_moves.py has the moves."""

import unittest

from attachd import exception
from attachd.db.attachments import attachment_moves, attachment_rows
from attachd.db.attachments.attachment_rows import LockedVolume
from attachd.states import AttachmentState

HOST = {"host": "old", "initiator": "iqn.2026-01.test:old"}
OTHER = {"host": "new", "initiator": "iqn.2026-01.test:new"}


def source(**values):
    known = {"id": "s", "kind": "attachment", "state": "attached", "connector": HOST, "mode": "rw"}
    return {**known, "host": "old", "move_from": None, "own_connection": None, **values}


def destination(**values):
    known = {"id": "d", "state": "connected", "connector": OTHER, "host": "new", "mode": "ro"}
    return source(**{**known, "move_from": "s", "own_connection": True, **values})


def locked(row, *others):
    return LockedVolume(None, {"id": "v"}, row, others)


class CheckTest(unittest.TestCase):
    def check(self, found, *others, connector=OTHER, is_new=True):
        attachment_moves.check(locked(destination(), found, *others), connector, is_new=is_new)

    def test_row_that_does_not_move_is_not_checked(self):
        attachment_moves.check(locked(source(), destination()), HOST, is_new=True)

    def test_only_a_source_with_access_that_stays_can_be_moved(self):
        for state in AttachmentState:
            if state in {"connected", "attached"}:
                self.check(source(state=state.value))
            else:
                with self.assertRaisesRegex(exception.Conflict, "no host has access"):
                    self.check(source(state=state.value))
        with self.assertRaisesRegex(exception.Conflict, "no host has access"):
            self.check(source(connector=None))

    def test_other_sources_cannot_be_moved(self):
        for found, said in (
            (source(kind="legacy"), "os-attach"),
            (source(move_from="x"), "destination of a move itself"),
        ):
            with self.assertRaisesRegex(exception.Conflict, said):
                self.check(found)
        with self.assertRaisesRegex(exception.Conflict, "moves to host third already"):
            self.check(source(), destination(id="e", host="third"))

    def test_host_of_the_source_is_refused_under_any_of_its_names(self):
        for connector in (HOST, {**HOST, "host": "alias"}, {"host": "old"}):
            for is_new in (True, False):
                with self.assertRaisesRegex(exception.Conflict, "on host old already"):
                    self.check(source(), connector=connector, is_new=is_new)

    def test_source_whose_host_has_another_attachment_cannot_be_moved(self):
        for connector in (HOST, {**HOST, "host": "alias"}, {"host": "old"}):
            with self.assertRaisesRegex(exception.Conflict, "by attachment x"):
                self.check(source(), source(id="x", connector=connector))
        self.check(source(), source(id="x", connector=OTHER), source(id="y", connector=None))

    def test_source_that_is_gone_matters_only_to_a_new_row(self):
        other = source(id="x")
        self.check(other, is_new=False)
        with self.assertRaises(exception.AttachmentNotFound):
            self.check(other)


class EndsTest(unittest.TestCase):
    def test_each_end_leaves_the_other_out(self):
        found = [source(), destination(), source(id="x")]
        for row in found[:2]:
            others = [item for item in found if item is not row]
            self.assertEqual(
                ["x"], [item["id"] for item in attachment_rows.of_others(row, others)]
            )
        self.assertEqual(
            ["s", "d"], [row["id"] for row in attachment_rows.of_others(found[2], found[:2])]
        )

    def test_destination_that_waits_counts_as_a_writer(self):
        self.assertTrue(attachment_rows.may_write(destination()))
        self.assertFalse(attachment_rows.may_write(destination(own_connection=False)))
        self.assertFalse(attachment_rows.may_write(destination(move_from=None)))
        self.assertTrue(attachment_rows.may_write(destination(move_from=None, mode="rw")))

    def test_move_is_open_while_both_ends_are_there(self):
        self.assertTrue(attachment_moves.has_open_move([destination(), source(id="x"), source()]))
        for found in ([], [source()], [destination()], [destination(), source(id="x")]):
            self.assertFalse(attachment_moves.has_open_move(found))


class EndOfMoveTest(unittest.TestCase):
    def test_only_a_destination_with_access_lets_its_source_be_ended(self):
        attachment_moves.check_may_finish(locked(source(), destination()), "d")
        for found, said in (
            ([], "rolled back"),
            ([destination(id="e")], "rolled back"),
            ([destination(move_from=None)], "rolled back"),
            ([destination(state="withdrawing")], "withdrawing"),
            ([destination(), source(id="x")], "by attachment x"),
        ):
            with self.assertRaisesRegex(exception.Conflict, said):
                attachment_moves.check_may_finish(locked(source(), *found), "d")

    def test_rollback_is_refused_once_the_source_is_being_ended(self):
        attachment_moves.check_may_roll_back(locked(destination(), source()))
        attachment_moves.check_may_roll_back(locked(destination()))
        leaving = source(state="disconnecting")
        attachment_moves.check_may_roll_back(locked(destination(state="disconnecting"), leaving))
        with self.assertRaisesRegex(exception.Conflict, "can no longer be rolled back"):
            attachment_moves.check_may_roll_back(locked(destination(), leaving))
