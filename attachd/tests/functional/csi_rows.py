# SPDX-License-Identifier: Apache-2.0
"""The tables of errors of the Container Storage Interface, and cases with a test for each row.

Source: CSI 1.12, "Error Scheme" and the section "Errors" of each call.
"""

from collections.abc import Callable, Mapping
import contextlib
from pathlib import Path
from typing import Any, Final, TypeVar
import uuid

import grpc
import testtools

from attachd.agent.staging import Staging
from attachd.csi import csi_pb2
from attachd.tests.fixtures import agent_deployment, csi_driver, csi_nodes
from attachd.tests.fixtures.csi_requests import GIB, mount, new_volume, sizes

ANY_CALL: Final = "any call"

ROWS: Final[Mapping[str, Mapping[str, str]]] = {
    ANY_CALL: {
        "Missing required field": "INVALID_ARGUMENT",
        "Invalid or unsupported field in the request": "INVALID_ARGUMENT",
        "Permission denied": "PERMISSION_DENIED",
        "Operation pending for volume": "ABORTED",
        "Call not implemented": "UNIMPLEMENTED",
        "Not authenticated": "UNAUTHENTICATED",
    },
    "Probe": {
        "Plugin not healthy": "FAILED_PRECONDITION",
        "Missing required dependency": "FAILED_PRECONDITION",
    },
    "CreateVolume": {
        "Source incompatible or not supported": "INVALID_ARGUMENT",
        "Source does not exist": "NOT_FOUND",
        "Volume already exists but is incompatible": "ALREADY_EXISTS",
        "Unable to provision in accessible_topology": "RESOURCE_EXHAUSTED",
        "Unsupported capacity_range": "OUT_OF_RANGE",
    },
    "DeleteVolume": {"Volume in use": "FAILED_PRECONDITION"},
    "ControllerPublishVolume": {
        "Volume does not exist": "NOT_FOUND",
        "Node does not exist": "NOT_FOUND",
        "Volume published but is incompatible": "ALREADY_EXISTS",
        "Volume published to another node": "FAILED_PRECONDITION",
        "Max volumes attached": "RESOURCE_EXHAUSTED",
    },
    "ControllerUnpublishVolume": {
        "Volume does not exist and volume not assumed ControllerUnpublished": "NOT_FOUND",
        "Node does not exist and volume not assumed ControllerUnpublished": "NOT_FOUND",
    },
    "ValidateVolumeCapabilities": {"Volume does not exist": "NOT_FOUND"},
    "ListVolumes": {"Invalid starting_token": "ABORTED"},
    "ControllerGetVolume": {"Volume does not exist": "NOT_FOUND"},
    "ControllerExpandVolume": {
        "Exceeds capabilities": "INVALID_ARGUMENT",
        "Volume does not exist": "NOT_FOUND",
        "Volume in use": "FAILED_PRECONDITION",
        "Unsupported capacity_range": "OUT_OF_RANGE",
    },
    "CreateSnapshot": {
        "Snapshot already exists but is incompatible": "ALREADY_EXISTS",
        "Operation pending for snapshot": "ABORTED",
        "Not enough space to create snapshot": "RESOURCE_EXHAUSTED",
    },
    "DeleteSnapshot": {
        "Snapshot is part of a group": "INVALID_ARGUMENT",
        "Snapshot in use": "FAILED_PRECONDITION",
        "Operation pending for snapshot": "ABORTED",
    },
    "ListSnapshots": {"Invalid starting_token": "ABORTED"},
    "GetSnapshot": {"Snapshot does not exist": "NOT_FOUND"},
    "NodeStageVolume": {
        "Volume does not exist": "NOT_FOUND",
        "Volume published but is incompatible": "ALREADY_EXISTS",
        "Exceeds capabilities": "FAILED_PRECONDITION",
    },
    "NodeUnstageVolume": {"Volume does not exist": "NOT_FOUND"},
    "NodePublishVolume": {
        "Volume does not exist": "NOT_FOUND",
        "Volume published but is incompatible": "ALREADY_EXISTS",
        "Exceeds capabilities": "FAILED_PRECONDITION",
        "Staging target path not set": "FAILED_PRECONDITION",
    },
    "NodeUnpublishVolume": {"Volume does not exist": "NOT_FOUND"},
    "NodeGetVolumeStats": {"Volume does not exist": "NOT_FOUND"},
    "NodeExpandVolume": {
        "Exceeds capabilities": "INVALID_ARGUMENT",
        "Volume does not exist": "NOT_FOUND",
        "Volume in use": "FAILED_PRECONDITION",
        "Unsupported capacity_range": "OUT_OF_RANGE",
    },
}
"""Codes by call and condition, of the calls that the driver has."""

EXCLUDED: Final[Mapping[tuple[str, str], str]] = {
    (ANY_CALL, "Permission denied"): "no call carries secrets",
    (ANY_CALL, "Not authenticated"): "no call carries secrets",
    ("DeleteSnapshot", "Snapshot is part of a group"): "there are no groups of snapshots",
    (
        "ControllerUnpublishVolume",
        "Volume does not exist and volume not assumed ControllerUnpublished",
    ): "what does not exist is unpublished: OK",
    (
        "ControllerUnpublishVolume",
        "Node does not exist and volume not assumed ControllerUnpublished",
    ): "what does not exist is unpublished: OK",
    (
        "ControllerExpandVolume",
        "Volume in use",
    ): "the driver has ONLINE expansion; a backend without it is in unit.csi.test_expansion",
}
"""Rows that no call can reach, with the reason."""

