# SPDX-License-Identifier: Apache-2.0
"""Volumes at nodes by the Container Storage Interface: attachd-csi, API, manager, real agents."""

import contextlib
import json
from pathlib import Path
import re
import signal
import sys
import time
import unittest
import uuid

import grpc
import testtools

from attachd.tests import concurrency, wait
from attachd.tests.fixtures import agent_deployment, csi_driver, processes, requirements
from attachd.tests.fixtures.csi_requests import GIB, block, mount, new_volume, sizes
from attachd.tests.fixtures.lifetime import temp_dir
from attachd.tests.selection import full_only

NOWHERE = str(uuid.uuid4())
_USER = 65532
"""The user of the container in etc/kubernetes/controller.yaml."""
_SHORT_DOWN_TIME = "down_time = 3"
"""For agents that are killed, until they count as silent."""


class PublicationCase(testtools.TestCase):
    """A shared deployment with a driver, and a node and a volume per test."""

    def setUp(self):
        super().setUp()
        self.deployment = agent_deployment.shared(self)
        self.driver = csi_driver.shared(self, self.deployment.url)
        self.node = self.start_node()
        self.volume = self.create()

    def use(self, driver):
        """Call another driver from now on; the volumes are removed by the first one."""
        self.addCleanup(setattr, self, "driver", self.driver)
        self.driver = driver

    def start_node(self, settings=""):
        """Start another node, with options of its agent."""
        node = agent_deployment.AgentHost(self.deployment, self)
        node.set(settings)
        node.start()
        return node

    def create(self, **fields):
        """Create a volume, and return its id."""
        request = new_volume(f"pvc-{uuid.uuid4()}", **fields)
        volume_id = self.driver.call("CreateVolume", **request).volume.volume_id
        self.addCleanup(self._remove, volume_id)
        return volume_id

    def _remove(self, volume_id):
        with contextlib.suppress(grpc.RpcError):
            self.driver.call("ControllerUnpublishVolume", volume_id=volume_id)
            self.driver.call("DeleteVolume", volume_id=volume_id)

    def shared_type(self):
        """Create a type of volumes that several nodes may have; return its name."""
        return self.deployment.create_type(multiattach="<is> True")

    def fields(self, node=None, **more):
        """Return the fields of a request to publish the volume."""
        return {
            "volume_id": self.volume,
            "node_id": (node or self.node).name,
            "volume_capability": mount(),
            **more,
        }

    def publish(self, node=None, **more):
        """Publish the volume, by two calls; return the id of the attachment."""
        first, again = (
            dict(
                self.driver.call(
                    "ControllerPublishVolume", **self.fields(node, **more)
                ).publish_context
            )
            for _ in range(2)
        )
        self.assertEqual(first, again)
        self.assertEqual({"attachd.attachment_id"}, set(first))
        return first["attachd.attachment_id"]

    def unpublish(self, node=None, driver=None):
        """Unpublish the volume, by two calls."""
        for _ in range(2):
            (driver or self.driver).call(
                "ControllerUnpublishVolume",
                volume_id=self.volume,
                node_id=(node or self.node).name,
            )

    def fail_to_publish(self, code, node=None, **more):
        """Check that the volume cannot be published; return the message."""
        return self.driver.fail(code, "ControllerPublishVolume", **self.fields(node, **more))

    def nodes(self):
        """Return the nodes where the volume is published, by both calls that show them."""
        found = self.driver.call("ControllerGetVolume", volume_id=self.volume)
        listed = {
            entry.volume.volume_id: list(entry.status.published_node_ids)
            for entry in self.driver.call("ListVolumes").entries
        }
        self.assertEqual(listed[self.volume], list(found.status.published_node_ids))
        return listed[self.volume]


class PublishTest(PublicationCase):
    def test_published_volume_is_device_at_node_until_it_is_unpublished(self):
        attachment_id = self.publish()
        self.assertTrue(self.node.device(attachment_id).is_block_device())
        self.assertEqual([self.node.name], self.nodes())
        self.driver.fail("FAILED_PRECONDITION", "DeleteVolume", volume_id=self.volume)
        self.unpublish()
        self.assertEqual([], self.node.loops())
        self.assertEqual([], self.nodes())
        self.driver.call("DeleteVolume", volume_id=self.volume)

    def test_publish_with_missing_fields_volume_or_node_is_refused(self):
        for field in ("volume_id", "node_id", "volume_capability"):
            fields = self.fields()
            del fields[field]
            text = self.driver.fail("INVALID_ARGUMENT", "ControllerPublishVolume", **fields)
            self.assertIn(field, text)
        self.driver.fail("INVALID_ARGUMENT", "ControllerUnpublishVolume", node_id="n")
        for volume_id in (NOWHERE, "none"):
            self.fail_to_publish("NOT_FOUND", volume_id=volume_id)
        for node_id in ("nowhere", "no where", "\N{SNOWMAN}"):
            self.fail_to_publish("NOT_FOUND", node_id=node_id)

    def test_unpublish_of_missing_volume_or_node_succeeds(self):
        for volume_id, node_id in ((NOWHERE, "n"), ("none", "n"), (self.volume, "nowhere")):
            for _ in range(2):
                self.driver.call("ControllerUnpublishVolume", volume_id=volume_id, node_id=node_id)


