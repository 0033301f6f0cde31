# SPDX-License-Identifier: Apache-2.0
"""Tests of devices that were made beside an agent on its host: real agents, tgtd and devices.

They are made by ``attachd local-attach``, whose journal the agent shares.  Devices of os-brick
need a kernel with iSCSI.
"""

import json

from attachd.tests.fixtures import cli_commands, processes
from attachd.tests.functional.test_agents import AgentCase
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_for, wait_until

VERSION = {"OpenStack-API-Version": "volume 3.71, attachd 1.1"}


@full_only("agents")
class OtherDevicesTest(AgentCase):
    def setUp(self):
        super().setUp()
        self.environment = processes.environment(
            ATTACHD_HOST_STATE_PATH=f"{self.host.folder}",
            PATH=cli_commands.command_path(self),
            HOME=f"{self.host.top}",
            OS_AUTH_TYPE="none",
            OS_ENDPOINT=f"{self.deployment.url}/v3",
        )

    def local(self, name, *words, code=0):
        """Run ``attachd local-...`` on the host of the agent."""
        line = ["attachd", f"local-{name}", self.volume, *words, "--hostname", self.host.name]
        line += ["--connector-type", "user-space"]
        return processes.check_output(line, code, cwd=self.host.top, env=self.environment)

    def attach_by_hand(self):
        """Return the path of the device, and the id of the attachment."""
        initiator = f"iqn.2026-01.org.example:{self.host.name}"
        said = json.loads(self.local("attach", "--initiator", initiator, "-f", "json"))
        (entry,) = self.host.entries()
        return said["path"], entry.attachment_id

    def delete(self, attachment_id):
        return self.deployment.detach(attachment_id, **VERSION)

    def others(self):
        return self.deployment.agent(self.host.name)["other_devices"]

    def condition(self, attachment_id):
        answer = self.deployment.request("GET", f"/attachments/{attachment_id}", **VERSION)
        return answer.json()["attachment"]["condition"]

    def test_device_made_by_hand_is_reported_and_keeps_its_attachment(self):
        self.host.start()
        device, attachment = self.attach_by_hand()
        # While it is made, it is reported without a device.
        (found,) = wait_for(self.others, lambda seen: seen and seen[0]["path"], "its device")
        expected = {"volume_id": self.volume, "attachment_id": attachment, "path": device}
        self.assertEqual(expected, {name: found[name] for name in expected})
        self.assertEqual(2**30, found["size_bytes"])
        seen = wait_for(lambda: self.condition(attachment), lambda one: one["device_present"])
        self.assertEqual(("ok", 2**30), (seen["state"], seen["growth"]["device_bytes"]))
        answer = self.delete(attachment)
        self.assertEqual(409, answer.status_code, answer.text)
        for part in ("attachd.device_present", device, self.host.name):
            self.assertIn(part, answer.text)
        self.assertEqual("attached", self.status(attachment))
        self.assertTrue(self.exported())
        # The command removes the device, then deletes; the report is made in between.
        self.local("detach")
        self.assert_nothing_is_left()

    def test_deletion_at_once_after_the_device_is_gone_succeeds(self):
        """Deletes in the same moment, when the last report still has the device."""
        self.host.report_every(3600)
        self.host.start()
        for _ in range(5):
            self.attach_by_hand()
            self.local("detach")
            self.assert_nothing_is_left()

    def test_stopped_agent_delays_the_deletion_only(self):
        agent = self.host.start()
        _device, attachment = self.attach_by_hand()
        wait_until(self.others)
        agent.kill()
        answer = self.delete(attachment)
        self.assertEqual(200, answer.status_code, answer.text)
        self.assertFalse(self.exported())

    def test_agent_that_shall_not_report_others_is_not_asked(self):
        self.host.set("report_others = false")
        self.host.start()
        _device, attachment = self.attach_by_hand()
        self.assertIsNone(self.others())
        answer = self.delete(attachment)
        self.assertEqual(200, answer.status_code, answer.text)

    def test_device_of_the_agent_is_none_of_others(self):
        self.host.start()
        attachment = self.attach()
        wait_until(lambda: self.deployment.agent(self.host.name)["devices"])
        self.assertEqual([], self.others())
        self.detach(attachment)

    def test_audit_finds_what_was_left_behind(self):
        self.host.start()
        device, attachment = self.attach_by_hand()
        path = f"/attachments/{attachment}?force=true"
        self.assertEqual(200, self.deployment.request("DELETE", path, **VERSION).status_code)
        wait_until(self.others)
        done = self.audit()
        found = {item["kind"]: item["found"] for item in done if item["volume_id"] == self.volume}
        self.assertIn(device, found["stray-device"])

    def audit(self):
        configuration = f"--config-file={self.deployment.folder / 'attachd.conf'}"
        line = (processes.script("attachd-manage"), configuration, "audit", "--format", "json")
        done = processes.run(line, env=self.deployment.environment)
        self.assertTrue(done.stdout, done.stderr)
        (result,) = json.loads(done.stdout)
        return result["differences"]
