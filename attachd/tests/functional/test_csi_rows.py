# SPDX-License-Identifier: Apache-2.0
"""Each row of the tables of the Container Storage Interface, with each kind of storage.

Each call is made twice.  API, manager, storage, agents and drivers are real.
"""

import contextlib
import functools
import importlib
import itertools
import os
from pathlib import Path
import signal
import unittest
import uuid

import grpc

from attachd.csi import csi_pb2, server, validation
from attachd.csi.controller import Controller
from attachd.csi.identity import Identity
from attachd.csi.node import Node
from attachd.tests import wait
from attachd.tests.fixtures import csi_driver, csi_nodes
from attachd.tests.fixtures.agent_deployment import (
    AgentDeployment,
    AgentHost,
    FileDeployment,
    RbdDeployment,
)
from attachd.tests.fixtures.csi_requests import (
    GIB,
    block,
    clone,
    mount,
    new_volume,
    restore,
    sizes,
    zone,
)
from attachd.tests.functional.csi_rows import (
    ANY_CALL,
    EXCLUDED,
    NOWHERE,
    ROWS,
    SEVERAL_WRITERS,
    RowCase,
    row,
    tested_rows,
)
from attachd.tests.selection import full_only

ELSEWHERE = {
    ("Probe", "Plugin not healthy"): (
        "test_csi_identity.RefusedTest.test_driver_with_wrong_password_is_not_healthy"
    ),
    ("Probe", "Missing required dependency"): (
        "test_csi_identity.RefusedTest.test_driver_with_wrong_password_is_not_healthy"
    ),
    ("CreateSnapshot", "Snapshot already exists but is incompatible"): (
        "test_csi_snapshots.CreateTest."
        "test_create_snapshot_of_same_name_and_other_source_already_exists"
    ),
    ("CreateSnapshot", "Operation pending for snapshot"): (
        "test_csi_snapshots.SlowStorageTest.test_work_goes_on_and_is_found_by_next_calls"
    ),
    ("CreateSnapshot", "Not enough space to create snapshot"): (
        "test_csi_snapshots.CreateTest."
        "test_create_snapshot_beyond_quota_succeeds_when_quota_is_raised"
    ),
    ("DeleteSnapshot", "Snapshot in use"): (
        "test_csi_snapshots.SlowStorageTest.test_snapshot_of_which_a_volume_is_made_is_not_deleted"
    ),
    ("DeleteSnapshot", "Operation pending for snapshot"): (
        "test_csi_snapshots.SlowStorageTest.test_work_goes_on_and_is_found_by_next_calls"
    ),
    ("ListSnapshots", "Invalid starting_token"): (
        "test_csi_snapshots.ListTest.test_list_snapshots_with_invalid_token_is_aborted"
    ),
    ("GetSnapshot", "Snapshot does not exist"): (
        "test_csi_snapshots.ListTest.test_get_snapshot_shows_it_or_is_not_found"
    ),
}
"""Tests that need no storage, by their rows."""
MODES = {
    "SINGLE_NODE_WRITER": "FAILED_PRECONDITION",
    "SINGLE_NODE_SINGLE_WRITER": "FAILED_PRECONDITION",
    "SINGLE_NODE_MULTI_WRITER": "OK",
    "MULTI_NODE_SINGLE_WRITER": "OK",
}
"""Status of a publication at another path, by access mode, also if other fields differ."""


def call_names(*services):
    """Return the names of the calls that services have."""
    methods = [
        method.name
        for service in services
        for method in csi_pb2.DESCRIPTOR.services_by_name[service.name].methods
        if hasattr(service, server.method_name(method.name))
    ]
    return set(methods)


