# SPDX-License-Identifier: Apache-2.0
"""The commands on agents."""

import json
from unittest import mock

from attachd.tests.unit.cli.programs import AGENT, Case


class AgentsTest(Case):
    def test_agent_list_shows_columns(self):
        (row,) = json.loads(self.run_it("agent-list", "-f", "json"))
        self.assertEqual(
            {
                "Host": "node1",
                "State": "up",
                "Last Seen": "2026-01-01T00:00:00.000000",
                "Age": mock.ANY,
                "Connector Type": "kernel",
                "Max Attachments": None,
                "Error": None,
            },
            row,
        )
        self.assertGreater(row["Age"], 86400)

    def test_agent_list_reads_all_pages(self):
        link = [{"rel": "next", "href": "http://127.0.0.1/v3/agents?marker=node1"}]
        pages = [{"agents": [AGENT], "agents_links": link}, {"agents": [{**AGENT, "host": "b"}]}]
        with mock.patch.object(self.cloud, "body", lambda *_: pages.pop(0)):
            rows = json.loads(self.run_it("agent-list", "-f", "json"))
        self.assertEqual(["node1", "b"], [row["Host"] for row in rows])
        self.assertEqual({"marker": "node1"}, self.cloud.asked[-1][2]["params"])

    def test_agent_that_is_down_is_red_in_a_terminal(self):
        down = {**AGENT, "state": "down", "error": "iscsid is missing"}
        with mock.patch.object(self.cloud, "body", lambda *_: {"agents": [down]}):
            shown = self.run_in_terminal(120, "agent-list")
        self.assertIn("\x1b[31mdown\x1b[39m", shown)
        self.assertIn("\x1b[31mnode1: iscsid is missing\x1b[39m\n", shown)

    def test_agent_show_shows_connector(self):
        self.assertEqual(AGENT, json.loads(self.run_it("agent-show", "node1", "-f", "json")))
        text = self.run_it("agent-show", "node1")
        self.assertRegex(text, r"(?m)^State           up, last report 2026-01-01 00:00:00 UTC \(")
        self.assertIn("\nConnector\n  host       node1\n  initiator  iqn.2026-01.example:1", text)

    def test_agent_delete_continues_after_missing_agent(self):
        self.cloud.missing = {"/agents/node1"}
        self.run_it("agent-delete", "node1", "node2", code=1)
        self.assertIn("node1: ", self.said)
        asked = [(method, url) for method, url, _request in self.cloud.asked]
        self.assertEqual([("DELETE", "/agents/node1"), ("DELETE", "/agents/node2")], asked)
