# SPDX-License-Identifier: Apache-2.0
"""A test case for the commands of a host, against attachd-all-in-one.

The host is this machine with a host name and a directory of its own.
"""

import json
import os
from pathlib import Path
import subprocess
import uuid

import testtools

from attachd.tests.fixtures import cli_commands, lifetime, processes, requirements, sdk
from attachd.tests.fixtures.deployments import AllInOne
from attachd.tests.wait import TIMEOUT, wait_until

PROJECT = "0" * 32
_DEVICES = """\
[file]
file_loop_devices = always
file_devices_dir = {folder}/devices
"""


class HostCliCase(testtools.TestCase):
    """Attaches for real: volumes are loop devices."""

    configuration = _DEVICES

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        requirements.share_mounts(self)
        requirements.require_device(self, "/dev/loop-control")
        self.folder = lifetime.temp_dir(self)
        self.name = f"host-{uuid.uuid4().hex[:8]}"
        own = self.folder / "own.conf"
        own.write_text(self.configuration.format(folder=self.folder))
        self.service = AllInOne(self, self.folder / "state", f"--config-file={own}")
        self.service.show_in_failures(self)
        self.url = f"{self.service.url}/v3"
        self.storage = sdk.block_storage(self, self.service.url)
        self.environment = processes.environment(
            ATTACHD_HOST_STATE_PATH=f"{self.folder / 'host'}",
            HOME=f"{self.folder}",
            PATH=cli_commands.command_path(self),
            OS_AUTH_TYPE="none",
            OS_ENDPOINT=self.url,
            COLUMNS="200",
        )
        # Before the service ends, which could not take its loop devices away otherwise.
        self.addCleanup(self._leave)

    def run_command(self, *words, code=0, **more):
        """Run a command; returns what it printed, or with another code what it complained of."""
        environment = {**self.environment, **more}
        return processes.check_output(words, code, cwd=self.folder, env=environment)

    def attachd(self, *words, code=0, **more):
        """Run ``attachd``, whose host has a name of its own."""
        return self.run_command("attachd", *words, code=code, **more)

    def local(self, name, *words, code=0):
        """Run ``attachd local-...`` as the host of this test."""
        return self.attachd(f"local-{name}", *words, "--hostname", self.name, code=code)

    def cinder(self, *words, code=0, **more):
        """Run ``cinder`` in a process of its own, which looks for extensions."""
        settings = {**self.noauth, **more}
        return self.run_command(processes.script("cinder"), *words, code=code, **settings)

    @property
    def noauth(self):
        """What all-in-one prints for cinder."""
        return {
            "OS_AUTH_TYPE": "noauth",
            "OS_USER_ID": "admin",
            "OS_PROJECT_ID": PROJECT,
            "CINDER_ENDPOINT": self.url,
            "OS_VOLUME_API_VERSION": "3.71",
        }

    def volume(self, name="data", **more):
        """Make a volume, of 1 GiB by default, and wait for it; returns its id."""
        made = self.storage.create_volume(**{"name": name, "size": 1, **more})
        self.storage.wait_for_status(made, "available", ["error"], interval=0.1, wait=TIMEOUT)
        return made.id

    def create_multiattach_volume(self):
        """Make a volume that can be attached several times; returns its id."""
        specs = {"multiattach": "<is> True"}
        kind = self.storage.create_type(name=f"shared-{self.name}", extra_specs=specs)
        return self.volume(volume_type=kind.id)

    def attachments(self, volume_id):
        """Return the attachments of a volume as the API has them, by their id."""
        answer = self.storage.get(
            f"/attachments/detail?volume_id={volume_id}", microversion="3.44"
        )
        return {attachment["id"]: attachment for attachment in answer.json()["attachments"]}

    def status(self, volume_id):
        return self.storage.get_volume(volume_id).status

    def rows(self, text):
        """Read a list that was printed with ``-f json``."""
        return json.loads(text)

    def mounted(self, folder):
        return os.path.ismount(folder)

    def _leave(self):
        """Unmount and delete what a failed test has left."""
        for line in Path("/proc/mounts").read_text().splitlines():
            target = line.split()[1]
            if target.startswith(f"{self.folder}/"):
                subprocess.run(["umount", target], check=False)
        found = self.storage.get("/attachments", microversion="3.44").json()["attachments"]
        for item in found:
            self.storage.delete(f"/attachments/{item['id']}", microversion="3.44")
        wait_until(lambda: not self._left(), self._left)

    def _left(self):
        return self.storage.get("/attachments", microversion="3.44").json()["attachments"]