class _ControllerRows:
    """The calls of the Controller service."""

    @row("CreateVolume", "Source incompatible or not supported")
    def test_create_volume_from_volume_in_error_is_refused(self):
        volume_id = self.create()
        body = {"os-reset_status": {"status": "error"}}
        self.deployment.request("POST", f"/volumes/{volume_id}/action", body)
        fields = new_volume(f"{uuid.uuid4()}", volume_content_source=clone(volume_id))
        self.expect(**{**fields, "volume_capabilities": [self.capability]})

    @row("CreateVolume", "Source does not exist")
    def test_create_volume_from_missing_volume_is_not_found(self):
        self.expect(**new_volume(f"{uuid.uuid4()}", volume_content_source=clone(NOWHERE)))

    @row("CreateVolume", "Volume already exists but is incompatible")
    def test_create_volume_with_other_arguments_already_exists(self):
        name = f"{uuid.uuid4()}"
        for _ in range(2):
            volume_id = self.create(name=name)
        fields = new_volume(name, volume_capabilities=[self.capability])
        for other in (
            {"capacity_range": sizes(2 * GIB)},
            {"volume_capabilities": [block("MULTI_NODE_MULTI_WRITER")]},
            {"parameters": {"fsType": "xfs"}},
            {"accessibility_requirements": csi_pb2.TopologyRequirement(requisite=[zone("mars")])},
            {"volume_content_source": clone(NOWHERE)},
        ):
            self.expect(**{**fields, **other})
        self.assertEqual(volume_id, self.create(name=name))

    @row("CreateVolume", "Unable to provision in accessible_topology")
    def test_create_volume_in_zone_without_backend_exhausts_resources(self):
        place = csi_pb2.TopologyRequirement(requisite=[zone("mars")])
        self.expect(**new_volume(f"{uuid.uuid4()}", accessibility_requirements=place))

    @row("CreateVolume", "Unsupported capacity_range")
    def test_create_volume_of_unsupported_size_is_out_of_range(self):
        for requested in (sizes(1, GIB - 1), sizes(2**62), sizes(-1)):
            self.expect(**new_volume(f"{uuid.uuid4()}", capacity_range=requested))

    @row("DeleteVolume", "Volume in use")
    def test_delete_published_volume_is_refused(self):
        volume_id = self.create()
        self.publish(volume_id)
        self.expect(volume_id=volume_id)

    @row("ControllerPublishVolume", "Volume does not exist")
    def test_publish_missing_volume_is_not_found(self):
        for volume_id in (NOWHERE, "none", "../types", "\N{SNOWMAN}"):
            self.expect(**self.published(volume_id))

    @row("ControllerPublishVolume", "Node does not exist")
    def test_publish_at_missing_node_is_not_found(self):
        volume_id = self.create()
        for node_id in ("nowhere", "no where", "\N{SNOWMAN}"):
            self.expect(**self.published(volume_id, node_id=node_id))

    @row("ControllerPublishVolume", "Volume published but is incompatible")
    def test_publish_in_other_mode_already_exists(self):
        volume_id = self.create()
        for _ in range(2):
            self.publish(volume_id)
        self.expect(**self.published(volume_id, readonly=True))
        readers = mount("SINGLE_NODE_READER_ONLY")
        self.expect(**self.published(volume_id, volume_capability=readers))

    @row("ControllerPublishVolume", "Volume published to another node")
    def test_publish_at_second_node_names_the_first(self):
        volume_id = self.create()
        self.publish(volume_id)
        text = self.expect(**self.published(volume_id, 1))
        self.assertIn(self.nodes[0].host.name, text)

    @row("ControllerPublishVolume", "Max volumes attached")
    def test_publish_at_full_node_exhausts_resources(self):
        host = AgentHost(self.deployment, self)
        host.set("max_attachments = 1")
        host.start()
        first, second = self.create(), self.create()
        self.publish(first, node_id=host.name)
        self.expect(**self.published(second, node_id=host.name))
        self.controller.call("ControllerUnpublishVolume", volume_id=first)
        self.publish(second, node_id=host.name)
        self.controller.call("ControllerUnpublishVolume", volume_id=second)

    @row("ValidateVolumeCapabilities", "Volume does not exist")
    def test_validate_missing_volume_is_not_found(self):
        self.expect(volume_id=NOWHERE, volume_capabilities=[mount()])

    @row("ListVolumes", "Invalid starting_token")
    def test_list_volumes_with_invalid_token_is_aborted(self):
        for token in ("none", NOWHERE, "1"):
            self.expect(starting_token=token)

    @row("ControllerGetVolume", "Volume does not exist")
    def test_get_missing_volume_is_not_found(self):
        self.expect(volume_id=NOWHERE)

    @row("ControllerExpandVolume", "Exceeds capabilities")
    def test_expand_volume_with_impossible_capability_is_refused(self):
        volume_id, larger = self.create(), sizes(2 * GIB)
        for other in (mount("MULTI_NODE_MULTI_WRITER"), block("MULTI_NODE_READER_ONLY")):
            self.expect(volume_id=volume_id, capacity_range=larger, volume_capability=other)

    @row("ControllerExpandVolume", "Volume does not exist")
    def test_expand_missing_volume_is_not_found(self):
        self.expect(volume_id=NOWHERE, capacity_range=sizes(GIB))

    @row("ControllerExpandVolume", "Unsupported capacity_range")
    def test_expand_volume_to_unsupported_size_is_out_of_range(self):
        volume_id = self.create()
        for requested in (sizes(GIB + 1, 2 * GIB - 1), sizes(2**62), sizes(-1)):
            self.expect(volume_id=volume_id, capacity_range=requested)


