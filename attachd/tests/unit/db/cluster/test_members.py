# SPDX-License-Identifier: Apache-2.0
"""The living manager processes."""

import datetime

import sqlalchemy as sa

from attachd.db import models
from attachd.db.cluster import members
from attachd.db.engine import session
from attachd.tests.fixtures import databases


class MembersTest(databases.DatabaseCase):
    """A few of them, by the clock of the database; repeated by functional/test_databases.py."""

    def seen(self):
        return {row["id"]: row["seen_at"] for row in members.list_living()}

    def move_back(self, process_id, seconds):
        """Move the last heartbeat of a process back, by the clock of the row."""
        table = models.members
        earlier = self.seen()[process_id] - datetime.timedelta(seconds=seconds)
        with session.writer() as connection:
            changed = sa.update(table).where(table.c.id == process_id).values(seen_at=earlier)
            self.assertEqual(1, connection.execute(changed).rowcount)

    def test_list_living_returns_names_oldest_first(self):
        for text in ("b", "a"):
            members.join(text, f"host:{text}")
        self.assertEqual(
            [("b", "host:b"), ("a", "host:a")],
            [(row["id"], row["name"]) for row in members.list_living()],
        )

    def test_join_truncates_long_name(self):
        members.join("a", "n" * 300)
        self.assertEqual("n" * 255, members.list_living()[0]["name"])

    def test_join_twice_inserts_once(self):
        members.join("a", "first")
        self.move_back("a", 100)
        before = self.seen()["a"]
        members.join("a", "second")
        self.assertEqual(["first"], [row["name"] for row in members.list_living()])
        self.assertGreater(self.seen()["a"], before)

    def test_seen_at_is_utc_of_database_clock(self):
        members.join("a", "a")
        joined = self.seen()["a"]
        self.assertTrue(members.heartbeat("a"))
        renewed = self.seen()["a"]
        self.assertLessEqual(joined, renewed)
        # Both clocks are of this machine.
        for moment in (joined, renewed):
            self.assertLess(abs(models.now() - moment), datetime.timedelta(minutes=10))
        self.assertIsNone(renewed.tzinfo)

    def test_heartbeat_of_expired_member_returns_false(self):
        self.assertFalse(members.heartbeat("a"))
        members.join("a", "a")
        self.move_back("a", 100)
        before = self.seen()["a"]
        self.assertTrue(members.heartbeat("a"))
        later = self.seen()["a"] - before
        self.assertGreaterEqual(later, datetime.timedelta(seconds=100))
        members.expire("a")
        self.assertFalse(members.heartbeat("a"))
        self.assertEqual({}, self.seen())

    def test_expire_removes_one_member_only(self):
        for text in ("a", "b"):
            members.join(text, text)
        self.assertTrue(members.expire("a"))
        self.assertFalse(members.expire("a"))
        self.assertEqual({"b"}, set(self.seen()))

    def test_expire_of_member_seen_since_is_refused(self):
        members.join("a", "a")
        self.move_back("a", 0.25)
        observed = self.seen()["a"]
        members.heartbeat("a")
        self.assertFalse(members.expire("a", observed))
        self.assertEqual({"a"}, set(self.seen()))
        self.assertTrue(members.expire("a", self.seen()["a"]))
        self.assertEqual({}, self.seen())
