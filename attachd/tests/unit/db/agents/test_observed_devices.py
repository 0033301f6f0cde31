# SPDX-License-Identifier: Apache-2.0
"""Which host a device that others have made belongs to, and which attachment."""

from typing import Any
import unittest

from attachd import host_identity
from attachd.db.agents import agent_store, observed_devices
from attachd.db.agents.observed_devices import AgentIndex
from attachd.db.engine import session
from attachd.host_identity import HostIdentity
from attachd.tests.fixtures import databases, db_rows, fake_agent

HOST = "compute-1"
IQN = "iqn.2026-01.org.example:"


def identity(host, initiator=None):
    connector = {"host": host, **({"initiator": f"{IQN}{initiator}"} if initiator else {})}
    return host_identity.of_connector(connector)


def device(**values):
    fields = {"volume_id": "v", "attachment_id": None, "target": "t"}
    return {**fields, "path": "/dev/sdb", "size_bytes": 2**30, **values}


def row(*devices, **values):
    fields = {"host": HOST, "initiators": None, "connector_type": "kernel", "devices": []}
    stored: Any = {**fields, "observed": {"devices": [*devices], "asked": []}, **values}
    return stored


class AgentTest(databases.DatabaseCase):
    """The agent of the host of an attachment."""

    def setUp(self):
        super().setUp()
        for host in (HOST, "compute-2", "compute-3"):
            observed = None if host == "compute-3" else {"devices": [], "asked": []}
            fake_agent.report_agent(host, observed=observed)

    def found(self, known):
        """Return the host that both ways of reading find."""
        rows = [row for row in agent_store.list_all() if row["observed"] is not None]
        by_index = AgentIndex(rows).find(known)
        agent = observed_devices.find_agent(known)
        self.assertEqual(by_index, agent)
        return agent and agent["host"]

    def test_agent_is_found_by_name_or_initiator_of_the_host(self):
        for known in (
            identity(HOST, HOST),
            identity(HOST),
            identity("Compute-1.example.org", HOST),
            identity("Compute-1.example.org"),
            identity("another-name", HOST),
        ):
            self.assertEqual(HOST, self.found(known), known)

    def test_agent_of_another_host_is_not_found(self):
        for known in (
            identity("compute-9"),
            identity("compute-9", "compute-9"),
            identity("compute-1.example.org", "compute-9"),
            HostIdentity(""),
        ):
            self.assertIsNone(self.found(known), known)

    def test_host_that_may_be_one_of_several_has_no_agent(self):
        self.assertIsNone(self.found(identity(HOST, "compute-2")))

    def test_agent_that_does_not_report_others_is_not_found(self):
        self.assertIsNone(self.found(identity("compute-3", "compute-3")))

    def test_agent_is_found_by_one_statement(self):
        before = session.counters().statements
        observed_devices.find_agent(identity(HOST, HOST))
        self.assertEqual(1, session.counters().statements - before)

    def test_agents_that_report_others_are_known(self):
        self.assertTrue(observed_devices.has_agents())
        for host in (HOST, "compute-2"):
            db_rows.change_agent(host, observed=None)
        self.assertFalse(observed_devices.has_agents())

    def test_row_has_no_digest_and_says_whether_the_agent_is_alive(self):
        agent = observed_devices.find_agent(identity(HOST))
        self.assertTrue(agent["alive"])
        self.assertNotIn("key_digest", agent)

    def test_volumes_of_this_service_are_known(self):
        volume_id = db_rows.add_volume()["id"]
        for ids, expected in (([], False), (["v"], False), (["v", volume_id], True)):
            self.assertIs(expected, observed_devices.has_known_volume(ids))


class DeviceTest(unittest.TestCase):
    """The device of an attachment in a report."""

    def find(self, *devices):
        return observed_devices.find_device(row(*devices), "v", {"a"})

    def test_device_of_the_volume_is_that_of_its_attachment(self):
        expected = device(volume_id="v")
        self.assertEqual(expected, self.find(device(volume_id="w"), expected))
        self.assertIsNone(self.find(device(volume_id="w")))

    def test_device_of_another_attachment_is_not_found(self):
        self.assertIsNone(self.find(device(attachment_id="b")))
        self.assertIsNotNone(self.find(device(attachment_id="b"), device(attachment_id="a")))

    def test_session_with_a_disk_precedes_one_without(self):
        self.assertEqual("/dev/sdb", self.find(device(path=None), device())["path"])
        self.assertIsNone(self.find(device(path=None))["path"])

    def test_report_without_knowledge_has_no_devices(self):
        self.assertIsNone(observed_devices.find_device(row(observed=None), "v", {"a"}))

    def test_absence_is_known_only_from_a_kernel_without_a_device_of_the_agent(self):
        own = [{"volume_id": "v"}]
        for values, expected in (
            ({}, True),
            ({"observed": None}, False),
            ({"connector_type": "user-space"}, False),
            ({"devices": own}, False),
            ({"devices": None}, True),
        ):
            self.assertIs(expected, observed_devices.shows_all(row(**values), "v"), values)
