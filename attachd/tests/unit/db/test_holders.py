# SPDX-License-Identifier: Apache-2.0
"""Which rows count, and what they are called; closed_with() is tested with its users."""

import unittest

from attachd import states
from attachd.db import holders
from attachd.states import AttachmentKind, AttachmentState


def row(state="attached", kind="attachment", **values):
    return {"id": "a1", "state": state, "kind": kind, "instance_uuid": None, "host": "h", **values}


class CountedTest(unittest.TestCase):
    def test_all_count_but_those_that_surely_failed(self):
        rows = [row(state) for state in AttachmentState]
        counted = {each["state"] for each in holders.counted(rows)}
        self.assertEqual(set(AttachmentState) - states.INACTIVE, counted)


class KindTest(unittest.TestCase):
    def test_clients_know_attachments_of_either_way(self):
        rows = [row(kind=kind) for kind in AttachmentKind]
        self.assertEqual(states.VISIBLE_KINDS, {each["kind"] for each in holders.shown(rows)})

    def test_one_kind(self):
        rows = [row(kind=kind) for kind in AttachmentKind]
        for kind in AttachmentKind:
            self.assertEqual([kind], [each["kind"] for each in holders.of_kind(rows, kind)])


class StrangersTest(unittest.TestCase):
    def test_a_host_is_expected_by_whoever_reserved_for_it(self):
        there = [
            row("connected", "connection", host="elsewhere", serves=None, user_id="x"),
            row("held", "hold", user_id="other"),
        ]
        self.assertEqual([], holders.strangers_to(there, "h", "other"))
        self.assertEqual(there[:1], holders.strangers_to(there, "elsewhere", "u"))
        self.assertEqual(there[:1], holders.strangers_to(there, "h", "u"))

    def test_one_hold_is_for_one_host(self):
        there = [
            row("held", "hold", user_id="u"),
            row("connected", "connection", host="elsewhere", serves=None, user_id="u"),
        ]
        self.assertEqual(there[1:], holders.strangers_to(there, "h", "u"))

    def test_a_connection_that_surely_failed_is_nobody(self):
        there = [row("connect_failed", "connection", serves=None, user_id="x")]
        self.assertEqual([], holders.strangers_to(there, "h", "u"))

    def test_what_is_attached_by_a_word_alone_expects_its_host(self):
        there = [row(kind="legacy", host=None, user_id="u")]
        self.assertEqual([], holders.strangers_to(there, "h", "u"))
        self.assertEqual(there, holders.strangers_to(there, "h", "other"))
        there[0]["host"] = "h"
        self.assertEqual([], holders.strangers_to(there, "h", "other"))
        there.append(row("connected", "connection", id="c", serves="a1", host="x", user_id="u"))
        self.assertEqual(there, holders.strangers_to(there, "h", "u"))

    def test_a_free_volume_has_none(self):
        self.assertEqual([], holders.strangers_to([row("connect_failed")], "x", "u"))


class NameTest(unittest.TestCase):
    def test_each_kind_is_called_by_what_can_be_done_about_it(self):
        for named, each in (
            ("attachment a1", row()),
            ("attachment a1 of server s", row(instance_uuid="s")),
            ("a reservation of os-reserve", row("held", "hold")),
            ("the connection of host h (os-initialize_connection)", row(kind="connection")),
        ):
            self.assertEqual(named, holders.name(each))
