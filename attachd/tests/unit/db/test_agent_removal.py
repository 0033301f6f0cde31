# SPDX-License-Identifier: Apache-2.0
"""Which agents are forgotten."""

import threading
import unittest
from unittest import mock

from attachd import exception
from attachd.db import agent_removal, attachments
from attachd.db import agents as db
from attachd.db import attachment_steps as steps
from attachd.tests import agents, databases, rows
from attachd.tests.wait import TIMEOUT

HOST = "node-1"
BEGUN = 0.3
"""Seconds that somebody has to begin something that waits; it may as well begin later."""


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

    def reserve(self):
        volume = rows.add_volume()["id"]
        return attachments.reserve(volume, {"project_id": rows.PROJECT, "agent": HOST})

    def test_one_that_is_forgotten_gets_no_attachment_any_more(self):
        agent_removal.remove(HOST)
        with self.assertRaises(exception.AgentNotFound):
            self.reserve()
        self.assertEqual([], rows.attachments())
        self.assertEqual({"available"}, {row["status"] for row in rows.volumes()})

    def test_one_that_is_about_to_get_an_attachment_is_not_forgotten(self):
        refused = []

        def remove():
            try:
                agent_removal.remove(HOST)
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
        self.assertEqual([HOST], self.known())
