# SPDX-License-Identifier: Apache-2.0
"""The Node service of attachd-csi on a host with an agent, with real volumes and file systems."""

from pathlib import Path
from typing import Any
import unittest

import grpc

from attachd.csi import csi_pb2
from attachd.tests import wait
from attachd.tests.fixtures import agent_deployment
from attachd.tests.fixtures.agent_deployment import AgentDeployment
from attachd.tests.fixtures.csi_nodes import CsiNode, mounts_below

_Capability = csi_pb2.VolumeCapability


def capability(
    fs_type: str | None = "", mode: str = "SINGLE_NODE_MULTI_WRITER", *flags: str, group: str = ""
) -> csi_pb2.VolumeCapability:
    """Return a capability.

    :param fs_type: None: of a block volume
    :param mode: the name of the access mode
    :param group: the number of the group of the pod
    """
    access = _Capability.AccessMode(mode=mode)
    if fs_type is None:
        return _Capability(block=_Capability.BlockVolume(), access_mode=access)
    mounted = _Capability.MountVolume(fs_type=fs_type, mount_flags=flags, volume_mount_group=group)
    return _Capability(mount=mounted, access_mode=access)


class CsiNodeCase(unittest.TestCase):
    """A host, its agent, and the driver.

    :ivar deployment: API, manager and storage
    :ivar driver: the process, and a client of it
    """

    deployment: AgentDeployment

    def setUp(self) -> None:
        super().setUp()
        self.deployment = agent_deployment.shared(self)
        node = CsiNode(self, self.deployment, "--zone=zone-1")
        self.host, self.driver, self.folder = node.host, node.driver, node.folder
        self.agent = self.host.agents[-1]
        self.staging = f"{self.folder}/staging"
        self.targets = [f"{self.folder}/pod{number}" for number in range(2)]
        self.volume_id = self.deployment.create_volume()
        self.attach()

    def attach(self) -> None:
        """Attach the volume, as ControllerPublishVolume does."""
        response = self.deployment.attach(self.volume_id, self.host.name)
        assert response.status_code == 200, response.text
        self.attachment_id = str(response.json()["attachment"]["id"])

    def detach(self) -> None:
        """Detach the volume, as ControllerUnpublishVolume does."""
        response = self.deployment.detach(self.attachment_id)
        assert response.status_code == 200, response.text
        self.deployment.wait_for_volume(self.volume_id, "available")

    def restart_agent(self) -> None:
        """Kill the agent, and start it again."""
        self.agent.kill()
        self.agent = self.host.start()

    def restart_driver(self) -> None:
        """Kill the driver, and start it again."""
        self.driver.kill()
        self.driver.start()

    def stage_fields(self, fs_type: str | None = "", **fields: Any) -> dict[str, Any]:
        """Return the fields of NodeStageVolume."""
        return {
            "volume_id": self.volume_id,
            "publish_context": {"attachd.attachment_id": self.attachment_id},
            "staging_target_path": self.staging,
            "volume_capability": capability(fs_type),
            **fields,
        }

    def publish_fields(
        self, number: int = 0, fs_type: str | None = "", **fields: Any
    ) -> dict[str, Any]:
        """Return the fields of NodePublishVolume."""
        return {
            **self.stage_fields(fs_type),
            "target_path": self.targets[number],
            **fields,
        }

    def stage(self, fs_type: str | None = "") -> None:
        """Call NodeStageVolume, again while the agent works on the volume, as kubelet does."""

        def is_done() -> bool:
            try:
                self.driver.call("NodeStageVolume", **self.stage_fields(fs_type))
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.ABORTED:
                    raise
                return False
            return True

        wait.wait_until(is_done, "the volume is staged")

    def publish(self, number: int = 0, fs_type: str | None = "") -> None:
        """Call NodePublishVolume."""
        self.driver.call("NodePublishVolume", **self.publish_fields(number, fs_type))

    def unpublish(self, number: int = 0) -> None:
        """Call NodeUnpublishVolume."""
        self.driver.call(
            "NodeUnpublishVolume", volume_id=self.volume_id, target_path=self.targets[number]
        )

    def unstage(self) -> None:
        """Call NodeUnstageVolume."""
        self.driver.call(
            "NodeUnstageVolume", volume_id=self.volume_id, staging_target_path=self.staging
        )

    def stats(self, path: str) -> Any:
        """Call NodeGetVolumeStats."""
        return self.driver.call("NodeGetVolumeStats", volume_id=self.volume_id, volume_path=path)

    def extend(self, size_gib: int) -> None:
        """Extend the attached volume in the service, as ControllerExpandVolume does."""
        body = {"os-extend": {"new_size": size_gib}}
        response = self.deployment.request("POST", f"/volumes/{self.volume_id}/action", body)
        assert response.status_code == 202, response.text
        wait.wait_until(lambda: self.deployment.volume(self.volume_id)["size"] == size_gib)

    def expand(self, path: str, size: int) -> Any:
        """Call NodeExpandVolume.

        :param size: in bytes
        """
        return self.driver.call(
            "NodeExpandVolume",
            volume_id=self.volume_id,
            volume_path=path,
            staging_target_path=self.staging,
            capacity_range=csi_pb2.CapacityRange(required_bytes=size),
        )

    def file(self, number: int = 0) -> Path:
        """Return a file on the volume, as a container sees it."""
        return Path(self.targets[number]) / "file"

    def assert_clean(self) -> None:
        """Check that nothing of the volume is left below the folder of the containers."""
        self.assertEqual([], mounts_below(self.folder))
        for path in self.targets:
            self.assertFalse(Path(path).exists())