class _NodeRows:
    """The calls of the Node service."""

    @row("NodeStageVolume", "Volume does not exist")
    def test_stage_missing_volume_is_not_found(self):
        volume_id = self.create()
        context = self.publish(volume_id)
        self.expect(**self.staged("none", context))
        self.controller.call("ControllerUnpublishVolume", volume_id=volume_id)
        self.expect(**self.staged(volume_id, context))

    @row("NodeStageVolume", "Volume published but is incompatible")
    def test_stage_with_other_capability_already_exists(self):
        staged = self.stage()
        for other in (block(SEVERAL_WRITERS), mount(SEVERAL_WRITERS, fs_type="xfs")):
            self.expect(**{**staged, "volume_capability": other})

    @row("NodeStageVolume", "Exceeds capabilities")
    def test_stage_at_second_path_is_refused(self):
        staged = self.stage()
        self.expect(**{**staged, "staging_target_path": self.path("elsewhere")})

    @row("NodeUnstageVolume", "Volume does not exist")
    def test_unstage_id_of_no_volume_is_not_found(self):
        self.expect(volume_id="none", staging_target_path=self.path("staging"))

    @row("NodePublishVolume", "Volume does not exist")
    def test_publish_id_of_no_volume_at_path_is_not_found(self):
        self.expect(**{**self.staged("none", {}), "target_path": self.path("pod0")})

    @row("NodePublishVolume", "Volume published but is incompatible")
    def test_second_publication_at_same_path_has_to_be_the_same(self):
        for staged in self.each_mode():
            self.start_pod(staged)
            self.start_pod(staged)
            self.expect(**staged, target_path=self.path("pod0"), readonly=True)

    @row("NodePublishVolume", "Exceeds capabilities")
    def test_second_publication_at_other_path_depends_on_mode(self):
        for staged in self.each_mode():
            modes = csi_pb2.VolumeCapability.AccessMode.Mode
            mode = modes.Name(staged["volume_capability"].access_mode.mode)
            self.start_pod(staged)
            for readonly in (False, True):
                request = {**staged, "target_path": self.path("pod1"), "readonly": readonly}
                with self.subTest(mode=mode, readonly=readonly):
                    if MODES[mode] != "OK":
                        self.expect(**request)
                        continue
                    for _ in range(2):
                        self.nodes[0].driver.call("NodePublishVolume", **request)
                    fields = {"volume_id": staged["volume_id"], "target_path": self.path("pod1")}
                    self.nodes[0].driver.call("NodeUnpublishVolume", **fields)

    def each_mode(self):
        """Yield the fields of a staged volume for each access mode."""
        name = self.shared_type()
        for mode in MODES:
            self.capability = mount(mode, fs_type="ext4")
            staged = self.stage(parameters={"type": name})
            yield staged
            self.remove(staged["volume_id"])

    @row("NodePublishVolume", "Staging target path not set")
    def test_publish_without_staging_path_is_refused(self):
        staged = self.stage()
        del staged["staging_target_path"]
        self.expect(**staged, target_path=self.path("pod0"))

    @row("NodeUnpublishVolume", "Volume does not exist")
    def test_unpublish_id_of_no_volume_is_not_found(self):
        self.expect(volume_id="none", target_path=self.path("pod0"))

    @row("NodeGetVolumeStats", "Volume does not exist")
    def test_stats_of_volume_elsewhere_are_not_found(self):
        staged = self.stage()
        self.expect(volume_id=staged["volume_id"], volume_path="/elsewhere")
        self.expect(volume_id=NOWHERE, volume_path=staged["staging_target_path"])

    @row("NodeExpandVolume", "Exceeds capabilities")
    def test_expand_mounted_volume_as_block_is_refused(self):
        staged = self.stage()
        fields = {"volume_path": staged["staging_target_path"], "volume_capability": block()}
        self.expect(volume_id=staged["volume_id"], **fields)

    @row("NodeExpandVolume", "Volume does not exist")
    def test_expand_volume_elsewhere_is_not_found(self):
        staged = self.stage()
        self.expect(volume_id=staged["volume_id"], volume_path="/elsewhere")
        self.expect(volume_id=NOWHERE, volume_path=staged["staging_target_path"])

    @row("NodeExpandVolume", "Volume in use")
    def test_expand_file_system_that_other_node_may_have_mounted_is_refused(self):
        self.capability = mount("MULTI_NODE_SINGLE_WRITER", fs_type="ext4")
        staged = self.stage(parameters={"type": self.shared_type()})
        self.publish(staged["volume_id"], 1, readonly=True)
        larger = self.expand(staged["volume_id"], 2)
        fields = {"volume_path": staged["staging_target_path"], "capacity_range": larger}
        self.expect(volume_id=staged["volume_id"], **fields)

    @row("NodeExpandVolume", "Unsupported capacity_range")
    def test_expand_beyond_volume_is_out_of_range(self):
        staged = self.stage()
        fields = {"volume_path": staged["staging_target_path"], "capacity_range": sizes(5 * GIB)}
        self.expect(volume_id=staged["volume_id"], **fields)


