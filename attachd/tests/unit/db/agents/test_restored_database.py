# SPDX-License-Identifier: Apache-2.0
"""Reports after the database was restored from a backup."""

from attachd import exception
from attachd.db import models
from attachd.db.agents import agent_store, machines, restored_database
from attachd.db.agents.machines import Claim
from attachd.tests.fixtures import databases

HOST, KEY = "node-1", "k" * 43


class RestoredDatabaseTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        agent_store.create(HOST, KEY)
        self.report(Claim("b1", "m1", "p1", 3, 1, "t0", "t1"))

    def report(self, claim):
        row = agent_store.check_key(HOST, KEY)
        agent_store.record_report(HOST, machines.accept(row, claim), read=row)

    def test_next_report_of_each_agent_is_accepted_and_ends_its_conflict(self):
        newer = Claim("b2", "m1", "p2", 9, 1, "t8", "t9")
        with self.assertRaises(exception.AgentConflict):
            self.report(newer)
        self.assertEqual(1, restored_database.begin(3600))
        self.report(newer)
        row = agent_store.get(HOST)
        self.assertEqual(
            ("up", "b2", "t9"), (agent_store.state(row), row["boot_id"], row["report_token"])
        )
        with self.assertRaises(exception.AgentConflict):
            self.report(Claim("b3", "m1", "p3", 10, 1, "t1", "t2"))

    def test_agents_that_are_registered_later_are_believed_as_the_others(self):
        restored_database.begin(3600)
        agent_store.create("node-2", KEY)
        until = agent_store.get("node-2")["believed_until"]
        self.assertEqual(agent_store.get(HOST)["believed_until"], until)
        self.assertGreater(until, models.now())

    def test_end_of_an_unknown_host_ends_nothing(self):
        restored_database.begin(3600)
        with self.assertRaises(exception.AgentNotFound):
            restored_database.end([HOST, "node-2"])
        self.assertIsNotNone(agent_store.get(HOST)["believed_until"])
        self.assertEqual(1, restored_database.end())
        self.assertIsNone(agent_store.get(HOST)["believed_until"])
