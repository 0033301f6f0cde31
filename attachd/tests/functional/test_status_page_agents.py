# SPDX-License-Identifier: Apache-2.0
"""Tests of the status page in a browser with agents, tgtd and RabbitMQ: what an operator does.

The figures of doc/source/admin/status-page.rst are what the last class prints with
``ATTACHD_TEST_FIGURES=1``.
"""

import json
import os
import sys
import time
import unittest

from attachd.tests import wait
from attachd.tests.fixtures import agent_deployment, browser, processes
from attachd.tests.fixtures.agent_deployment import AgentHost
from attachd.tests.fixtures.browser import ENTER
from attachd.tests.selection import full_only

SETTINGS = "down_time = 4\n[ui]\nenabled = true"
"""The API counts an agent as down after a few of its reports."""


class AgentPageCase(unittest.TestCase):
    """Two hosts with agents, one with a volume, and a browser.

    :ivar volume: the id of the volume, which is called orders-db
    """

    def setUp(self):
        super().setUp()
        self.deployment = agent_deployment.shared(self)
        self.enterContext(self.deployment.another_api(self, SETTINGS))
        self.old, self.new = (AgentHost(self.deployment, self) for _number in range(2))
        self.agents = [host.start() for host in (self.old, self.new)]
        self.volume = self.deployment.create_volume()
        self.deployment.request("PUT", f"/volumes/{self.volume}", {"volume": {"name": self.name}})
        answer = self.deployment.attach(self.volume, self.old.name)
        self.assertEqual(200, answer.status_code, answer.text)
        self.attachment = answer.json()["attachment"]["id"]
        self.addCleanup(self.delete_all)

    @property
    def name(self):
        return f"orders-db-{self.old.name}"

    def delete_all(self):
        """Delete what is attached still; the hosts are gone then."""
        path = f"/attachments?volume_id={self.volume}"
        for item in self.deployment.request("GET", path).json()["attachments"]:
            self.deployment.request("DELETE", f"/attachments/{item['id']}?force=true")

    def lose(self):
        """Kill the agent of the host with the volume; its device stays, as if it hangs."""
        self.agents[0].kill()
        wait.wait_until(lambda: self.deployment.agent(self.old.name)["state"] == "down")

    def on_new_host(self):
        path = f"/attachments/detail?volume_id={self.volume}"
        (found,) = self.deployment.request("GET", path).json()["attachments"]
        self.assertEqual((self.new.name, "attached"), (found["agent"], found["status"]))


@full_only("browser")
class DrainTest(AgentPageCase):
    def test_drain_by_agent_shows_progress_and_detaches(self):
        page = browser.Browser(self)
        page.open(f"{self.deployment.url}/ui/#/hosts/{self.old.name}")
        page.wait_for(self.name, "main")
        page.wait_for("Lease", "main")
        page.click("Drain…", "main")
        page.type("reason", "new mainboard")
        page.check("detach", "all")
        page.click("Drain", "dialog")
        page.wait_for("1 detached", "dialog")
        page.click("Close", "dialog")
        page.wait_for("1 of 1 attachment detached", "main")
        self.assertEqual({}, self.deployment.attachment(self.attachment))
        self.assertEqual([], self.old.entries())


@full_only("browser")
class OperatorTest(AgentPageCase):
    """Which host has a volume, what is wrong now, and a failed host; by the page and by commands.

    Each step is a click, a field that is filled in, or a command.
    """

    def setUp(self):
        super().setUp()
        self.steps = 0
        self.began = time.monotonic()

    def step(self, act, *arguments):
        self.steps += 1
        return act(*arguments)

    def report(self, task, tool):
        """Print the number of steps and the seconds since the last report."""
        if os.environ.get("ATTACHD_TEST_FIGURES"):
            seconds = time.monotonic() - self.began
            sys.stderr.write(f"{tool}: {task}: {self.steps} steps, {seconds:.1f} s\n")
        self.steps, self.began = 0, time.monotonic()

    def test_page_alone_suffices(self):
        page = browser.Browser(self)
        page.open(f"{self.deployment.url}/ui/")
        page.wait_for("Live", ".live")
        self.report("open", "page")
        self.step(page.type, "text", self.name)
        self.step(page.press, ENTER)
        page.wait_for(self.old.name, "main")
        self.step(page.click, self.name, "main")
        page.wait_for(self.old.name, "main table")
        page.wait_for("Age", "main table")
        self.report("which host has it, since when", "page")
        self.lose()
        self.began = time.monotonic()
        self.step(page.click, "Now", "nav")
        page.wait_for(self.old.name, ".problems")
        page.wait_for("down", ".problems")
        self.report("what is wrong now", "page")
        self.step(page.click, self.old.name, "main")
        self.step(page.click, "Fence…", "main")
        page.wait_for("1 volume", "dialog")
        self.step(page.type, "reason", "no heartbeat")
        self.step(page.type, "phrase", self.old.name)
        self.step(page.click, "Fence", "dialog")
        page.wait_for("proved", "dialog")
        page.wait_for("Done", "dialog")
        self.step(page.click, "Close", "dialog")
        self.step(page.type, "text", self.name)
        self.step(page.press, ENTER)
        self.step(page.click, self.name, "main")
        page.wait_for("It is not attached.", "main")
        self.step(page.click, "Attach…", "main")
        self.step(page.type, "host", self.new.name)
        self.step(page.click, "Attach", "dialog")
        page.wait_for("has it as", "dialog")
        self.report("fence and attach elsewhere", "page")
        self.on_new_host()

    def test_command_line_alone_suffices(self):
        cloud = {"OS_AUTH_TYPE": "none", "OS_ENDPOINT": f"{self.deployment.url}/v3"}
        environment = processes.environment(HOME=f"{self.old.top}", **cloud)

        def attachd(*words):
            command = [processes.script("attachd"), *words]
            done = processes.run(command, env=environment, timeout=6 * wait.TIMEOUT)
            self.assertEqual(0, done.returncode, done.stderr)
            return done.stdout

        listed = self.step(attachd, "attachment-list", "--all-projects")
        (line,) = [text for text in listed.splitlines() if self.name in text]
        self.assertIn(self.old.name, line)
        self.assertRegex(line, r"\| \d+m?\d*s? +\|\Z")
        self.report("which host has it, since when", "commands")
        self.lose()
        self.began = time.monotonic()
        self.assertRegex(self.step(attachd, "agent-list"), rf"{self.old.name} +\| down")
        self.report("what is wrong now", "commands")
        proof = self.step(attachd, "host-fence", self.old.name, "--reason", "no heartbeat")
        self.assertIn("proved", proof)
        made = self.step(
            attachd, "attachment-create", self.name, "--on", self.new.name, "-f", "json"
        )
        self.assertTrue(json.loads(made)["device"])
        self.report("fence and attach elsewhere", "commands")
        self.on_new_host()