@full_only("containers")
class ModesTest(PublicationCase):
    def test_other_node_is_refused_with_name_of_holder(self):
        self.publish()
        other = self.start_node()
        text = self.fail_to_publish("FAILED_PRECONDITION", other)
        self.assertIn(f"published to node {self.node.name}.", text)
        self.unpublish()
        self.publish(other)
        self.assertEqual([other.name], self.nodes())
        self.unpublish(other)

    def test_impossible_capabilities_are_refused(self):
        for capability in (mount("MULTI_NODE_MULTI_WRITER"), block("MULTI_NODE_READER_ONLY")):
            self.fail_to_publish("INVALID_ARGUMENT", volume_capability=capability)

    def test_shared_volume_is_published_as_capability_permits(self):
        several = block("MULTI_NODE_MULTI_WRITER")
        self.volume = self.create(
            parameters={"type": self.shared_type()}, volume_capabilities=[several]
        )
        other = self.start_node()
        self.publish(volume_capability=several)
        text = self.fail_to_publish("FAILED_PRECONDITION", other)
        self.assertIn(self.node.name, text)
        writer = block("MULTI_NODE_SINGLE_WRITER")
        self.fail_to_publish("FAILED_PRECONDITION", other, volume_capability=writer)
        self.publish(other, volume_capability=writer, readonly=True)
        self.assertEqual(sorted([self.node.name, other.name]), self.nodes())
        self.driver.call("ControllerUnpublishVolume", volume_id=self.volume)
        self.assertEqual([], self.nodes())

    def test_published_volume_grows_and_node_has_to_follow(self):
        self.publish()
        for _ in range(2):
            answer = self.driver.call(
                "ControllerExpandVolume", volume_id=self.volume, capacity_range=sizes(2 * GIB)
            )
            self.assertEqual(
                (2 * GIB, True), (answer.capacity_bytes, answer.node_expansion_required)
            )

    def test_controller_needs_no_rights_of_root(self):
        setpriv = requirements.require_tool(self, "setpriv")
        # The only right is to read the files of Python, which may be root's.
        rights = ("-all", "+dac_read_search")
        launcher = (
            setpriv,
            f"--reuid={_USER}",
            f"--regid={_USER}",
            "--clear-groups",
            *(f"--{kind}={','.join(rights)}" for kind in ("inh-caps", "bounding-set")),
            "--ambient-caps=+dac_read_search",
            "--no-new-privs",
        )
        self.use(csi_driver.CsiDriver(self, self.deployment.url, launcher=launcher, owner=_USER))
        self.assertEqual(_USER, self.driver.socket.stat().st_uid)
        status = Path(f"/proc/{self.driver.process.pid}/status").read_text()
        self.assertRegex(status, rf"Uid:\s+{_USER}\s+{_USER}")
        self.assertTrue(self.driver.call("Probe").ready.value)
        self.volume = self.create()
        attachment_id = self.publish()
        self.assertTrue(self.node.device(attachment_id).is_block_device())
        larger = {"volume_id": self.volume, "capacity_range": sizes(2 * GIB)}
        answer = self.driver.call("ControllerExpandVolume", **larger)
        self.assertEqual(2 * GIB, answer.capacity_bytes)
        self.assertEqual([self.node.name], self.nodes())
        self.unpublish()
        self.driver.call("DeleteVolume", volume_id=self.volume)

    def test_request_id_of_call_is_in_logs_and_timeline_of_attachd(self):
        with self.deployment.another_api(self, "[DEFAULT]\ndebug = true") as api:
            self.use(csi_driver.CsiDriver(self, self.deployment.url))
            attachment_id = self.publish()
            self.unpublish()
        lines = r"\[(req-[-0-9a-f]+)\] Controller(P|Unp)ublishVolume: OK"
        found = re.findall(lines, self.driver.process.output)
        # The first of two calls has done the work.
        publish, _, unpublish, _ = (request_id for request_id, _name in found)
        for request_id, request in (
            (publish, "POST /v3/attachments: 200"),
            (unpublish, f"DELETE /v3/attachments/{attachment_id}: 200"),
        ):
            self.assertRegex(api.output, rf"{request_id} .*{request}")
        path = f"/attachments/{attachment_id}/timeline"
        timeline = self.deployment.request("GET", path).json()["timeline"]
        found = {item["type"]: item["global_request_id"] for item in timeline}
        expected = {"reserved": publish, "connected": publish, "withdrawing": unpublish}
        self.assertEqual(expected, {name: found.get(name) for name in expected}, timeline)


