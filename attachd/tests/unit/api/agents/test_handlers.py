# SPDX-License-Identifier: Apache-2.0
"""Tests of the handlers of agents."""

import datetime
import unittest

import webob

from attachd import exception
from attachd.api import endpoint
from attachd.api import microversions as mv
from attachd.api.agents import handlers
from attachd.db import models
from attachd.db.agents import agent_store
from attachd.tests.fixtures import api_context, db_rows, fake_agent


class HandlersTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        for host in ("node-2", "node-1"):
            fake_agent.report_agent(host)

    def index(self, **query):
        """Return the answer of a list."""
        links = endpoint.Links(webob.Request.blank("/v3/agents"), None)
        return handlers.index(query, mv.LATEST, links)

    def list(self, **query):
        return self.index(**query)["agents"]

    def test_agents_are_listed_by_pages(self):
        first = self.index(limit="1", with_count="true")
        self.assertEqual(
            (["node-1"], 2), ([row["host"] for row in first["agents"]], first["count"])
        )
        (link,) = first["agents_links"]
        self.assertIn("/v3/agents?limit=1&with_count=true&marker=node-1", link["href"])
        self.assertEqual(["node-2"], [row["host"] for row in self.list(marker="node-1")])
        self.assertEqual([], self.list(marker="node-2"))

    def test_agents_are_filtered_by_state_name_and_trouble(self):
        fake_agent.report_agent("other")
        hour = datetime.timedelta(hours=1)
        db_rows.change_agent("node-2", seen_at=models.now() - hour)
        db_rows.change_agent("other", conflict={"boot_id": "b", "machine_id": "m", "since": "s"})
        agent_store.create("node-3", "k" * 43)
        for query, expected in (
            ({"state": "up"}, ["node-1"]),
            ({"state": "down"}, ["node-2"]),
            ({"state": "new"}, ["node-3"]),
            ({"state": "conflict"}, ["other"]),
            ({"host~": "NODE"}, ["node-1", "node-2", "node-3"]),
            ({"host~": "%"}, []),
            ({"in_trouble": "true"}, ["node-2", "other"]),
            ({"in_trouble": "true", "host~": "de"}, ["node-2"]),
        ):
            found = self.index(with_count="true", **query)
            self.assertEqual(expected, [row["host"] for row in found["agents"]], query)
            self.assertEqual(len(expected), found["count"], query)
        db_rows.change_agent("node-1", error="iscsid is missing")
        self.assertIn("node-1", [row["host"] for row in self.list(in_trouble="1")])
        with self.assertRaisesRegex(exception.InvalidInput, "none of up, down, new, conflict"):
            self.list(state="dead")

    def test_agents_are_listed_by_name_and_shown(self):
        listed = self.list()
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
        self.assertEqual(["node-1"], [agent["host"] for agent in self.list()])

    def test_agents_need_attachd_version(self):
        declared = [
            api_endpoint
            for api_endpoint in endpoint.load()
            if api_endpoint.path.startswith("/agents")
        ]
        self.assertEqual([mv.ATTACHD_1_0] * 3, [item.attachd_since for item in declared])


RENEWED_AT = datetime.datetime(2026, 1, 1)  # noqa: DTZ001  as the tables have it
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
    "heartbeat_at": RENEWED_AT,
    "lease": 30,
    "lost_at": None,
    "lost_action": None,
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
                "lease": {
                    "renewed_at": RENEWED_AT,
                    "seconds": 30,
                    "expires_at": RENEWED_AT + datetime.timedelta(seconds=30),
                    "lost_at": None,
                    "lost_action": None,
                },
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
        self.assertEqual((None, None), (shown["other_devices"], shown["lease"]))

    def test_agent_without_end_of_lease_shows_last_renewal(self):
        shown = handlers.agent_view({**ROW, "lease": None})["lease"]
        self.assertEqual((RENEWED_AT, None), (shown["renewed_at"], shown["expires_at"]))