class _Lives:
    """Calls that succeed, each twice, and what holds for any call."""

    def call(self, driver, name, /, **fields):
        """Make a call twice, whose responses are the same; return the response."""
        first, again = (driver.call(name, **fields) for _ in range(2))
        if name != "NodeGetVolumeStats":
            self.assertEqual(first, again)
        self.called.add(name)
        return again

    def test_each_call_succeeds_twice_with_mounted_volume(self):
        self.live(mount(SEVERAL_WRITERS, fs_type="xfs"))

    def test_each_call_succeeds_twice_with_block_volume(self):
        self.live(block(SEVERAL_WRITERS))

    def live(self, capability):
        """Create a volume, use it at both nodes, and delete it."""
        self.called, self.capability = set(), capability
        self.context, self.size = {}, 2 * GIB
        control = functools.partial(self.call, self.controller)
        for name in ("GetPluginInfo", "GetPluginCapabilities", "Probe"):
            control(name)
        control("ControllerGetCapabilities")
        control("GetCapacity")
        request = new_volume(f"pvc-{uuid.uuid4()}", volume_capabilities=[capability])
        volume_id = control("CreateVolume", **request).volume.volume_id
        of_volume = {"volume_id": volume_id}
        control("ValidateVolumeCapabilities", volume_capabilities=[capability], **of_volume)
        control("ControllerExpandVolume", capacity_range=sizes(2 * GIB), **of_volume)
        written = uuid.uuid4().bytes
        self.assertEqual(written, self.use(volume_id, 0, written))
        snapshot_id = self.take_snapshot(volume_id)
        self.assertEqual(written, self.use(volume_id, 1))
        source = {
            "volume_content_source": restore(snapshot_id),
            "capacity_range": sizes(3 * GIB),
        }
        request = new_volume(f"pvc-{uuid.uuid4()}", volume_capabilities=[capability], **source)
        restored = control("CreateVolume", **request).volume
        control("DeleteSnapshot", snapshot_id=snapshot_id)
        self.context, self.size = dict(restored.volume_context), 3 * GIB
        self.assertEqual(written, self.use(restored.volume_id, 1))
        for deleted in (restored.volume_id, volume_id):
            control("DeleteVolume", volume_id=deleted)
        self.assertEqual(call_names(Identity, Controller, Node), self.called)

    def take_snapshot(self, volume_id):
        """Take a snapshot; return its id."""
        control = functools.partial(self.call, self.controller)
        request = {"name": f"snapshot-{uuid.uuid4()}", "source_volume_id": volume_id}
        taken = control("CreateSnapshot", **request).snapshot
        self.assertTrue(taken.ready_to_use)
        found = {"snapshot_id": taken.snapshot_id}
        self.assertEqual(taken, control("GetSnapshot", **found).snapshot)
        (entry,) = control("ListSnapshots", **found).entries
        self.assertEqual(taken, entry.snapshot)
        return taken.snapshot_id

    def use(self, volume_id, number, written=b""):
        """Have a pod at a node write to a volume and read it; return what is read."""
        node, of_volume = self.nodes[number], {"volume_id": volume_id}
        control = functools.partial(self.call, self.controller)
        call = functools.partial(self.call, node.driver)
        call("NodeGetInfo")
        call("NodeGetCapabilities")
        published = control("ControllerPublishVolume", **self.published(volume_id, number))
        self.check_nodes(volume_id, [node.host.name])
        staged = self.staged(volume_id, dict(published.publish_context), number)
        staged["volume_context"] = self.context
        call("NodeStageVolume", **staged)
        path = self.path("pod0", number)
        call("NodePublishVolume", **staged, target_path=path)
        self.check_size(path)
        found = self.exchange(path, written)
        condition = call("NodeGetVolumeStats", volume_path=path, **of_volume).volume_condition
        self.assertFalse(condition.abnormal, condition.message)
        expanded = {"volume_path": path, "capacity_range": sizes(self.size), **of_volume}
        self.assertEqual(self.size, call("NodeExpandVolume", **expanded).capacity_bytes)
        call("NodeUnpublishVolume", target_path=path, **of_volume)
        staging = staged["staging_target_path"]
        call("NodeUnstageVolume", staging_target_path=staging, **of_volume)
        control("ControllerUnpublishVolume", node_id=node.host.name, **of_volume)
        self.check_nodes(volume_id, [])
        return found

    def check_size(self, path):
        """Check that a file system has the size of its volume."""
        if self.capability.HasField("mount"):
            found = os.statvfs(path)
            self.assertGreater(found.f_blocks * found.f_frsize, self.size - GIB / 2)

    def check_nodes(self, volume_id, nodes):
        """Check where a volume is published, by both calls that show it."""
        shown = self.call(self.controller, "ControllerGetVolume", volume_id=volume_id)
        listed = self.call(self.controller, "ListVolumes").entries
        (entry,) = [item for item in listed if item.volume.volume_id == volume_id]
        self.assertEqual(nodes, list(shown.status.published_node_ids))
        self.assertEqual(nodes, list(entry.status.published_node_ids))

    def exchange(self, path, written):
        """Write to a volume unless there is nothing to write; return what is read."""
        if self.capability.HasField("mount"):
            path = f"{path}/file"
            Path(path).touch()
        with Path(path).open("r+b", buffering=0) as file:
            file.write(written)
            file.seek(0)
            return file.read(16)

    @row(ANY_CALL, "Operation pending for volume")
    def test_second_call_while_first_one_waits_is_aborted(self):
        volume_id, node = self.create(), self.nodes[0]
        with self.frozen_agent(node):
            published = self.check_pending(
                self.controller, "ControllerPublishVolume", **self.published(volume_id)
            )
        staged = self.staged(volume_id, published.result().publish_context)
        with self.frozen_agent(node):
            first = self.check_pending(node.driver, "NodeStageVolume", **staged)
        first.result()

    @contextlib.contextmanager
    def frozen_agent(self, node):
        """Stop the agent of a node for a while."""
        agent = node.host.agents[-1]
        agent.send(signal.SIGSTOP)
        try:
            yield
        finally:
            agent.send(signal.SIGCONT)

    def check_pending(self, driver, name, /, **fields):
        """Make a call, and check that others are aborted; return what will be its response."""
        first = driver.start_call(name, **fields)
        code = ROWS[ANY_CALL]["Operation pending for volume"]
        # One that overtakes the first one ends at its time limit.
        wait.wait_until(lambda: self.fail_soon(driver, name, fields) == code)
        self.assertEqual(code, self.fail_soon(driver, name, fields))
        self.assertFalse(first.done())
        return first

    def fail_soon(self, driver, name, fields):
        """Make a call that ends while the agent is stopped; return its code."""
        with self.assertRaises(grpc.RpcError) as caught:
            # The agent is stopped: it answers to no call.
            driver.call(name, timeout=3, **fields)
        return caught.exception.code().name


