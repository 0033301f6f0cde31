# SPDX-License-Identifier: Apache-2.0
"""The command attachd-manage agent."""

import csv
import io
import json

from attachd import exception
from attachd.db import host_fences, host_identities
from attachd.db.agents import agent_store
from attachd.tests.fixtures import databases, db_rows, fake_agent, forked_command, lifetime


class AgentTest(forked_command.ForkedCommandCase):
    def setUp(self):
        super().setUp()
        url = databases.use(self)
        self.file = lifetime.temp_dir(self) / "attachd.conf"
        self.file.write_text(f"[database]\nconnection = {url}\n", encoding="utf-8")

    def run_(self, *arguments):
        return self.command.run("--config-file", self.file, "agent", *arguments)

    def done(self, *arguments):
        ended = self.run_(*arguments)
        self.assertEqual((0, ""), (ended.returncode, ended.stderr))
        return ended.stdout

    def refused(self, *arguments):
        ended = self.run_(*arguments)
        self.assertEqual((1, ""), (ended.returncode, ended.stdout))
        return ended.stderr

    def test_agent_add_prints_valid_key_once(self):
        (key,) = self.done("add", "node-1").splitlines()
        self.assertGreaterEqual(len(key), 43)
        agent_store.check_key("node-1", key)
        with self.assertRaises(exception.Forbidden):
            agent_store.check_key("node-1", key[:-1])
        self.assertNotIn(key, str(db_rows.list_agents()))
        self.assertIn("node-1 is known already", self.refused("add", "node-1"))
        agent_store.check_key("node-1", key)

    def test_agent_add_with_initiators_assigns_them_until_it_is_removed(self):
        names = ("--initiator", "IQN.2026-01.org.example:1", "--initiator", "50014380186b3f65")
        self.done("add", "node-1", *names)
        assigned = {"iscsi:iqn.2026-01.org.example:1", "fc:50014380186b3f65"}
        self.assertEqual(assigned, host_identities.list_assigned("node-1"))
        self.done("remove", "node-1")
        self.assertEqual(set(), host_identities.list_assigned("node-1"))
        self.assertEqual(2, self.run_("add", "node-1", "--initiator", "x").returncode)

    def test_agent_add_with_initiator_of_fenced_host_adds_nothing(self):
        self.done("add", "node-1", "--initiator", "iqn.2026-01.org.example:1")
        host_fences.fence("node-1", "dead", None)
        said = self.refused("add", "node-2", "--initiator", "iqn.2026-01.org.example:1")
        self.assertIn("Host node-1 is fenced", said)
        self.done("add", "node-2")

    def test_agent_list_shows_state_attachments_and_error(self):
        self.assertEqual("", self.done("list"))
        fake_agent.report_agent("node-1", error="iscsid does not run.")
        db_rows.add_attachment(db_rows.add_volume()["id"], "attached", agent="node-1")
        fake_agent.report_agent("node-22")
        fake_agent.expire_heartbeat("node-22")
        self.done("add", "node-3")
        lines = self.done("list").splitlines()
        self.assertRegex(lines[0], r"^host +state +last seen +attachments +error$")
        self.assertRegex(lines[1], r"^node-1 +up +2\d\d\d-.* +1 +iscsid does not run\.$")
        self.assertRegex(lines[2], r"^node-22 +down +2\d\d\d-.* +0 +-$")
        self.assertRegex(lines[3], r"^node-3 +new +- +0 +-$")

    def test_agent_list_in_formats_for_programs(self):
        fake_agent.report_agent("node-1")
        for form, read in (
            ("json", json.loads),
            ("csv", lambda text: list(csv.DictReader(io.StringIO(text)))),
        ):
            (row,) = read(self.done("list", "--format", form))
            shown = [str(row[name]) for name in ("host", "state", "attachments", "connector_type")]
            self.assertEqual(["node-1", "up", "0", "kernel"], shown)

    def test_agent_remove_with_attachments_needs_force(self):
        fake_agent.report_agent("node-1")
        attachment_id = db_rows.add_attachment(
            db_rows.add_volume()["id"], "attached", agent="node-1"
        )["id"]
        self.assertIn(attachment_id, self.refused("remove", "node-1"))
        self.assertIn("is removed", self.done("remove", "node-1", "--force"))
        self.assertIn("No agent of host node-1", self.refused("remove", "node-1"))

    def test_agent_add_with_invalid_host_name_is_refused(self):
        for name in ("", "x" * 256, "a\nb"):
            ended = self.run_("add", name)
            self.assertEqual(2, ended.returncode)
            self.assertIn("printable characters", ended.stderr)
        self.assertEqual([], agent_store.list_all())

    def test_agent_accept_moves_the_key_to_the_next_machine(self):
        fake_agent.report_agent("node-1", boot_id="b1", report_token="t")
        self.assertIn("boot ids b1", self.refused("accept", "node-1", "--boot", "b2"))
        self.done("accept", "node-1")
        row = agent_store.get("node-1")
        self.assertEqual((None, ["b1"]), (row["report_token"], row["refused_boots"]))
        self.assertIn("node-2", self.refused("accept", "node-2"))

    def test_agent_accept_chooses_one_of_two_machines(self):
        other = {"boot_id": "b2", "machine_id": "m2", "process": "p2", "start": 3, "number": 1}
        other |= {"next": "t2", "since": "now", "is_known": False}
        reported = {"boot_id": "b1", "report_token": "t1", "conflict": other}
        fake_agent.report_agent("node-1", **reported)
        db_rows.add_attachment(db_rows.add_volume()["id"], "attached", agent="node-1")
        listed = json.loads(self.done("list", "--format", "json"))
        self.assertEqual(("conflict", "b2"), (listed[0]["state"], listed[0]["other_boot_id"]))
        self.assertIn("b1 and b2. Give one", self.refused("accept", "node-1"))
        self.assertIn("--devices-gone", self.refused("accept", "node-1", "--boot", "b2"))
        self.assertEqual("conflict", agent_store.state(agent_store.get("node-1")))
        self.done("accept", "node-1", "--boot", "b1")
        row = agent_store.get("node-1")
        self.assertEqual(
            ("up", "t1", ["b2"]),
            (agent_store.state(row), row["report_token"], row["refused_boots"]),
        )
        fake_agent.report_agent("node-1", **reported)
        self.done("accept", "node-1", "--boot", "b2", "--devices-gone")
        row = agent_store.get("node-1")
        self.assertEqual(
            ("b2", "t2", "p2"), (row["boot_id"], row["report_token"], row["report_process"])
        )
        self.assertEqual(["b1"], row["refused_boots"])
        (attachment,) = db_rows.list_attachments()
        self.assertIsNone(attachment["device_origin"])