@full_only("containers")
class ConcurrentTest(PublicationCase):
    def test_calls_of_two_controllers_at_once_attach_once(self):
        other = csi_driver.CsiDriver(self, self.deployment.url)
        several = block("MULTI_NODE_MULTI_WRITER")
        self.volume = self.create(
            parameters={"type": self.shared_type()}, volume_capabilities=[several]
        )

        def publish(driver):
            """Call until it succeeds, as an attacher does."""

            def succeed():
                try:
                    fields = self.fields(volume_capability=several)
                    return [driver.call("ControllerPublishVolume", **fields).publish_context]
                except grpc.RpcError as error:
                    self.assertIs(grpc.StatusCode.ABORTED, error.code(), error)
                    # At the same time again, both would take their attachments back again.
                    time.sleep(0.2 if driver is other else 0)
                    return []

            return dict(wait.wait_until(succeed)[0])

        for _ in range(3):
            calls = [lambda driver=driver: publish(driver) for driver in (self.driver, other) * 2]
            answers = concurrency.run_at_once(*calls)
            self.assertEqual(1, len({str(answer) for answer in answers}), answers)
            self.assertEqual(1, len(self.node.entries()))
            self.unpublish()

    def test_killed_controller_leaves_what_next_call_finds(self):
        other = csi_driver.CsiDriver(self, self.deployment.url)
        interrupted = []
        for number in range(6):
            call = other.start_call("ControllerPublishVolume", **self.fields())
            # The moments of the kills: from before the request to after it.
            time.sleep(0.03 * number)
            interrupted.append(not call.done())
            other.kill()
            call.cancel()
            wait.wait_until(lambda: self._is_done("ControllerPublishVolume", self.fields()))
            (entry,) = self.node.entries()
            self.assertEqual(entry.attachment_id, self.publish())
            self.unpublish()
            self.assertEqual([], self.node.entries())
            other.start()
        self.assertIn(True, interrupted)

    def _is_done(self, name, fields):
        try:
            self.driver.call(name, **fields)
        except grpc.RpcError as error:
            self.assertIs(grpc.StatusCode.ABORTED, error.code(), error)
            return False
        return True


@full_only("containers")
class LostNodeTest(PublicationCase):
    """The agent of a node is dead, and its device still writes: nothing unstages the volume."""

    @contextlib.contextmanager
    def lost_node(self, *options):
        """Kill the agent; yield a driver with these options, for which it is silent at once."""
        with self.deployment.another_api(self, _SHORT_DOWN_TIME):
            driver = csi_driver.CsiDriver(self, self.deployment.url, "--mode=controller", *options)
            self.node.agents[-1].send(signal.SIGKILL)
            wait.wait_until(lambda: self.deployment.agent(self.node.name)["state"] == "down")
            yield driver

    def test_silent_node_is_fenced_with_proof_and_volume_is_published_elsewhere(self):
        attachment_id = self.publish()
        other = self.start_node()
        with self.lost_node() as driver:
            self.unpublish(driver=driver)
            answer = driver.call("ControllerPublishVolume", **self.fields(other))
        self.assertNotEqual(attachment_id, answer.publish_context["attachd.attachment_id"])
        self.assertEqual([other.name], self.nodes())
        host = self.deployment.request(
            "GET",
            f"/hosts/{self.node.name}",
            **{"OpenStack-API-Version": "volume 3.71, attachd 1.1"},
        ).json()["host"]
        self.assertEqual((True, "auto"), (host["fenced"], host["lift"]))
        self.assertIn(self.volume, host["reason"])
        self.fail_to_publish("FAILED_PRECONDITION")
        self.unpublish(other)

    def test_silent_node_is_not_fenced_if_option_says_never(self):
        self.publish()
        with self.lost_node("--fence=never") as driver:
            text = driver.fail(
                "UNAVAILABLE",
                "ControllerUnpublishVolume",
                volume_id=self.volume,
                node_id=self.node.name,
            )
            self.assertIn("has not reported since", text)
        self.assertEqual([self.node.name], self.nodes())


@full_only("containers")
class BenchmarkTest(unittest.TestCase):
    def test_benchmark_measures_publications_alone_and_at_once(self):
        benchmark = processes.ROOT / "benchmarks" / "csi_attach.py"
        if not benchmark.is_file():
            self.skipTest("installed without the benchmarks")
        output = temp_dir(self) / "result.json"
        sizes_of_run = ("--volumes", "3", "--alone", "2", "--driver", "file")
        done = processes.run(
            [sys.executable, "-W", "ignore", str(benchmark), *sizes_of_run, "--json", str(output)],
            timeout=2 * wait.TIMEOUT,
        )
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        rows = json.loads(output.read_text(encoding="utf-8"))["rows"]
        found = [(row["call"], row["volumes"], row["samples"]) for row in rows]
        expected = [
            *(("publish", 1, 2), ("unpublish", 1, 2)),
            *(("publish", 3, 3), ("unpublish", 3, 3)),
        ]
        self.assertEqual(expected, found)
        for row in rows:
            self.assertLessEqual(row["p50"], row["p99"])
            self.assertGreater(row["cpu"], 0)