class TgtRowCase(RowCase):
    kind = AgentDeployment


class FileRowCase(RowCase):
    kind = FileDeployment


class RbdRowCase(RowCase):
    kind = RbdDeployment


@full_only("containers")
class TgtControllerRowsTest(_ControllerRows, TgtRowCase):
    pass


@full_only("containers")
class FileControllerRowsTest(_ControllerRows, FileRowCase):
    pass


@full_only("containers")
class RbdControllerRowsTest(_ControllerRows, RbdRowCase):
    pass


@full_only("containers")
class TgtNodeRowsTest(_NodeRows, TgtRowCase):
    pass


@full_only("containers")
class FileNodeRowsTest(_NodeRows, FileRowCase):
    pass


@full_only("containers")
class RbdNodeRowsTest(_NodeRows, RbdRowCase):
    pass


@full_only("containers")
class TgtLivesTest(_Lives, TgtRowCase):
    pass


@full_only("containers")
class FileLivesTest(_Lives, FileRowCase):
    pass


@full_only("containers")
class RbdLivesTest(_Lives, RbdRowCase):
    pass


class RequestTest(unittest.TestCase):
    """Rows that need no storage."""

    def setUp(self):
        super().setUp()
        self.driver = csi_driver.CsiDriver(self, csi_nodes.NOWHERE, "--mode=all")

    @row(ANY_CALL, "Missing required field")
    def test_request_without_required_field_is_refused_by_its_name(self):
        for message, names in validation.REQUIRED.items():
            complete = {name: example(message, name) for name in names}
            for name in names:
                fields = {key: value for key, value in complete.items() if key != name}
                call = message.removesuffix("Request")
                text = self.driver.fail("INVALID_ARGUMENT", call, **fields)
                self.assertIn(f"The field {name} is required", text)

    @row(ANY_CALL, "Invalid or unsupported field in the request")
    def test_request_with_invalid_text_is_refused_by_name_of_field(self):
        for message, names in validation.REQUIRED.items():
            complete = {name: example(message, name) for name in names}
            texts = [name for name, value in complete.items() if isinstance(value, str)]
            call = message.removesuffix("Request")
            for name, value in itertools.product(texts, ("x" * 5000, "a\0b")):
                text = self.driver.fail("INVALID_ARGUMENT", call, **{**complete, name: value})
                self.assertIn(f"The field {name} has", text)

    @row(ANY_CALL, "Call not implemented")
    def test_call_of_no_service_is_not_implemented(self):
        controller = csi_driver.CsiDriver(self, csi_nodes.NOWHERE)
        for name in call_names(Node):
            controller.fail("UNIMPLEMENTED", name)
        for name in (
            "Controller/ControllerModifyVolume",
            "GroupController/CreateVolumeGroupSnapshot",
            "SnapshotMetadata/GetMetadataAllocated",
        ):
            self.driver.fail_unknown("UNIMPLEMENTED", f"/csi.v1.{name}")


class SpecificationTest(unittest.TestCase):
    def test_each_row_of_specification_has_a_test_or_a_reason(self):
        rows = {(call, condition) for call, of_call in ROWS.items() for condition in of_call}
        cases = (TgtControllerRowsTest, TgtNodeRowsTest, TgtLivesTest, RequestTest)
        self.assertEqual(rows, {*tested_rows(*cases), *ELSEWHERE, *EXCLUDED})
        for name in ELSEWHERE.values():
            module, case, test = name.split(".")
            found = importlib.import_module(f"attachd.tests.functional.{module}")
            self.assertTrue(callable(getattr(getattr(found, case), test)))


def example(message, field_name):
    """Return a valid value of a field of a request."""
    field = csi_pb2.DESCRIPTOR.message_types_by_name[message].fields_by_name[field_name]
    if field.message_type is None:
        return "x"
    value = mount() if field.message_type.name == "VolumeCapability" else sizes(GIB)
    return [value] if field.is_repeated else value
