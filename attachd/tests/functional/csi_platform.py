# SPDX-License-Identifier: Apache-2.0
"""The calls of a container platform: those of the kubelets and sidecars of Kubernetes 1.36.

Its order of the calls, its retries, its second calls while a first one runs, and its calls after a
restart are repeated here, with shorter time limits and pauses.
"""

from collections import Counter
from collections.abc import Callable
import dataclasses
from pathlib import Path
import random
import threading
import time
from typing import Any, Final
import uuid

import grpc

from attachd.tests import wait
from attachd.tests.fixtures.csi_driver import CsiClient
from attachd.tests.fixtures.csi_requests import GIB, mount, new_volume, restore, sizes

PROVISIONER: Final = 3.0
ATTACHER: Final = 4.0
SNAPSHOTTER: Final = 6.0
KUBELET: Final = 12.0
"""Seconds that a caller waits for an answer; in Kubernetes 10, 15, 60 and 120."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
"""Seconds between two tries; the pause doubles."""
_REPEATED: Final = frozenset(
    {
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNAVAILABLE,
    }
)
"""Codes after which the work may go on, and the same call has to succeed in the end."""

Call = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Node:
    """A node of the cluster.

    :ivar name: of its host
    :ivar kubelet: what its kubelet calls
    :ivar folder: for staging and target paths
    """

    name: str
    kubelet: CsiClient
    folder: Path


class Claim:
    """A volume, and the paths of its pods.

    :param fs_type: "": the default of the driver
    :param snapshot_id: that it is made of; "": it is empty
    :ivar size_gib: in GiB (2**30 bytes)
    """

    def __init__(self, fs_type: str, snapshot_id: str = "") -> None:
        self.fs_type = fs_type
        self.snapshot_id = snapshot_id
        self.name = f"pvc-{uuid.uuid4()}"
        self.volume_id = ""
        self.size_gib = 1
        self.capability = mount("SINGLE_NODE_MULTI_WRITER", fs_type=fs_type)

    def staging(self, node: Node) -> str:
        """Return the staging path on a node."""
        return f"{node.folder}/{self.name}/globalmount"

    def target(self, node: Node, pod: int) -> str:
        """Return the path of the volume in a pod."""
        return f"{node.folder}/{self.name}/pod{pod}"


class Platform:
    """Calls drivers until the calls succeed.

    :ivar errors: how often calls have failed, by name and code
    """

    def __init__(self, controllers: list[CsiClient], seed: int) -> None:
        self._controllers = controllers
        self._random = random.Random(seed)
        self.errors: Counter[tuple[str, str]] = Counter()

    # ---- Sidecars ----

    def provision(self, claim: Claim) -> None:
        """Create a volume."""
        fields = new_volume(claim.name, volume_capabilities=[claim.capability])
        if claim.snapshot_id:
            fields["volume_content_source"] = restore(claim.snapshot_id)
        answer = self._control("CreateVolume", PROVISIONER, **fields)
        claim.volume_id = answer.volume.volume_id

    def delete(self, claim: Claim) -> None:
        """Delete a volume, often by more calls than one."""
        for _ in range(self._random.choice((1, 1, 2))):
            self._control("DeleteVolume", PROVISIONER, volume_id=claim.volume_id)

    def take_snapshot(self, claim: Claim) -> str:
        """Take a snapshot, often by more calls than one, until it is ready; return its id."""
        fields = {"name": f"snapshot-{uuid.uuid4()}", "source_volume_id": claim.volume_id}
        taken = set()
        for _ in range(self._random.choice((1, 1, 2))):
            snapshot = self._control("CreateSnapshot", SNAPSHOTTER, **fields).snapshot
            assert snapshot.ready_to_use, snapshot
            taken.add(snapshot.snapshot_id)
        (snapshot_id,) = taken
        return str(snapshot_id)

    def delete_snapshot(self, snapshot_id: str) -> None:
        """Delete a snapshot, often by more calls than one."""
        for _ in range(self._random.choice((1, 1, 2))):
            self._control("DeleteSnapshot", SNAPSHOTTER, snapshot_id=snapshot_id)

    def attach(self, claim: Claim, node: Node) -> dict[str, str]:
        """Publish a volume at a node, often by two calls at the same time."""
        fields = {
            "volume_id": claim.volume_id,
            "node_id": node.name,
            "volume_capability": claim.capability,
        }
        name = "ControllerPublishVolume"
        if self._random.random() < 0.5:
            again = threading.Timer(
                self._random.uniform(0.01, 0.8),
                lambda: self._controller().start_call(name, **fields),
            )
            again.start()
            again.join()
        return dict(self._control(name, ATTACHER, **fields).publish_context)

    def detach(self, claim: Claim, node: Node) -> None:
        """Unpublish a volume."""
        fields = {"volume_id": claim.volume_id, "node_id": node.name}
        self._control("ControllerUnpublishVolume", ATTACHER, **fields)

    def expand(self, claim: Claim, size_gib: int) -> None:
        """Expand a volume to a size."""
        claim.size_gib = size_gib
        self._control(
            "ControllerExpandVolume",
            PROVISIONER,
            volume_id=claim.volume_id,
            capacity_range=sizes(size_gib * GIB),
        )

    # ---- Kubelet ----

    def expand_at(self, claim: Claim, node: Node) -> None:
        """Let the file system of a pod have the size of its volume."""
        self._node(
            node,
            "NodeExpandVolume",
            volume_id=claim.volume_id,
            volume_path=claim.target(node, 0),
            staging_target_path=claim.staging(node),
            capacity_range=sizes(claim.size_gib * GIB),
            volume_capability=claim.capability,
        )

    def start_pod(self, claim: Claim, node: Node, context: dict[str, str], pod: int = 0) -> Path:
        """Stage and publish a volume; return where the pod has it.

        A kubelet that was restarted makes the same calls again.
        """
        Path(claim.staging(node)).parent.mkdir(parents=True, exist_ok=True)
        staged = {
            "volume_id": claim.volume_id,
            "publish_context": context,
            "staging_target_path": claim.staging(node),
            "volume_capability": claim.capability,
        }
        target = claim.target(node, pod)
        for _ in range(self._random.choice((1, 1, 2))):
            self._node(node, "NodeStageVolume", **staged)
            self._node(node, "NodePublishVolume", **staged, target_path=target)
        self._node(node, "NodeGetVolumeStats", volume_id=claim.volume_id, volume_path=target)
        return Path(target)

    def give_up_start(self, claim: Claim, node: Node, context: dict[str, str]) -> None:
        """Begin to stage a volume whose pod is deleted before that has an answer."""
        Path(claim.staging(node)).parent.mkdir(parents=True, exist_ok=True)
        node.kubelet.start_call(
            "NodeStageVolume",
            volume_id=claim.volume_id,
            publish_context=context,
            staging_target_path=claim.staging(node),
            volume_capability=claim.capability,
        )
        time.sleep(self._random.uniform(0, 0.3))  # The moment in the stage.
        self._unstage(claim, node)

    def end_pods(self, claim: Claim, node: Node, pods: int = 1) -> None:
        """Unpublish the volume of all pods and unstage it."""
        for pod in range(pods):
            self._node(
                node,
                "NodeUnpublishVolume",
                volume_id=claim.volume_id,
                target_path=claim.target(node, pod),
            )
        self._unstage(claim, node)

    def _unstage(self, claim: Claim, node: Node) -> None:
        self._node(
            node,
            "NodeUnstageVolume",
            volume_id=claim.volume_id,
            staging_target_path=claim.staging(node),
        )

    # ---- Calls ----

    def _controller(self) -> CsiClient:
        return self._random.choice(self._controllers)

    def _control(self, name: str, timeout: float, /, **fields: Any) -> Any:
        return self._repeat(name, lambda: self._controller().call(name, timeout, **fields))

    def _node(self, node: Node, name: str, /, **fields: Any) -> Any:
        return self._repeat(name, lambda: node.kubelet.call(name, KUBELET, **fields))

    def _repeat(self, name: str, call: Call) -> Any:
        """Make a call until it succeeds.

        :raises AssertionError: it has failed for too long
        :raises grpc.RpcError: it has failed with a code after which it may not be repeated
        """
        pause, deadline = _FIRST_PAUSE, time.monotonic() + wait.TIMEOUT
        while True:
            try:
                return call()
            except grpc.RpcError as caught:
                error: Any = caught
                self.errors[name, error.code().name] += 1
                if error.code() not in _REPEATED:
                    raise
                assert time.monotonic() < deadline, f"{name}: {error.details()}"
            time.sleep(pause)  # As callers of the platform do.
            pause = min(2 * pause, _LONGEST_PAUSE)