NOWHERE: Final = f"{uuid.UUID(int=1)}"
"""The id of a volume that does not exist."""
SEVERAL_WRITERS: Final = "SINGLE_NODE_MULTI_WRITER"

Test = TypeVar("Test", bound=Callable[..., None])


def row(call: str, condition: str) -> Callable[[Test], Test]:
    """Mark a test of a row."""
    assert condition in ROWS[call], condition

    def mark(test: Test) -> Test:
        test.row = (call, condition)  # type: ignore[attr-defined]
        return test

    return mark


def tested_rows(*cases: type) -> set[tuple[str, str]]:
    """Return the rows of which cases have tests."""
    tests = [getattr(case, name) for case in cases for name in dir(case)]
    return {test.row for test in tests if hasattr(test, "row")}


class RowCase(testtools.TestCase):
    """A driver in mode controller and two nodes, which serve all tests of a kind of storage.

    :cvar kind: makes the deployment
    """

    kind: Callable[..., agent_deployment.HostDeployment] = agent_deployment.AgentDeployment

    def setUp(self) -> None:
        super().setUp()
        self.deployment = agent_deployment.shared_kind(self, type(self).kind)
        self.controller = csi_driver.shared(self, self.deployment.url)
        self.nodes = csi_nodes.shared(self, self.deployment)
        self.folders = {node.host.name: node.folder / f"{uuid.uuid4()}" for node in self.nodes}
        for folder in self.folders.values():
            folder.mkdir()
        self.capability = mount(SEVERAL_WRITERS, fs_type="ext4")

    def expect(self, **fields: Any) -> str:
        """Check that the call of the test's row fails with the code; return the message."""
        call, condition = getattr(self, self._testMethodName).row
        driver = self.nodes[0].driver if call.startswith("Node") else self.controller
        return driver.fail(ROWS[call][condition], call, **fields)

    def create(self, **fields: Any) -> str:
        """Create a volume, and return its id; it is removed with all that is made of it."""
        request = {"volume_capabilities": [self.capability], **fields}
        request = new_volume(f"pvc-{uuid.uuid4()}", **request)
        volume_id = str(self.controller.call("CreateVolume", **request).volume.volume_id)
        self.addCleanup(self.remove, volume_id)
        return volume_id

    def remove(self, volume_id: str) -> None:
        """Remove a volume, also one that is removed already, with all that is made of it."""
        for node in self.nodes:
            for entry in node.host.entries():
                if entry.volume_id == volume_id and entry.staging is not None:
                    self._unstage(node, volume_id, entry.staging)
        self.controller.call("ControllerUnpublishVolume", volume_id=volume_id)
        with contextlib.suppress(grpc.RpcError):
            self.controller.call("DeleteVolume", volume_id=volume_id)
        self.assertFalse(self.deployment.exports(volume_id))

    def _unstage(self, node: csi_nodes.CsiNode, volume_id: str, staging: Staging) -> None:
        fields: dict[str, Any] = {"volume_id": volume_id}
        for item in staging.publications:
            node.driver.call("NodeUnpublishVolume", target_path=item.path, **fields)
        node.driver.call("NodeUnstageVolume", staging_target_path=staging.path, **fields)

    def shared_type(self) -> str:
        """Create a type of volumes that several nodes may have; return its name."""
        return self.deployment.create_type(multiattach="<is> True")

    def publish(self, volume_id: str, number: int = 0, **fields: Any) -> dict[str, str]:
        """Publish a volume at a node; return the context."""
        request = self.published(volume_id, number, **fields)
        return dict(self.controller.call("ControllerPublishVolume", **request).publish_context)

    def published(self, volume_id: str, number: int = 0, **fields: Any) -> dict[str, Any]:
        """Return the fields of ControllerPublishVolume for a node."""
        return {
            "volume_id": volume_id,
            "node_id": self.nodes[number].host.name,
            "volume_capability": self.capability,
            **fields,
        }

    def staged(
        self, volume_id: str, context: Mapping[str, str], number: int = 0, **fields: Any
    ) -> dict[str, Any]:
        """Return the fields of NodeStageVolume at a node."""
        return {
            "volume_id": volume_id,
            "publish_context": context,
            "staging_target_path": self.path("staging", number),
            "volume_capability": self.capability,
            **fields,
        }

    def path(self, name: str, number: int = 0) -> str:
        """Return a path of the test at a node: "staging", "pod0" or "pod1"."""
        return f"{self.folders[self.nodes[number].host.name] / name}"

    def stage(self, number: int = 0, **fields: Any) -> dict[str, Any]:
        """Create a volume, publish it at a node, and stage it.

        :param fields: of the new volume
        :returns: the fields of NodeStageVolume
        """
        volume_id = self.create(**fields)
        request = self.staged(volume_id, self.publish(volume_id, number), number)
        self.nodes[number].driver.call("NodeStageVolume", **request)
        return request

    def start_pod(self, staged: Mapping[str, Any], pod: str = "pod0", **fields: Any) -> Path:
        """Publish a staged volume at the first node; return the path."""
        request = {**staged, "target_path": self.path(pod), **fields}
        self.nodes[0].driver.call("NodePublishVolume", **request)
        return Path(request["target_path"])

    def expand(self, volume_id: str, size_gib: int) -> csi_pb2.CapacityRange:
        """Expand a volume in the storage; return the sizes."""
        requested = sizes(size_gib * GIB)
        fields: dict[str, Any] = {"volume_id": volume_id, "capacity_range": requested}
        self.controller.call("ControllerExpandVolume", **fields)
        return requested
