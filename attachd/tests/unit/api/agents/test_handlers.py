# SPDX-License-Identifier: Apache-2.0
"""Tests of the handlers of agents."""

import unittest

from attachd import exception
from attachd.api import endpoint
from attachd.api import microversions as mv
from attachd.api.agents import handlers
from attachd.tests.fixtures import api_context, db_rows, fake_agent


class HandlersTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        for host in ("node-2", "node-1"):
            fake_agent.report_agent(host)

    def test_agents_are_listed_by_name_and_shown(self):
        listed = handlers.index()["agents"]
        self.assertEqual(["node-1", "node-2"], [item["host"] for item in listed])
        self.assertEqual({"agent": listed[1]}, handlers.show("node-2"))

    def test_unknown_agent_returns_404(self):
        for call in (handlers.show, handlers.delete):
            with self.assertRaisesRegex(exception.AgentNotFound, "node-3"):
                call("node-3")

    def test_delete_agent_with_attachments_returns_409(self):
        db_rows.add_attachment(db_rows.add_volume()["id"], "attached", agent="node-1")
        self.assertIsNone(handlers.delete("node-2"))
        with self.assertRaises(exception.Conflict):
            handlers.delete("node-1")
        self.assertEqual(["node-1"], [agent["host"] for agent in handlers.index()["agents"]])

    def test_agents_need_attachd_version(self):
        declared = [
            api_endpoint
            for api_endpoint in endpoint.load()
            if api_endpoint.path.startswith("/agents")
        ]
        self.assertEqual([mv.ATTACHD_1_0] * 3, [item.attachd_since for item in declared])


DEVICE = {"attachment_id": "a1", "volume_id": "v1", "path": "/dev/sdb", "size_bytes": 2**30}
ROW = {
    "host": "node-1",
    "seen_at": "a moment",
    "alive": True,
    "connector_type": "kernel",
    "version": "1.0",
    "error": None,
    "boot_id": "b1",
    "machine_id": "m1",
    "conflict": None,
    "max_attachments": 28,
    "connector": {"host": "node-1", "initiator": "iqn.x", "multipath": False, "found": "secret"},
    "devices": [{**DEVICE, "sessions": ["secret"]}],
    "observed": {"devices": [{**DEVICE, "target": "iqn.y", "x": "secret"}], "asked": ["secret"]},
    "created_at": "long ago",
}


class AgentTest(unittest.TestCase):
    def test_agent_shows_report_without_secrets(self):
        self.assertEqual(
            {
                "host": "node-1",
                "state": "up",
                "last_seen": "a moment",
                "connector_type": "kernel",
                "version": "1.0",
                "error": None,
                "boot_id": "b1",
                "machine_id": "m1",
                "conflict": None,
                "max_attachments": 28,
                "connector": {"host": "node-1", "initiator": "iqn.x", "multipath": False},
                "devices": [{**DEVICE, "mountpoint": None}],
                "other_devices": [{**DEVICE, "mountpoint": None, "target": "iqn.y"}],
            },
            handlers.agent_view(ROW),
        )

    def test_agent_of_two_machines_is_in_conflict_with_an_error_that_names_both(self):
        other = {"boot_id": "b2", "machine_id": "m2", "since": "yesterday"}
        shown = handlers.agent_view({**ROW, "conflict": {**other, "next": "secret"}})
        self.assertEqual(("conflict", other), (shown["state"], shown["conflict"]))
        self.assertRegex(
            shown["error"], "boot b1, .* boot b2 since yesterday.*agent accept node-1"
        )

    def test_agent_without_report_is_down_or_new(self):
        self.assertEqual("down", handlers.agent_view({**ROW, "alive": False})["state"])
        nothing = dict.fromkeys(ROW, None)
        shown = handlers.agent_view({**nothing, "host": "node-1", "alive": False})
        self.assertEqual(("new", None, []), (shown["state"], shown["connector"], shown["devices"]))
        self.assertIsNone(shown["other_devices"])
