# SPDX-License-Identifier: Apache-2.0
"""Which hosts have agents, who may be one, and what they see to."""

import datetime
import unittest

from attachd import exception
from attachd.conf import CONF
from attachd.db import agents, api, models
from attachd.tests import databases, rows

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
        self.assertTrue(agents.add(HOST, KEY))
        self.assertFalse(agents.add(HOST, "another key"))
        agents.check(HOST, KEY)

    def test_whoever_has_not_the_key_is_not_the_agent(self):
        agents.add(HOST, KEY)
        agents.add("compute-2", "o" * 43)
        for wrong in ("", KEY[:-1], KEY + "k", "o" * 43, agents.digest(KEY)):
            with self.assertRaisesRegex(exception.Forbidden, "attachd-manage agent remove"):
                agents.check(HOST, wrong)

    def test_nobody_is_the_agent_of_a_host_that_is_not_known(self):
        with self.assertRaisesRegex(exception.AgentNotFound, HOST):
            agents.check(HOST, KEY)
        with self.assertRaises(exception.AgentNotFound):
            agents.get(HOST)

    def test_the_key_is_not_in_the_table(self):
        agents.add(HOST, KEY)
        with api.reader() as connection:
            (row,) = connection.execute(models.agents.select()).all()
        self.assertNotIn(KEY, str(row))
        self.assertNotIn("key_digest", agents.get(HOST))

    def test_a_host_is_forgotten_with_its_key(self):
        agents.add(HOST, KEY)
        self.assertTrue(agents.remove(HOST))
        self.assertFalse(agents.remove(HOST))
        self.assertTrue(agents.add(HOST, "another key"))
        agents.check(HOST, "another key")

    def test_what_it_says_of_itself_is_kept(self):
        agents.add(HOST, KEY)
        agents.report(HOST, SAID)
        known = agents.get(HOST)
        self.assertEqual(SAID, {name: known[name] for name in SAID})
        self.assertEqual([known], agents.all_())

    def test_a_long_error_is_shortened(self):
        agents.add(HOST, KEY)
        agents.report(HOST, {**SAID, "connector": None, "error": "no iscsiadm " * 500})
        known = agents.get(HOST)
        self.assertIsNone(known["connector"])
        self.assertTrue(known["error"].startswith("no iscsiadm"))
        self.assertLessEqual(len(known["error"]), models.ERROR_LENGTH)

    def test_it_is_alive_from_its_first_report_until_it_is_silent_for_too_long(self):
        agents.add(HOST, KEY)
        self.assertFalse(agents.get(HOST)["alive"])
        agents.report(HOST, SAID)
        self.assertTrue(agents.get(HOST)["alive"])
        long_ago = models.now() - datetime.timedelta(seconds=CONF.agent.down_time + 1)
        with api.writer() as connection:
            connection.execute(models.agents.update().values(seen_at=long_ago))
        self.assertFalse(agents.get(HOST)["alive"])

    def test_hosts_are_listed_by_name(self):
        for host in ("b", "c", "a"):
            agents.add(host, KEY)
        self.assertEqual(["a", "b", "c"], [row["host"] for row in agents.all_()])


class WorkTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        self.volume = rows.add_volume(size_gib=3, shared_targets=True)["id"]

    def add(self, state, agent=HOST):
        return rows.add_attachment(self.volume, state, agent=agent)["id"]

    def test_it_sees_to_what_its_host_was_let_in_for(self):
        states = ("reserved", "connecting", "connected", "attached", "withdrawing")
        states += ("disconnecting", "connect_failed", "connect_unknown", "disconnect_failed")
        made = {state: self.add(state) for state in states}
        expected = [made["connected"], made["attached"], made["withdrawing"]]
        self.assertEqual(expected, [row["id"] for row in agents.work(HOST)])

    def test_others_see_to_the_rest(self):
        self.add("attached", agent="compute-2")
        self.add("attached", agent=None)
        self.assertEqual([], agents.work(HOST))

    def test_one_can_be_asked_for(self):
        mine, theirs = self.add("connected"), self.add("connected", agent="compute-2")
        self.add("connected")
        self.assertEqual([mine], [row["id"] for row in agents.work(HOST, mine)])
        self.assertEqual([], agents.work(HOST, theirs))

    def test_what_matters_of_the_volume_comes_with_it(self):
        self.add("connected")
        (row,) = agents.work(HOST)
        names = ("volume_size_gib", "volume_shared_targets", "volume_host")
        self.assertEqual((3, True, "here@fake#pool"), tuple(row[name] for name in names))
