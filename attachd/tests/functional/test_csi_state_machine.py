# SPDX-License-Identifier: Apache-2.0
"""Random sequences of calls of the Container Storage Interface, compared with a model.

Each call is made twice, and its status is the one of the specification's tables: of a volume that
one node may have, on two nodes with real agents, with API, manager and storage.
"""

from collections.abc import Callable
import dataclasses
import uuid

import grpc
from hypothesis import stateful
from hypothesis import strategies as st
import testtools

from attachd.tests.fixtures import agent_deployment, csi_driver
from attachd.tests.fixtures.agent_deployment import (
    AgentDeployment,
    FileDeployment,
    HostDeployment,
    RbdDeployment,
)
from attachd.tests.fixtures.csi_driver import CsiDriver
from attachd.tests.fixtures.csi_nodes import CsiNode, mounts_below
from attachd.tests.fixtures.csi_requests import GIB, mount, new_volume, sizes
from attachd.tests.functional import state_machines
from attachd.tests.selection import full_only

STEPS = 14
NODES, PODS = st.integers(0, 1), st.integers(0, 1)
CAPABILITY = mount("SINGLE_NODE_MULTI_WRITER", fs_type="ext4")


@dataclasses.dataclass
class Node:
    """A node, and what the model knows of the volume there.

    :ivar started: its host and driver
    :ivar context: of the last publication; None: there was none
    :ivar read_only: of the publication; None: the volume is not published here
    :ivar pods: where it is published on the node
    """

    started: CsiNode
    context: dict[str, str] | None = None
    read_only: bool | None = None
    is_staged: bool = False
    pods: set[int] = dataclasses.field(default_factory=set)

    @property
    def staging(self):
        return f"{self.started.folder}/staging"

    def target(self, pod):
        return f"{self.started.folder}/pod{pod}"

    def forget(self):
        """Return to the state without a volume."""
        self.context, self.read_only, self.is_staged, self.pods = None, None, False, set()


