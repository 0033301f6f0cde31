# SPDX-License-Identifier: Apache-2.0
"""Tests of the command fence_attachd against attachd-all-in-one, as cluster managers call it."""

import subprocess
from xml.etree import ElementTree

import testtools

from attachd.tests.fixtures import http_client, processes
from attachd.tests.fixtures.deployments import AllInOne, connector_body
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT

HOST = "node1"
_CONFIGURATION = """
[DEFAULT]
enabled_backends = fake

[fake]
driver = fake
"""


@full_only("clients")
class FenceAgentTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.service = AllInOne.configured(self, _CONFIGURATION)
        self.service.show_in_failures(self)
        self.api = http_client.Client(f"{self.service.url}/v3")
        self.environment = processes.environment(
            OS_AUTH_TYPE="none", OS_ENDPOINT=f"{self.service.url}/v3"
        )

    def run_agent(self, *words, **lines):
        """Run the command with options, or with lines at its input."""
        return subprocess.run(
            [processes.script("fence_attachd"), *words],
            input="".join(f"{name}={value}\n" for name, value in lines.items()),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )

    def assert_exit(self, code, **lines):
        done = self.run_agent(**lines)
        self.assertEqual(code, done.returncode, done)
        return done

    def attach(self):
        volume = self.api.create_volume()
        body = {"attachment": {"volume_uuid": volume, **connector_body(HOST)["attachment"]}}
        return self.api.request("POST", "/attachments", body)

    def test_host_is_off_until_it_is_on_again(self):
        self.assertEqual(200, self.attach().status)
        self.assert_exit(0, action="status", port=HOST)
        self.assert_exit(0, action="off", port=HOST, unknown="left to others")
        self.assert_exit(2, action="status", nodename=HOST)
        self.assert_exit(0, action="off", plug=HOST)
        self.assertEqual(f"{HOST},\n", self.assert_exit(0, option="list").stdout)
        self.assertEqual(409, self.attach().status)
        self.assert_exit(0, action="on", plug=HOST)
        self.assert_exit(0, action="status", plug=HOST)
        self.assertEqual(200, self.attach().status)
        self.assertEqual(0, self.run_agent("-o", "off", "-n", HOST).returncode)

    def test_errors_name_the_problem(self):
        self.assertIn("Check its name", self.assert_exit(1, action="off", plug="nowhere").stderr)
        self.assertIn("plug", self.assert_exit(1, action="off").stderr)
        self.assertIn("no action 'reboot'", self.assert_exit(1, action="reboot").stderr)
        for action in ("monitor", "validate-all"):
            self.assert_exit(0, action=action)
        self.assert_exit(0, action="on", plug="nowhere")
        unknown = self.assert_exit(1, action="status", plug="nowhere").stderr
        self.assertIn("Host nowhere could not be found", unknown)
        self.environment["OS_ENDPOINT"] = "http://127.0.0.1:1/v3"
        self.assertIn("fence_attachd: ", self.assert_exit(1, action="monitor").stderr)

    def test_metadata_describes_parameters_and_actions(self):
        root = ElementTree.fromstring(self.assert_exit(0, action="metadata").stdout)
        self.assertEqual("fence_attachd", root.get("name"))
        names = {item.get("name") for item in root.iterfind("parameters/parameter")}
        self.assertEqual({"action", "plug", "cloud", "reason", "lift", "power_timeout"}, names)
        actions = [item.get("name") for item in root.iterfind("actions/action")]
        expected = ["off", "on", "status", "monitor", "list", "validate-all", "metadata"]
        self.assertEqual(expected, actions)
