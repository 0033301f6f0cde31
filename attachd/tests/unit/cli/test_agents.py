# SPDX-License-Identifier: Apache-2.0
"""The commands on agents."""

import json

from attachd.tests.unit.cli.programs import AGENT, Case


class AgentsTest(Case):
    def test_agent_list_shows_columns(self):
        (row,) = json.loads(self.run_it("agent-list", "-f", "json"))
        self.assertEqual(
            {
                "Host": "node1",
                "State": "up",
                "Last Seen": "2026-01-01T00:00:00.000000",
                "Connector Type": "kernel",
                "Max Attachments": None,
                "Error": None,
            },
            row,
        )

    def test_agent_show_shows_connector(self):
        self.assertEqual(AGENT, json.loads(self.run_it("agent-show", "node1", "-f", "json")))
        table = self.run_it("agent-show", "node1")
        self.assertIn('{"host": "node1", "initiator": "iqn.2026-01.example:1"}', table)

    def test_agent_delete_continues_after_missing_agent(self):
        self.cloud.missing = {"/agents/node1"}
        self.run_it("agent-delete", "node1", "node2", code=1)
        self.assertIn("node1: ", self.said)
        asked = [(method, url) for method, url, _request in self.cloud.asked]
        self.assertEqual([("DELETE", "/agents/node1"), ("DELETE", "/agents/node2")], asked)