class CsiMachine(stateful.RuleBasedStateMachine):
    """One volume, from its creation to its deletion, several times over.

    :cvar controller: the driver of the cluster
    :cvar nodes: the nodes
    """

    controller: CsiDriver
    nodes: list[Node]

    def __init__(self):
        super().__init__()
        self.name, self.volume_id = f"pvc-{uuid.uuid4()}", None

    def call(self, code, driver, name, /, **fields):
        """Make a call twice, and check its status; return the last response."""
        answer = None
        for _ in range(2):
            try:
                answer, found = driver.call(name, **fields), "OK"
            except grpc.RpcError as error:
                found, text = error.code().name, error.details()
                assert found == code, f"{name}: {found} rather than {code}: {text}"
            assert found == code, f"{name}: {found} rather than {code}"
        return answer

    @property
    def exists(self):
        return self.volume_id is not None

    def known_id(self):
        return self.volume_id or str(uuid.UUID(int=1))

    @stateful.rule(size=st.integers(1, 2))
    def create(self, size):
        code = "ALREADY_EXISTS" if self.exists and size != self.size else "OK"
        fields = new_volume(
            self.name,
            capacity_range=sizes(size * GIB, size * GIB),
            volume_capabilities=[CAPABILITY],
        )
        answer = self.call(code, self.controller, "CreateVolume", **fields)
        if code == "OK":
            self.volume_id, self.size = answer.volume.volume_id, size

    @stateful.rule()
    def delete(self):
        is_published = any(node.read_only is not None for node in self.nodes)
        code = "FAILED_PRECONDITION" if is_published else "OK"
        self.call(code, self.controller, "DeleteVolume", volume_id=self.known_id())
        if code == "OK":
            self.volume_id = None

    @stateful.rule(number=NODES, read_only=st.sampled_from((False, False, True)))
    def publish(self, number, read_only):
        node, other = self.nodes[number], self.nodes[1 - number]
        code = "OK"
        if not self.exists:
            code = "NOT_FOUND"
        elif other.read_only is not None:
            code = "FAILED_PRECONDITION"
        elif node.read_only not in (None, read_only):
            code = "ALREADY_EXISTS"
        answer = self.call(
            code,
            self.controller,
            "ControllerPublishVolume",
            volume_id=self.known_id(),
            node_id=node.started.host.name,
            volume_capability=CAPABILITY,
            readonly=read_only,
        )
        if code == "OK":
            node.context, node.read_only = dict(answer.publish_context), read_only

    @stateful.rule(number=NODES)
    def unpublish(self, number):
        node = self.nodes[number]
        code = "FAILED_PRECONDITION" if node.is_staged else "OK"
        self.call(
            code,
            self.controller,
            "ControllerUnpublishVolume",
            volume_id=self.known_id(),
            node_id=node.started.host.name,
        )
        if code == "OK":
            node.read_only = None

    def staged_fields(self, node):
        return {
            "volume_id": self.known_id(),
            "publish_context": node.context,
            "staging_target_path": node.staging,
            "volume_capability": CAPABILITY,
        }

    @stateful.rule(number=NODES)
    def stage(self, number):
        node = self.nodes[number]
        if node.context is None or not self.exists:
            return
        code = "NOT_FOUND" if node.read_only is None else "OK"
        if node.read_only:
            return  # There is no file system on it to mount, or there is: another test has both.
        self.call(code, node.started.driver, "NodeStageVolume", **self.staged_fields(node))
        node.is_staged = node.is_staged or code == "OK"

    @stateful.rule(number=NODES, pod=PODS)
    def start_pod(self, number, pod):
        node = self.nodes[number]
        if node.context is None or not self.exists:
            return
        code = "OK" if node.is_staged else "FAILED_PRECONDITION"
        self.call(
            code,
            node.started.driver,
            "NodePublishVolume",
            **self.staged_fields(node),
            target_path=node.target(pod),
        )
        if code == "OK":
            node.pods.add(pod)

    @stateful.rule(number=NODES, pod=PODS)
    def end_pod(self, number, pod):
        node = self.nodes[number]
        self.call(
            "OK",
            node.started.driver,
            "NodeUnpublishVolume",
            volume_id=self.known_id(),
            target_path=node.target(pod),
        )
        node.pods.discard(pod)

    @stateful.rule(number=NODES)
    def unstage(self, number):
        node = self.nodes[number]
        code = "FAILED_PRECONDITION" if node.pods else "OK"
        self.call(
            code,
            node.started.driver,
            "NodeUnstageVolume",
            volume_id=self.known_id(),
            staging_target_path=node.staging,
        )
        node.is_staged = node.is_staged and code != "OK"

    @stateful.rule(number=NODES, pod=PODS)
    def read_stats(self, number, pod):
        node = self.nodes[number]
        code = "OK" if pod in node.pods else "NOT_FOUND"
        self.call(
            code,
            node.started.driver,
            "NodeGetVolumeStats",
            volume_id=self.known_id(),
            volume_path=node.target(pod),
        )

    @stateful.invariant()
    def lists_have_nodes_of_model(self):
        if not self.exists:
            return
        found = self.controller.call("ControllerGetVolume", volume_id=self.volume_id)
        published = [node.started.host.name for node in self.nodes if node.read_only is not None]
        assert list(found.status.published_node_ids) == published

    @stateful.invariant()
    def mounts_are_those_of_model(self):
        for node in self.nodes:
            expected = {node.target(pod) for pod in node.pods}
            expected |= {node.staging} if node.is_staged else set()
            assert set(mounts_below(node.started.folder)) == expected

    def teardown(self):
        for number, node in enumerate(self.nodes):
            for pod in list(node.pods):
                self.end_pod(number, pod)
            self.unstage(number)
            self.unpublish(number)
            assert node.started.host.entries() == []
            node.forget()
        self.delete()


class _MachineCase(testtools.TestCase):
    """Runs machines with a kind of storage.

    :cvar kind: makes the deployment
    :cvar divisor: how many times fewer sequences there are than of the fastest storage
    """

    kind: Callable[..., HostDeployment] = AgentDeployment

    divisor = 5

    def check_sequences(self):
        deployment = agent_deployment.shared_kind(self, self.kind)
        CsiMachine.controller = csi_driver.shared(self, deployment.url)
        CsiMachine.nodes = [Node(CsiNode(self, deployment)) for _ in range(2)]
        state_machines.run(CsiMachine, STEPS, self.divisor)


@full_only("containers")
class TgtStateMachineTest(_MachineCase):
    def test_random_sequences_of_calls_match_model(self):
        self.check_sequences()


@full_only("containers")
class FileStateMachineTest(_MachineCase):
    kind = FileDeployment
    divisor = 1

    def test_random_sequences_of_calls_match_model(self):
        self.check_sequences()


@full_only("containers")
class RbdStateMachineTest(_MachineCase):
    kind = RbdDeployment

    def test_random_sequences_of_calls_match_model(self):
        self.check_sequences()
