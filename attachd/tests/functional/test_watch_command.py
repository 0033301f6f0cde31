# SPDX-License-Identifier: Apache-2.0
"""Tests of the watch command while the API is down and up again."""

import json
import signal
import uuid

import testtools

from attachd.tests.fixtures import cli_commands, lifetime, processes, sdk, tcp_proxy
from attachd.tests.fixtures.deployments import AllInOne
from attachd.tests.fixtures.processes import Process
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT

LIFE = ["reserved", "connected", "attached", "deleted"]


@full_only("deployments")
class WatchingTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        own = self.folder / "own.conf"
        own.write_text("[file]\nfile_loop_devices = never\n")
        service = AllInOne(self, self.folder / "state", f"--config-file={own}")
        service.show_in_failures(self)
        self.proxy, url = tcp_proxy.in_front_of(self, service.url)
        self.watching = self.environment(url)
        self.typing = {**self.environment(service.url), "PATH": cli_commands.command_path(self)}
        self.storage = sdk.block_storage(self, service.url)
        made = self.storage.create_volume(name="data", size=1)
        self.storage.wait_for_status(made, "available", ["error"], interval=0.1, wait=TIMEOUT)

    def environment(self, url):
        return processes.environment(
            HOME=f"{self.folder}", OS_AUTH_TYPE="none", OS_ENDPOINT=f"{url}/v3"
        )

    def type_in(self, *words, code=0):
        """Run a command; returns what it printed, or with another code what it complained of."""
        return processes.check_output(words, code, cwd=self.folder, env=self.typing)

    def reserve(self):
        words = ("attachment-create", "data", "-f", "value", "-c", "attachment_id")
        return self.type_in("attachd", *words).strip()

    def watch(self, *words):
        command = (processes.script("attachd"), "attachment-watch", *words)
        watcher = Process(self, *command, env=self.watching, cwd=self.folder)
        watcher.show_in_failures(self)
        return watcher

    def test_watch_command_through_api_outage_prints_all_events(self):
        attachment = self.reserve()
        watcher = self.watch("--attachment", attachment, "--since", "0", "--until", "deleted")
        watcher.wait_for(" reserved ")
        self.proxy.refuse()
        watcher.wait_for("Trying again")
        self.type_in("attachd", "attachment-update", attachment, "--host", "node1")
        self.proxy.pass_on()
        watcher.wait_for(" connected ")
        self.type_in("attachd", "attachment-complete", attachment)
        said = self.type_in(
            *("openstack", "volume", "attachment", "watch", "--attachment", attachment),
            *("--until", "attached", "-f", "json"),
        )
        self.assertEqual("attached", json.loads(said)["type"])
        self.type_in("attachd", "attachment-delete", attachment)
        self.assertEqual(0, watcher.wait())
        # A message about the outage may have the id in a URL.
        events = [
            line for line in watcher.output.splitlines() if f" attachment={attachment}" in line
        ]
        self.assertEqual(LIFE, [event.split()[2] for event in events])

        words = ("timeline", attachment, "-f", "json")
        rows = json.loads(self.type_in("openstack", "volume", "attachment", *words))
        self.assertEqual(LIFE, [row["Type"] for row in rows])
        self.assertEqual("grant", rows[1]["Steps"][-1]["name"])
        # Without a format, columns that a narrow terminal has no room for are left out.
        words = ("attachment-timeline", attachment, "--long", "-f", "json")
        self.assertIn("Process", json.loads(self.type_in("attachd", *words))[0])

    def test_watch_command_exits_as_documented(self):
        attachment = self.reserve()
        self.watching["OS_ENDPOINT"] += f"/{uuid.uuid4().hex}"  # another project
        watcher = self.watch("--since", "0", "--all-projects", "--volume", "data")
        watcher.wait_for(attachment)
        self.assertEqual(130, watcher.end(signal.SIGINT))
        self.assertEqual(1, len(watcher.output.splitlines()), watcher.output)
        watch = ("attachd", "attachment-watch", "--attachment", attachment)
        said = self.type_in(*watch, "--until", "attached", "--within", "0.1", code=1)
        self.assertEqual("Not attached within 0.1 seconds.\n", said)
        said = self.type_in(*watch, "--since", "4711", code=3)
        self.assertRegex(said, r"\AWhat has happened since revision 4711 .* revision \d+\.\n\Z")
        for unknown in (("--attachment", "a1"), ("--volume", "nothing of this name")):
            said = self.type_in("attachd", "attachment-watch", *unknown, code=1)
            self.assertEqual(1, len(said.splitlines()), said)
