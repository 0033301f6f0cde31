# SPDX-License-Identifier: Apache-2.0
"""A node that hangs with a writer on a volume, whose pod starts on another node.

The agent of the node, its driver and the daemons below its devices are stopped, not killed: they
go on later, with what they still have to write.  API, manager, tgtd and agents are real.
"""

import contextlib
import os
from pathlib import Path
import signal
import subprocess
import sys
import time
import uuid

import grpc
import testtools

from attachd.tests.fixtures import agent_deployment, csi_driver
from attachd.tests.fixtures.csi_nodes import CsiNode
from attachd.tests.fixtures.csi_requests import block, new_volume
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

DOWN_TIME = 3
"""Seconds without a report until an agent counts as silent: how long its lease is."""
OFFSET, LENGTH = 2**20, 4096
OLD, LATE, NEW = (bytes([number]) * LENGTH for number in (1, 2, 3))
_WRITER = """\
import mmap, os, sys
path, offset, number, length = sys.argv[1], *map(int, sys.argv[2:])
page = mmap.mmap(-1, length)
page.write(bytes([number]) * length)
device = os.open(path, os.O_WRONLY | os.O_DIRECT)
sys.stdin.readline()
while True:
    os.pwritev(device, [page], offset)
"""


@full_only("containers")
class LostNodeTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.deployment = agent_deployment.shared(self)
        self.lost, self.other = (CsiNode(self, self.deployment) for _ in range(2))
        self.controller = csi_driver.shared(self, self.deployment.url)
        answer = self.controller.call(
            "CreateVolume", **new_volume(f"pvc-{uuid.uuid4()}", volume_capabilities=[block()])
        )
        self.volume_id = answer.volume.volume_id
        self.addCleanup(self.remove_volume)

    def remove_volume(self):
        fields = {"volume_id": self.volume_id}
        for node in (self.lost, self.other):
            pod, staging = f"{node.folder}/pod", f"{node.folder}/staging"
            self.repeat(node.driver, "NodeUnpublishVolume", target_path=pod, **fields)
            self.repeat(node.driver, "NodeUnstageVolume", staging_target_path=staging, **fields)
        self.controller.call("ControllerUnpublishVolume", volume_id=self.volume_id)
        self.controller.call("DeleteVolume", volume_id=self.volume_id)

    def repeat(self, driver, name, **fields):
        """Make a call until it succeeds: the agent that goes on may work on the volume."""

        def succeed():
            try:
                driver.call(name, **fields)
            except grpc.RpcError as error:
                self.assertIs(grpc.StatusCode.ABORTED, error.code(), error)
                return False
            return True

        wait_until(succeed)

    def start_pod(self, node, controller):
        """Publish, stage and publish the volume; return the device of the pod."""
        fields = {"volume_id": self.volume_id, "volume_capability": block()}
        published = controller.call(
            "ControllerPublishVolume", node_id=node.host.name, **fields
        ).publish_context
        staged = {
            **fields,
            "publish_context": dict(published),
            "staging_target_path": f"{node.folder}/staging",
        }
        device = Path(f"{node.folder}/pod")
        node.driver.call("NodeStageVolume", **staged)
        node.driver.call("NodePublishVolume", **staged, target_path=f"{device}")
        return device

    @contextlib.contextmanager
    def frozen(self, node):
        """Stop all processes of a node for a while."""
        pids = [node.host.agents[-1].pid, node.driver.process.pid, *node.host.daemons()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def start_writer(self, device, content):
        """Start a process that writes a page over and over as soon as it gets a line."""
        words = (f"{device}", f"{OFFSET}", f"{content[0]}", f"{LENGTH}")
        writer = subprocess.Popen([sys.executable, "-c", _WRITER, *words], stdin=subprocess.PIPE)
        self.addCleanup(writer.wait, TIMEOUT)
        self.addCleanup(writer.kill)
        return writer

    def let_write(self, writer):
        writer.stdin.write(b"\n")
        writer.stdin.flush()

    def stored(self):
        """Return what the storage has."""
        (path,) = Path(self.deployment.tgtd.options["tgt_volumes_dir"]).rglob(
            f"*{self.volume_id}*"
        )
        with path.open("rb") as file:
            file.seek(OFFSET)
            return file.read(LENGTH)

    def is_silent(self):
        return self.deployment.agent(self.lost.host.name)["state"] == "down"

    def test_pod_starts_on_other_node_and_nothing_of_the_first_arrives(self):
        device = self.start_pod(self.lost, self.controller)
        writers = [self.start_writer(device, content) for content in (OLD, LATE)]
        self.let_write(writers[0])
        wait_until(lambda: self.stored() == OLD)
        settings = f"down_time = {DOWN_TIME}"
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.deployment.another_api(self, settings))
            controller = csi_driver.CsiDriver(self, self.deployment.url)
            stack.enter_context(self.frozen(self.lost))
            frozen_at = time.monotonic()
            self.let_write(writers[1])
            wait_until(self.is_silent, interval=0.1)
            silent_at = time.monotonic()
            # The taint out-of-service: there is no NodeUnpublish and no NodeUnstage.
            controller.call(
                "ControllerUnpublishVolume",
                volume_id=self.volume_id,
                node_id=self.lost.host.name,
            )
            other = self.start_pod(self.other, controller)
            started_at = time.monotonic()
            with other.open("r+b", buffering=0) as file:
                file.seek(OFFSET)
                file.write(NEW)
                os.fsync(file.fileno())
        seconds = (silent_at - frozen_at, started_at - silent_at)
        figures = "silent after {:.1f} s, and the pod after {:.1f} s more".format(*seconds)
        self.addDetail("figures", testtools.content.text_content(figures))
        wait_until(lambda: all(writer.poll() is not None for writer in writers))
        self.assertEqual(NEW, self.stored())
