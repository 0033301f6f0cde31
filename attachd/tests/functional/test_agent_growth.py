# SPDX-License-Identifier: Apache-2.0
"""File systems that grow on a host with an agent: local, or with QEMU's clients."""

import subprocess

from attachd.agent.mount import mounts
from attachd.tests.fixtures import agent_deployment, processes, requirements
from attachd.tests.functional.test_agents import GIB, AgentCase
from attachd.tests.functional.test_growth import may_grow_ext4
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_for

HEADERS = {"OpenStack-API-Version": "volume 3.71, attachd 1.1"}


class GrowthCase(AgentCase):
    """A volume with a file system that the user of the host has mounted."""

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        self.mountpoint = self.host.top / "mnt"

    def mounted(self, kind, settings=""):
        """Return an attachment whose device is mounted, with a file.

        :param kind: ext4 or xfs
        """
        make = requirements.require_tool(self, f"mkfs.{kind}")
        self.host.set(settings)
        self.host.start()
        attachment = self.attach()
        device = f"{self.host.device(attachment)}"
        processes.check_output((make, "-q", device))
        self.addCleanup(
            subprocess.run, ["umount", self.mountpoint], check=False, capture_output=True
        )
        self.mount(attachment)
        (self.mountpoint / "file").write_text("data")
        self.wait_for_growth(attachment, GIB, kind, GIB)
        return attachment

    def mount(self, attachment):
        mounts.mount(f"{self.host.device(attachment)}", f"{self.mountpoint}", mode="rw")

    def extend(self, size):
        answer = self.deployment.request(
            "POST", f"/volumes/{self.volume}/action", {"os-extend": {"new_size": size}}
        )
        self.assertEqual(202, answer.status_code, answer.text)

    def wait_for_growth(self, attachment, device_bytes, kind, filesystem_bytes):
        expected = (device_bytes, kind, filesystem_bytes)
        names = ("device_bytes", "filesystem", "filesystem_bytes")
        return wait_for(
            lambda: self.growth(attachment),
            lambda found: tuple(map(found.get, names)) == expected,
            expected,
        )

    def growth(self, attachment):
        """Return what the agent has reported; {} if nothing."""
        answer = self.deployment.request("GET", f"/attachments/{attachment}", **HEADERS)
        return answer.json()["attachment"]["condition"]["growth"] or {}

    def leave(self, attachment):
        """Check the file, unmount and detach."""
        self.assertEqual("data", (self.mountpoint / "file").read_text())
        mounts.unmount(f"{self.mountpoint}")
        self.detach(attachment)


@full_only("agents")
class AgentGrowthTest(GrowthCase):
    """A volume of tgtd."""

    def changes(self, attachment):
        answer = self.deployment.request("GET", f"/attachments/{attachment}/timeline", **HEADERS)
        return [
            (item["condition"]["growth"]["device_bytes"] // GIB,
             item["condition"]["growth"]["filesystem_bytes"] // GIB)
            for item in answer.json()["timeline"] if item["type"] == "condition_changed"
        ]  # fmt: skip

    def test_file_system_is_reported_and_grows_when_configured(self):
        attachment = self.mounted("xfs")
        self.extend(2)
        growth = self.wait_for_growth(attachment, 2 * GIB, "xfs", GIB)
        self.assertEqual("xfs has 1 of 2 GiB", growth["message"])
        self.host.agents[-1].kill()
        self.host.set("grow_filesystems = xfs")
        self.host.start()
        # Another agent than the one that has let the device grow.
        self.extend(3)
        self.assertIsNone(self.wait_for_growth(attachment, 3 * GIB, "xfs", 3 * GIB)["message"])
        # Others are about sessions.
        self.assertIn((2, 1), self.changes(attachment))
        self.assertEqual((3, 3), self.changes(attachment)[-1])
        self.leave(attachment)


@full_only("agents")
class FileGrowthTest(GrowthCase):
    """A volume of ``file``, whose loop device the manager lets grow."""

    def deploy(self):
        return agent_deployment.FileDeployment(self)

    def test_xfs_grows_with_its_volume(self):
        attachment = self.mounted("xfs", "grow_filesystems = ext4, xfs")
        self.extend(2)
        self.wait_for_growth(attachment, 2 * GIB, "xfs", 2 * GIB)
        self.leave(attachment)

    def test_ext4_grows_with_its_volume_or_says_why_not(self):
        attachment = self.mounted("ext4", "grow_filesystems = ext4, xfs")
        self.extend(2)
        if may_grow_ext4():
            self.wait_for_growth(attachment, 2 * GIB, "ext4", 2 * GIB)
        else:
            growth = self.wait_for_growth(attachment, 2 * GIB, "ext4", GIB)
            self.assertIn("CAP_SYS_RESOURCE", growth["message"])
        self.leave(attachment)


@full_only("storage")
class ImageGrowthTest(GrowthCase):
    """An image of Ceph, of which QEMU's client shows the size that it had when it was opened."""

    def deploy(self):
        return agent_deployment.RbdDeployment(self)

    def test_xfs_grows_with_its_volume_when_it_is_attached_again(self):
        attachment = self.mounted("xfs", "grow_filesystems = ext4, xfs")
        self.extend(2)
        wait_for(lambda: self.deployment.volume(self.volume)["size"], lambda size: size == 2)
        self.leave(attachment)
        attachment = self.attach()
        self.mount(attachment)
        self.wait_for_growth(attachment, 2 * GIB, "xfs", 2 * GIB)
        self.leave(attachment)
