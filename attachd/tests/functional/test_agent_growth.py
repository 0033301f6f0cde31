# SPDX-License-Identifier: Apache-2.0
"""File systems that grow on a host with an agent, over iSCSI with QEMU's initiator."""

from pathlib import Path
import subprocess

from attachd.agent.mount import mounts
from attachd.tests.fixtures import processes, requirements
from attachd.tests.functional.test_agents import GIB, AgentCase
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_for

HEADERS = {"OpenStack-API-Version": "volume 3.71, attachd 1.1"}


@full_only("agents")
class AgentGrowthTest(AgentCase):
    """A volume with an xfs that the user of the host has mounted."""

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        requirements.require_tool(self, "mkfs.xfs")
        self.mountpoint = self.host.top / "mnt"

    def mounted(self, settings=""):
        """Return an attachment whose device is mounted."""
        self.host.set(settings)
        self.host.start()
        attachment = self.attach()
        device = f"{self.host.device(attachment)}"
        processes.check_output(("mkfs.xfs", "-q", device))
        self.addCleanup(
            subprocess.run, ["umount", self.mountpoint], check=False, capture_output=True
        )
        mounts.mount(device, f"{self.mountpoint}", mode="rw")
        self.wait_for_growth(attachment, GIB, GIB)
        return attachment

    def extend(self, size):
        answer = self.deployment.request(
            "POST", f"/volumes/{self.volume}/action", {"os-extend": {"new_size": size}}
        )
        self.assertEqual(202, answer.status_code, answer.text)

    def wait_for_growth(self, attachment, device_bytes, filesystem_bytes):
        def read():
            path = f"/attachments/{attachment}"
            answer = self.deployment.request("GET", path, **HEADERS)
            return answer.json()["attachment"]["condition"]["growth"] or {}

        expected = (device_bytes, "xfs", filesystem_bytes)
        names = ("device_bytes", "filesystem", "filesystem_bytes")
        return wait_for(read, lambda found: tuple(map(found.get, names)) == expected, expected)

    def changes(self, attachment):
        answer = self.deployment.request("GET", f"/attachments/{attachment}/timeline", **HEADERS)
        return [
            (item["condition"]["growth"]["device_bytes"] // GIB,
             item["condition"]["growth"]["filesystem_bytes"] // GIB)
            for item in answer.json()["timeline"] if item["type"] == "condition_changed"
        ]  # fmt: skip

    def leave(self, attachment):
        mounts.unmount(f"{self.mountpoint}")
        self.detach(attachment)

    def test_file_system_is_reported_and_grows_when_configured(self):
        attachment = self.mounted()
        (Path(self.mountpoint) / "file").write_text("data")
        self.extend(2)
        growth = self.wait_for_growth(attachment, 2 * GIB, GIB)
        self.assertEqual("xfs has 1 of 2 GiB", growth["message"])
        self.host.agents[-1].kill()
        self.host.set("grow_filesystems = xfs")
        self.host.start()
        # Another agent than the one that has let the device grow.
        self.extend(3)
        self.assertIsNone(self.wait_for_growth(attachment, 3 * GIB, 3 * GIB)["message"])
        # Others are about sessions.
        self.assertIn((2, 1), self.changes(attachment))
        self.assertEqual((3, 3), self.changes(attachment)[-1])
        self.assertEqual("data", (Path(self.mountpoint) / "file").read_text())
        self.leave(attachment)
