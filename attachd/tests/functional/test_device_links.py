# SPDX-License-Identifier: Apache-2.0
"""The stable names of real devices, by the commands of a host and by its agent."""

import json
import subprocess
import uuid

from attachd.agent import device_links
from attachd.tests.fixtures import requirements
from attachd.tests.functional.host_cli_case import HostCliCase
from attachd.tests.functional.test_agents import BYTES, AgentCase
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until


def name(volume, mode="rw"):
    return device_links.path(volume, mode)


@full_only("hosts")
class LocalTest(HostCliCase):
    """Volumes that are loop devices."""

    def attach(self, *words):
        return json.loads(self.local("attach", "data", *words, "-f", "json"))

    def test_name_exists_while_the_volume_is_attached(self):
        volume = self.volume()
        shown = self.attach()
        self.assertEqual(f"{name(volume)}", shown["link"])
        self.assertTrue(name(volume).samefile(shown["path"]))
        (row,) = self.rows(self.local("list", "--long", "-f", "json"))
        self.assertEqual(shown["link"], row["Link"])
        mountpoint = self.folder / "mnt"
        self.local("detach", "data")
        self.assertFalse(name(volume).is_symlink())
        self.attach("--mkfs", "xfs", "--assume-empty", "--mountpoint", f"{mountpoint}")
        self.local("detach", "data")
        self.assertEqual(f"{name(volume, 'ro')}", self.attach("--mode", "ro")["link"])
        self.assertFalse(name(volume).is_symlink())
        self.local("detach", "data")
        self.assertFalse(name(volume, "ro").is_symlink())


@full_only("agents")
class AgentTest(AgentCase):
    """Volumes over iSCSI with QEMU's initiator."""

    def setUp(self):
        super().setUp()
        requirements.require_root(self)

    def test_name_leads_to_the_device_also_after_the_path_has_changed(self):
        self.host.start()
        attachment = self.attach()
        self.write(attachment)
        link = name(self.volume)
        self.assertTrue(link.samefile(self.host.device(attachment)))
        link.unlink()  # /dev is new after a reboot.
        self.host.reboot()
        self.host.start()
        wait_until(link.exists)
        self.assertTrue(link.samefile(self.host.device(attachment)))
        self.assertEqual(BYTES, self.read(attachment))
        self.detach(attachment)
        self.assertFalse(link.is_symlink())

    def test_agent_removes_a_name_whose_path_is_another_disk(self):
        volume, loop = f"{uuid.uuid4()}", self.attach_loop()
        device_links.make(volume, "rw", loop)
        self.addCleanup(name(volume).unlink, missing_ok=True)
        self.host.start()
        self.detach(self.attach())
        self.assertTrue(name(volume).samefile(loop))
        subprocess.run(["losetup", "--detach", loop], check=True)
        self.attach_loop(loop)
        wait_until(lambda: not name(volume).is_symlink())

    def attach_loop(self, path=None):
        """Return the path of a loop device over a file of its own."""
        file = self.host.top / uuid.uuid4().hex
        with file.open("wb") as stream:
            stream.truncate(2**20)
        command = ["losetup", "--show", path or "--find", f"{file}"]
        made = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        self.addCleanup(subprocess.run, ["losetup", "--detach", made], check=False)
        return made
