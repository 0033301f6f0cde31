# SPDX-License-Identifier: Apache-2.0
"""Tests of the checks of agents."""

from attachd import exception
from attachd.api.agents import presence
from attachd.db import host_fences
from attachd.db.agents import agent_store
from attachd.tests.fixtures import api_context, fake_agent

HOST = "node-1"
ELSE = "Do without it."


class PresenceTest(api_context.ApiContextCase):
    def test_connector_has_name_of_host(self):
        reported = {"host": "node-1.example", "initiator": "iqn.x", "mountpoint": "/dev/vdb"}
        fake_agent.report_agent(HOST, connector=reported)
        self.assertEqual({"host": HOST, "initiator": "iqn.x"}, presence.connector(HOST))
        presence.check(HOST, ELSE)

    def test_unknown_host_raises_agent_not_found(self):
        with self.assertRaisesRegex(exception.AgentNotFound, "No agent of host node-1"):
            presence.connector(HOST)

    def test_silent_agent_raises_agent_unavailable_with_time(self):
        fake_agent.report_agent(HOST)
        fake_agent.expire_heartbeat(HOST)
        for ask in (lambda: presence.connector(HOST), lambda: presence.check(HOST, ELSE)):
            with self.assertRaisesRegex(
                exception.AgentUnavailable, r"since 2\d\d\d-\d\d-\d\d .* UTC"
            ):
                ask()

    def test_silent_agent_of_fenced_host_raises_host_fenced(self):
        fake_agent.report_agent(HOST)
        fake_agent.expire_heartbeat(HOST)
        host_fences.fence(HOST, "burnt down", "u")
        with self.assertRaisesRegex(exception.HostFenced, "burnt down"):
            presence.connector(HOST)

    def test_host_of_two_machines_raises_agent_conflict(self):
        other = {"boot_id": "b2", "since": "now"}
        fake_agent.report_agent(HOST, boot_id="b1", conflict=other)
        with self.assertRaisesRegex(exception.AgentConflict, "boot b1, .* boot b2 since now"):
            presence.connector(HOST)
        with self.assertRaisesRegex(exception.AgentConflict, f"{ELSE}$"):
            presence.check(HOST, ELSE)

    def test_new_agent_raises_agent_unavailable(self):
        agent_store.create(HOST, fake_agent.KEY)
        with self.assertRaisesRegex(exception.AgentUnavailable, "has not reported yet"):
            presence.connector(HOST)

    def test_check_adds_alternative_to_error(self):
        with self.assertRaisesRegex(exception.AgentUnavailable, f"since it was removed.*{ELSE}$"):
            presence.check(HOST, ELSE)
        fake_agent.report_agent(HOST)
        fake_agent.expire_heartbeat(HOST)
        with self.assertRaisesRegex(exception.AgentUnavailable, f"{ELSE}$") as raised:
            presence.check(HOST, ELSE)
        self.assertEqual(HOST, raised.exception.details["host"])

    def test_host_without_connector_raises_conflict_with_reason(self):
        for values, why in (
            ({"error": "iscsid does not run.", "connector": None}, "iscsid does not run"),
            ({"connector": None}, "it has no connector"),
        ):
            fake_agent.report_agent(HOST, **values)
            with self.assertRaisesRegex(exception.Conflict, f"{HOST}.*{why}"):
                presence.connector(HOST)
            presence.check(HOST, ELSE)

    def test_host_with_error_and_connector_is_used(self):
        fake_agent.report_agent(HOST, error="1 of 8 places for work hang.")
        self.assertEqual(HOST, presence.connector(HOST)["host"])
