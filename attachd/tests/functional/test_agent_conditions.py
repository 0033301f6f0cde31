# SPDX-License-Identifier: Apache-2.0
"""Tests of the condition of attachments with agents as processes, tgtd and real sessions."""

import datetime
import os
import signal

import sqlalchemy as sa

from attachd.db import models
from attachd.drivers.tgt import parser
from attachd.tests.fixtures import initiators
from attachd.tests.functional.test_agents import AgentCase
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_for

HEADERS = {"OpenStack-API-Version": "volume 3.71, attachd 1.1"}


@full_only("agents")
class AgentConditionsTest(AgentCase):
    def condition(self, attachment):
        answer = self.deployment.request("GET", f"/attachments/{attachment}", **HEADERS)
        return answer.json()["attachment"]["condition"]

    def wait_for_condition(self, attachment, state):
        return wait_for(
            lambda: self.condition(attachment), lambda found: found["state"] == state, state
        )

    def changes(self, attachment):
        answer = self.deployment.request("GET", f"/attachments/{attachment}/timeline", **HEADERS)
        events = [
            item for item in answer.json()["timeline"] if item["type"] == "condition_changed"
        ]
        return [item["condition"]["state"] for item in events]

    def age(self, attachment):
        """Have it attached an hour ago: the first reports say nothing of a missing device."""
        table = models.attachments
        moved = models.now() - datetime.timedelta(hours=1)
        with sa.create_engine(self.deployment.database).begin() as connection:
            connection.execute(
                sa.update(table)
                .where(table.c.id == attachment)
                .values(attached_at=moved, updated_at=table.c.updated_at)
            )

    def test_device_whose_daemon_is_killed_fails_and_recovers(self):
        self.host.start()
        attachment = self.attach()
        found = self.wait_for_condition(attachment, "ok")
        self.assertEqual((True, True), (found["device_present"], found["session"]))
        self.age(attachment)
        # While it is open, the agent cannot make it again.
        with self.host.device(attachment).open("rb"):
            for pid in self.host.daemons():
                os.kill(pid, signal.SIGKILL)
            found = self.wait_for_condition(attachment, "failed")
            self.assertFalse(found["device_present"])
            self.assertIn(f"Host {self.host.name} has no device", found["message"])
        self.wait_for_condition(attachment, "ok")
        # The session may be missed before the agent has reported.
        self.assertIn(self.changes(attachment), (["failed", "ok"], ["degraded", "failed", "ok"]))
        self.detach(attachment)

    def test_session_that_is_cut_at_the_target_degrades_until_it_is_back(self):
        self.host.start()
        attachment = self.attach()
        self.wait_for_condition(attachment, "ok")
        target, initiator = self.target(), f"iqn.2026-01.org.example:{self.host.name}"
        access = ("--tid", f"{target}", "--mode", "target", "--initiator-name", initiator)
        self.deployment.tgtd.adm("--op", "unbind", *access)
        self.cut(target)
        found = self.wait_for_condition(attachment, "degraded")
        self.assertEqual((True, False), (found["device_present"], found["session"]))
        self.assertIn("lists no session", found["message"])
        self.deployment.tgtd.adm("--op", "bind", *access)
        self.wait_for_condition(attachment, "ok")
        self.assertEqual(["degraded", "ok"], self.changes(attachment))
        self.detach(attachment)

    def test_session_of_host_without_agent_is_its_condition(self):
        host = self.useFixture(initiators.IscsiHost(self, "compute-1"))
        fields = {"volume_uuid": self.volume, "connector": host.connector}
        answer = self.deployment.request("POST", "/attachments", {"attachment": fields})
        self.assertEqual(200, answer.status_code, answer.text)
        made = answer.json()["attachment"]
        process = host.log_in({"data": made["connection_info"]})
        path = f"/attachments/{made['id']}/action"
        self.assertEqual(
            204, self.deployment.request("POST", path, {"os-complete": None}).status_code
        )
        found = self.wait_for_condition(made["id"], "ok")
        self.assertEqual((None, True), (found["device_present"], found["session"]))
        process.kill()
        found = self.wait_for_condition(made["id"], "unknown")
        self.assertFalse(found["session"])
        self.assertEqual(["unknown"], self.changes(made["id"]))
        self.detach(made["id"])

    def target(self):
        (found,) = (item for item in self.deployment.tgtd.targets() if self.volume in item.name)
        return found.tid

    def cut(self, target):
        """End all sessions of a target."""
        of_target = ("--mode", "conn", "--tid", f"{target}")
        for item in parser.connections(self.deployment.tgtd.adm("--op", "show", *of_target)):
            connection = ("--sid", f"{item.sid}", "--cid", f"{item.cid}")
            self.deployment.tgtd.adm("--op", "delete", *of_target, *connection)
