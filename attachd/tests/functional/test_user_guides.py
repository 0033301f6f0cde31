# SPDX-License-Identifier: Apache-2.0
"""Tests of the examples in doc/source/user with attachd-all-in-one, by curl and in Python.

They include the auditor role of doc/source/admin/policy.rst.
"""

import sys

import requests
import testtools

from attachd.tests.fixtures import guides, lifetime, processes, requirements, sdk
from attachd.tests.fixtures.deployments import AllInOne
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT

GUIDE = processes.ROOT / "doc/source/user/curl.rst"
EXAMPLE = processes.ROOT / "doc/source/user/sdk_attach_example.py"
RECIPES = processes.ROOT / "doc/source/admin/policy.rst"
ELSEWHERE = "http://127.0.0.1:8776"
CONFIGURATION = """\
[file]
file_loop_devices = never
[oslo_policy]
policy_file = {policy}
"""
PROJECT, ELSEWHERES = "a" * 32, "b" * 32


@full_only("guides")
class Case(testtools.TestCase):
    recipe = ""

    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        rules = (
            parse_block
            for parse_block in guides.parse_blocks(RECIPES)
            if parse_block.readers == self.recipe
        )
        policy = self.folder / "policy.yaml"
        policy.write_text("".join(rule.text for rule in rules if self.recipe))
        own = self.folder / "own.conf"
        own.write_text(CONFIGURATION.format(policy=policy))
        self.service = AllInOne(self, self.folder / "state", f"--config-file={own}")
        self.service.show_in_failures(self)

    def run_it(self, *words):
        """Run a command that complains of nothing, and return what it printed."""
        done = processes.run(
            words,
            cwd=self.folder,
            env=processes.environment(
                HOME=str(self.folder), OS_AUTH_TYPE="none", OS_ENDPOINT=f"{self.service.url}/v3"
            ),
            timeout=4 * TIMEOUT,
        )
        self.assertEqual((0, ""), (done.returncode, done.stderr), done.stdout)
        return done.stdout


class CurlTest(Case):
    def test_user_guide_curl_examples_print_the_documented_output(self):
        for tool in ("bash", "curl", "jq"):
            requirements.require_tool(self, tool)
        blocks = [
            parse_block
            for parse_block in guides.parse_blocks(GUIDE)
            if parse_block.language == "console" and not parse_block.readers
        ]
        self.assertGreater(len(blocks), 10)
        script, expected = ["set -eu"], []
        for number, block in enumerate(blocks):
            script += [*block.commands, f"echo '-- {number}'"]
            expected += [*printed(block), f"-- {number}"]
        said = self.run_it("bash", "-c", "\n".join(script).replace(ELSEWHERE, self.service.url))
        self.assertEqual(expected, said.splitlines())


class PythonTest(Case):
    def test_user_guide_openstacksdk_example_works(self):
        storage = sdk.block_storage(self, self.service.url)
        volume = storage.create_volume(name="data", size=1)
        storage.wait_for_status(volume, "available", interval=0.1, wait=TIMEOUT)
        said = self.run_it(sys.executable, "-W", "ignore", str(EXAMPLE), "data")
        self.assertEqual(
            ["connect by local", "the volume is in-use", "the volume is available"],
            said.splitlines(),
        )


class AuditorTest(Case):
    recipe = "auditor"

    def request(self, method, path, roles, project, **more):
        return requests.request(
            method,
            f"{self.service.url}/v3/{path}",
            headers={
                "X-Auth-Token": f"user:{project}:{roles}",
                "OpenStack-API-Version": "volume 3.71, attachd 1.0",
            },
            timeout=TIMEOUT,
            **more,
        )

    def test_auditor_role_of_the_guide_reads_all_projects_and_changes_nothing(self):
        wanted = {"volume": {"name": "data", "size": 1}}
        made = self.request("POST", "volumes", "member,reader", PROJECT, json=wanted)
        volume = made.json()["volume"]["id"]
        auditor = ("auditor", ELSEWHERES)
        listed = self.request("GET", "volumes?all_tenants=1", *auditor).json()["volumes"]
        self.assertEqual([volume], [item["id"] for item in listed])
        for path in (f"volumes/{volume}", "attachments?all_tenants=1", "events?all_tenants=1"):
            self.assertEqual(200, self.request("GET", path, *auditor).status_code, path)
        attachment = {"attachment": {"volume_uuid": volume}}
        for method, path, body in (
            ("POST", "volumes", wanted),
            ("POST", "attachments", attachment),
            ("DELETE", f"volumes/{volume}", None),
            ("GET", "os-services", None),
        ):
            answer = self.request(method, path, *auditor, json=body)
            self.assertEqual(403, answer.status_code, f"{path}: {answer.text}")
        stranger = ("member,reader", ELSEWHERES)
        self.assertEqual(404, self.request("GET", f"volumes/{volume}", *stranger).status_code)


def printed(block):
    """Return the lines of a block that are output."""
    typed = "\n".join(block.commands).splitlines()
    lines = [line.removeprefix("$ ").removeprefix("> ") for line in block.text.splitlines()]
    return [line for line in lines if line not in typed]
