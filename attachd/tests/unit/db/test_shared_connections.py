# SPDX-License-Identifier: Apache-2.0
"""Which attachments share a connection."""

import unittest

from attachd.db import api, shared_connections
from attachd.states import AttachmentState
from attachd.tests import databases, rows

KEY, OTHER_KEY = "1" * 64, "2" * 64


class Case(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)

    def attached(self, key=KEY, state="attached", volume=None, **values):
        volume = volume or rows.add_volume(multiattach=True)["id"]
        return rows.add_attachment(volume, state, connection_key=key, **values)

    def beside(self, *attachments, project=None):
        return shared_connections.beside(attachments, project)

    def users(self, attachment, project=None):
        keys = shared_connections.keys_of(attachment["id"], attachment["volume_id"])
        return [row["id"] for row in shared_connections.users_of(keys, project)]


class BesideTest(Case):
    def test_those_of_the_same_connection_share_it_whatever_their_volumes(self):
        first = self.attached()
        second = self.attached(volume=first["volume_id"])
        third = self.attached()
        self.attached(OTHER_KEY)
        ids = [each["id"] for each in (first, second, third)]
        expected = {mine: [each for each in ids if each != mine] for mine in ids}
        self.assertEqual(expected, self.beside(first, second, third))

    def test_a_page_is_one_statement(self):
        page = [self.attached() for _each in range(5)]
        before = api.counters().statements
        self.beside(*page)
        self.assertEqual(1, api.counters().statements - before)

    def test_without_a_connection_nobody_shares(self):
        mine = self.attached(None)
        self.attached(None)
        self.assertEqual({mine["id"]: []}, self.beside(mine))
        self.assertEqual({}, self.beside())

    def test_those_count_that_use_it_or_may(self):
        mine = self.attached()
        sharing = {
            self.attached(state=state.value)["id"]: state
            for state in set(AttachmentState) - {AttachmentState.HELD}
        }
        found = {sharing[each] for each in self.beside(mine)[mine["id"]]}
        expected = {"connecting", "connected", "attached", "withdrawing"}
        expected |= {"connect_unknown", "disconnect_failed"}
        self.assertEqual(expected, found)

    def test_one_project_sees_its_own_only(self):
        mine = self.attached()
        self.attached(project_id="b" * 32)
        self.assertEqual({mine["id"]: []}, self.beside(mine, project=rows.PROJECT))
        self.assertEqual(1, len(self.beside(mine)[mine["id"]]))

    def test_what_the_older_calls_made_shares_what_serves_it(self):
        mine = self.attached()
        other = self.attached(None, kind="legacy", connector=None)
        connection = {"kind": "connection", "volume": other["volume_id"], "state": "connected"}
        self.attached(serves=other["id"], **connection)
        self.attached(**{**connection, "volume": None})  # It serves nobody that is known.
        expected = {mine["id"]: [other["id"]], other["id"]: [mine["id"]]}
        self.assertEqual(expected, self.beside(mine, other))
        self.assertEqual([mine["id"], other["id"]], self.users(other))


class UsersTest(Case):
    def test_a_connection_is_known_when_its_attachment_is_gone(self):
        mine, other = self.attached(), self.attached()
        keys = shared_connections.keys_of(mine["id"], mine["volume_id"])
        rows.remove_attachment(mine["id"])
        (left,) = shared_connections.users_of(keys, None)
        self.assertEqual(other["id"], left["id"])
        self.assertNotIn("connector", left)

    def test_those_that_are_leaving_do_not_use_it_any_more(self):
        mine = self.attached()
        self.attached(state="disconnecting")
        self.assertEqual([mine["id"]], self.users(mine))

    def test_one_project_sees_its_own_only(self):
        mine, other = self.attached(), self.attached(project_id="b" * 32)
        self.assertEqual([mine["id"]], self.users(mine, rows.PROJECT))
        self.assertEqual([mine["id"], other["id"]], self.users(mine))

    def test_without_a_connection_there_are_none(self):
        self.attached(None)
        self.assertEqual([], self.users(self.attached(None)))
