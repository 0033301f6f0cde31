# SPDX-License-Identifier: Apache-2.0
"""Which hosts have agents, who may be one, and what they see to."""

import datetime
import threading
import unittest
from unittest import mock

from attachd import exception
from attachd.conf import CONF
from attachd.db import models
from attachd.db.agents import store as db
from attachd.db.attachments import store as attachments
from attachd.db.attachments import transitions as steps
from attachd.db.engine import session
from attachd.tests.fixtures import databases, db_rows, fake_agent
from attachd.tests.wait import TIMEOUT

HOST = "compute-1"
KEY = "k" * 43
SAID = {
    "connector": {"host": HOST, "initiator": "iqn.2026-01.org.example:1"},
    "devices": [{"attachment_id": "a", "volume_id": "v", "path": "/dev/sdb", "size_bytes": 1}],
    "connector_type": "kernel",
    "version": "0.1.0",
    "error": None,
}


class AgentsTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)

    def test_a_host_becomes_known_once_and_keeps_its_key(self):
        self.assertTrue(db.create(HOST, KEY))
        self.assertFalse(db.create(HOST, "another key"))
        db.check_key(HOST, KEY)

    def test_whoever_has_not_the_key_is_not_the_agent(self):
        db.create(HOST, KEY)
        db.create("compute-2", "o" * 43)
        for wrong in ("", KEY[:-1], KEY + "k", "o" * 43, db.digest(KEY)):
            with self.assertRaisesRegex(exception.Forbidden, "attachd-manage agent remove"):
                db.check_key(HOST, wrong)

    def test_nobody_is_the_agent_of_a_host_that_is_not_known(self):
        with self.assertRaisesRegex(exception.AgentNotFound, HOST):
            db.check_key(HOST, KEY)
        with self.assertRaises(exception.AgentNotFound):
            db.get(HOST)

    def test_the_key_is_not_in_the_table(self):
        db.create(HOST, KEY)
        with session.reader() as connection:
            (row,) = connection.execute(models.agents.select()).all()
        self.assertNotIn(KEY, str(row))
        self.assertNotIn("key_digest", db.get(HOST))

    def test_a_host_is_forgotten_with_its_key(self):
        db.create(HOST, KEY)
        self.assertTrue(db._delete(HOST))
        self.assertFalse(db._delete(HOST))
        self.assertTrue(db.create(HOST, "another key"))
        db.check_key(HOST, "another key")

    def test_what_it_says_of_itself_is_kept(self):
        db.create(HOST, KEY)
        db.record_report(HOST, SAID)
        known = db.get(HOST)
        self.assertEqual(SAID, {name: known[name] for name in SAID})
        self.assertEqual([known], db.list_all())

    def test_a_long_error_is_shortened(self):
        db.create(HOST, KEY)
        db.record_report(HOST, {**SAID, "connector": None, "error": "no iscsiadm " * 500})
        known = db.get(HOST)
        self.assertIsNone(known["connector"])
        self.assertTrue(known["error"].startswith("no iscsiadm"))
        self.assertLessEqual(len(known["error"]), models.ERROR_LENGTH)

    def test_it_is_alive_from_its_first_report_until_it_is_silent_for_too_long(self):
        db.create(HOST, KEY)
        self.assertFalse(db.get(HOST)["alive"])
        db.record_report(HOST, SAID)
        self.assertTrue(db.get(HOST)["alive"])
        long_ago = models.now() - datetime.timedelta(seconds=CONF.agent.down_time + 1)
        with session.writer() as connection:
            connection.execute(models.agents.update().values(seen_at=long_ago))
        self.assertFalse(db.get(HOST)["alive"])

    def test_hosts_are_listed_by_name(self):
        for host in ("b", "c", "a"):
            db.create(host, KEY)
        self.assertEqual(["a", "b", "c"], [row["host"] for row in db.list_all()])


class WorkTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        self.volume = db_rows.add_volume(size_gib=3, shared_targets=True)["id"]

    def add(self, state, agent=HOST):
        return db_rows.add_attachment(self.volume, state, agent=agent)["id"]

    def test_it_sees_to_what_its_host_was_let_in_for(self):
        states = ("reserved", "connecting", "connected", "attached", "withdrawing")
        states += ("disconnecting", "connect_failed", "connect_unknown", "disconnect_failed")
        made = {state: self.add(state) for state in states}
        expected = [made["connected"], made["attached"], made["withdrawing"]]
        self.assertEqual(expected, [row["id"] for row in db.list_assigned(HOST)])

    def test_others_see_to_the_rest(self):
        self.add("attached", agent="compute-2")
        self.add("attached", agent=None)
        self.assertEqual([], db.list_assigned(HOST))

    def test_one_can_be_asked_for(self):
        mine, theirs = self.add("connected"), self.add("connected", agent="compute-2")
        self.add("connected")
        self.assertEqual([mine], [row["id"] for row in db.list_assigned(HOST, mine)])
        self.assertEqual([], db.list_assigned(HOST, theirs))

    def test_what_matters_of_the_volume_comes_with_it(self):
        self.add("connected")
        (row,) = db.list_assigned(HOST)
        names = ("volume_size_gib", "volume_shared_targets", "volume_host")
        self.assertEqual((3, True, "here@fake#pool"), tuple(row[name] for name in names))


AGENT_REMOVAL_HOST = "node-1"
BEGUN = 0.3
"""Seconds that somebody has to begin something that waits; it may as well begin later."""


class AgentRemovalTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        fake_agent.report_agent(AGENT_REMOVAL_HOST)

    def known(self):
        return [row["host"] for row in db.list_all()]

    def attachments(self, count, agent=AGENT_REMOVAL_HOST):
        volume = db_rows.add_volume(multiattach=True)["id"]
        return [
            db_rows.add_attachment(volume, "attached", agent=agent)["id"] for _ in range(count)
        ]

    def test_a_host_without_attachments_is_forgotten(self):
        fake_agent.report_agent("node-2")
        self.attachments(1, "node-2")
        self.attachments(1, None)
        db.delete(AGENT_REMOVAL_HOST)
        self.assertEqual(["node-2"], self.known())

    def test_one_with_attachments_stays_and_they_are_named(self):
        mine = self.attachments(2)
        with self.assertRaisesRegex(exception.Conflict, f"2 attachments: {mine[0]}, {mine[1]}."):
            db.delete(AGENT_REMOVAL_HOST)
        mine += self.attachments(10)
        with self.assertRaisesRegex(exception.Conflict, f"{mine[9]} and 2 more"):
            db.delete(AGENT_REMOVAL_HOST)
        self.assertEqual([AGENT_REMOVAL_HOST], self.known())
        self.assertEqual(mine, db.list_attachment_ids(AGENT_REMOVAL_HOST))

    def test_force_does_not_look_at_them(self):
        self.attachments(1)
        db.force_delete(AGENT_REMOVAL_HOST)
        self.assertEqual([], self.known())

    def test_one_that_nobody_knows_is_not_found(self):
        for remove in (db.delete, db.force_delete):
            self.attachments(1, "node-2")
            with self.assertRaises(exception.AgentNotFound):
                remove("node-2")

    def reserve(self):
        volume = db_rows.add_volume()["id"]
        return attachments.reserve(
            volume, {"project_id": db_rows.PROJECT, "agent": AGENT_REMOVAL_HOST}
        )

    def test_one_that_is_forgotten_gets_no_attachment_any_more(self):
        db.delete(AGENT_REMOVAL_HOST)
        with self.assertRaises(exception.AgentNotFound):
            self.reserve()
        self.assertEqual([], db_rows.list_attachments())
        self.assertEqual({"available"}, {row["status"] for row in db_rows.list_volumes()})

    def test_one_that_is_about_to_get_an_attachment_is_not_forgotten(self):
        refused = []

        def remove():
            try:
                db.delete(AGENT_REMOVAL_HOST)
            except exception.Conflict as error:
                refused.append(error)

        def insert(*args):
            removing.start()
            removing.join(BEGUN)
            return real(*args)

        removing, real = threading.Thread(target=remove), steps.insert
        with mock.patch.object(steps, "insert", insert):
            made = self.reserve()
        removing.join(TIMEOUT)
        (error,) = refused
        self.assertIn(made["id"], str(error))
        self.assertEqual([AGENT_REMOVAL_HOST], self.known())
