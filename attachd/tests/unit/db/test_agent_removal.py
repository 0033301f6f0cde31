# SPDX-License-Identifier: Apache-2.0
"""Which agents are forgotten."""

import unittest

from attachd import exception
from attachd.db import agent_removal
from attachd.db import agents as db
from attachd.tests import agents, databases, rows

HOST = "node-1"


class AgentRemovalTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        agents.report(HOST)

    def known(self):
        return [row["host"] for row in db.all_()]

    def attachments(self, count, agent=HOST):
        volume = rows.add_volume(multiattach=True)["id"]
        return [rows.add_attachment(volume, "attached", agent=agent)["id"] for _ in range(count)]

    def test_a_host_without_attachments_is_forgotten(self):
        agents.report("node-2")
        self.attachments(1, "node-2")
        self.attachments(1, None)
        agent_removal.remove(HOST)
        self.assertEqual(["node-2"], self.known())

    def test_one_with_attachments_stays_and_they_are_named(self):
        mine = self.attachments(2)
        with self.assertRaisesRegex(exception.Conflict, f"2 attachments: {mine[0]}, {mine[1]}."):
            agent_removal.remove(HOST)
        mine += self.attachments(10)
        with self.assertRaisesRegex(exception.Conflict, f"{mine[9]} and 2 more"):
            agent_removal.remove(HOST)
        self.assertEqual([HOST], self.known())
        self.assertEqual(mine, agent_removal.attachments_of(HOST))

    def test_force_does_not_look_at_them(self):
        self.attachments(1)
        agent_removal.remove_by_force(HOST)
        self.assertEqual([], self.known())

    def test_one_that_nobody_knows_is_not_found(self):
        for remove in (agent_removal.remove, agent_removal.remove_by_force):
            self.attachments(1, "node-2")
            with self.assertRaises(exception.AgentNotFound):
                remove("node-2")
