# SPDX-License-Identifier: Apache-2.0
"""Calls of the Node service that need no device; functional/test_csi_node.py has others."""

from pathlib import Path
import unittest
from unittest import mock
import uuid

from attachd import exception
from attachd.agent.journal import Entry, Journal
from attachd.agent.local_socket import CallError as AgentError
from attachd.agent.local_socket import Code
from attachd.agent.staging import Staging
from attachd.csi import csi_pb2
from attachd.csi.node import ATTACHMENT_CONTEXT, Node
from attachd.csi.node_paths import PathRules
from attachd.node.agent_client import AgentClient, DeviceInfo, GrownDevice, HostInfo
from attachd.node.volumes import NodeVolumes
from attachd.platforms.calls import CallError, ErrorCode, NotReady
from attachd.tests.fixtures.lifetime import temp_dir

_VOLUME, _OTHER = (f"{uuid.UUID(int=number)}" for number in (1, 2))
_STAGING, _TARGET = "/staging", "/pods/1"
_GIB = 2**30
_Capability = csi_pb2.VolumeCapability


def capability(**fields):
    """Return a capability of a file system, with a mode that permits several publications."""
    return _Capability(
        mount=_Capability.MountVolume(**fields),
        access_mode=_Capability.AccessMode(mode="SINGLE_NODE_MULTI_WRITER"),
    )


class NodeTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.journal = Journal(temp_dir(self))
        self.agent = mock.create_autospec(AgentClient, instance=True)
        self.agent.get_host.return_value = HostInfo("node-1", None, self.journal.state_path, 28)
        self.agent.get_device.return_value = DeviceInfo(_VOLUME, "/dev/sdx", "rw", _GIB, None)
        self.node = Node(self.agent, {"zone": "a"}, PathRules(None), assume_empty=True)
        for name in ("stage", "unstage", "publish", "unpublish", "grow"):
            patched = mock.patch.object(NodeVolumes, name, autospec=True)
            setattr(self, name, self.enterContext(patched))

    def add_entry(self, fs_type="ext4", **values):
        staging = Staging(_STAGING, fs_type, **values)
        self.journal.write(Entry(_VOLUME, attachment_id="a", staging=staging))

    def stage_request(self, **fields):
        values = {
            "volume_id": _VOLUME,
            "staging_target_path": _STAGING,
            "publish_context": {ATTACHMENT_CONTEXT: "a"},
            "volume_capability": capability(),
        }
        return csi_pb2.NodeStageVolumeRequest(**{**values, **fields})

    def publish_request(self, **fields):
        values = {
            "volume_id": _VOLUME,
            "staging_target_path": _STAGING,
            "target_path": _TARGET,
            "volume_capability": capability(),
        }
        return csi_pb2.NodePublishVolumeRequest(**{**values, **fields})

    def expand(self, required=0, limit=0, **fields):
        sizes = csi_pb2.CapacityRange(required_bytes=required, limit_bytes=limit)
        values = {"volume_id": _VOLUME, "volume_path": _STAGING, "capacity_range": sizes}
        request = csi_pb2.NodeExpandVolumeRequest(**{**values, **fields})
        return self.node.node_expand_volume(request)

    def assert_refused(self, code, message, call, *arguments, **named):
        with self.assertRaisesRegex(CallError, message) as raised:
            call(*arguments, **named)
        self.assertEqual(code, raised.exception.code)

    def test_capabilities_are_those_of_the_calls(self):
        request = csi_pb2.NodeGetCapabilitiesRequest()
        found = self.node.node_get_capabilities(request).capabilities
        names = csi_pb2.NodeServiceCapability.RPC.Type
        expected = {
            "STAGE_UNSTAGE_VOLUME",
            "GET_VOLUME_STATS",
            "EXPAND_VOLUME",
            "VOLUME_CONDITION",
            "SINGLE_NODE_MULTI_WRITER",
            "VOLUME_MOUNT_GROUP",
        }
        self.assertEqual(expected, {names.Name(item.rpc.type) for item in found})

    def test_info_is_that_of_agent(self):
        request = csi_pb2.NodeGetInfoRequest()
        info = self.node.node_get_info(request)
        self.assertEqual(("node-1", 28), (info.node_id, info.max_volumes_per_node))
        self.assertEqual({"zone": "a"}, dict(info.accessible_topology.segments))
        self.agent.get_host.return_value = HostInfo("node-1", None, Path("/"), None)
        info = Node(self.agent, {}, PathRules(None)).node_get_info(request)
        self.assertEqual(0, info.max_volumes_per_node)
        self.assertFalse(info.HasField("accessible_topology"))

    def test_node_without_agent_is_not_ready(self):
        self.node.check()
        self.agent.get_host.side_effect = AgentError(Code.UNAVAILABLE, "away")
        with self.assertRaisesRegex(NotReady, "away"):
            self.node.check()
        request = csi_pb2.NodeGetInfoRequest()
        self.assert_refused(ErrorCode.UNAVAILABLE, "away", self.node.node_get_info, request)

    def test_stage_waits_for_device(self):
        self.node.node_stage_volume(self.stage_request())
        (attachment_id, timeout), _ = self.agent.get_device.call_args
        self.assertEqual("a", attachment_id)
        self.assertGreater(timeout, 0)
        (_volumes, target, staging), options = self.stage.call_args
        self.assertEqual(("/dev/sdx", "rw"), (target.device, target.mode))
        self.assertEqual(Staging(_STAGING, "ext4"), staging)
        self.assertEqual({"assume_empty": True, "group": None}, options)

    def test_group_is_passed_on(self):
        with_group = {"volume_capability": capability(volume_mount_group="1000")}
        self.node.node_stage_volume(self.stage_request(**with_group))
        self.assertEqual(1000, self.stage.call_args.kwargs["group"])
        self.node.node_publish_volume(self.publish_request(**with_group))
        self.assertEqual(1000, self.publish.call_args.kwargs["group"])

    def test_stage_of_impossible_volume_is_refused(self):
        invalid = ErrorCode.INVALID_ARGUMENT
        for code, message, fields in (
            (ErrorCode.NOT_FOUND, "no volume '../x'", {"volume_id": "../x"}),
            (ErrorCode.NOT_FOUND, "no volume", {"volume_id": _VOLUME.upper() + "A"}),
            (invalid, ATTACHMENT_CONTEXT, {"publish_context": {}}),
            (invalid, f"is of volume {_VOLUME}", {"volume_id": _OTHER}),
            (invalid, "btrfs", {"volume_capability": capability(fs_type="btrfs")}),
        ):
            request = self.stage_request(**fields)
            self.assert_refused(code, message, self.node.node_stage_volume, request)
        self.stage.assert_not_called()

    def test_publication_is_read_only_if_requested(self):
        for fields, expected in (
            ({}, False),
            ({"readonly": True}, True),
            ({"volume_capability": capability(mount_flags=["ro"])}, True),
        ):
            self.node.node_publish_volume(self.publish_request(**fields))
            self.assertEqual(expected, self.publish.call_args.args[3].read_only)

    def test_publication_without_staging_path_is_refused(self):
        request = self.publish_request(staging_target_path="")
        self.assert_refused(
            ErrorCode.FAILED_PRECONDITION,
            "staging_target_path",
            self.node.node_publish_volume,
            request,
        )

    def test_end_is_passed_on(self):
        self.node.node_unpublish_volume(
            csi_pb2.NodeUnpublishVolumeRequest(volume_id=_VOLUME, target_path=_TARGET)
        )
        self.assertEqual((_VOLUME, _TARGET), self.unpublish.call_args.args[1:])
        self.node.node_unstage_volume(
            csi_pb2.NodeUnstageVolumeRequest(volume_id=_VOLUME, staging_target_path=_STAGING)
        )
        self.assertEqual((_VOLUME, _STAGING), self.unstage.call_args.args[1:])

    def test_volume_at_unknown_path_is_not_found(self):
        self.add_entry()
        request = csi_pb2.NodeGetVolumeStatsRequest(volume_id=_VOLUME, volume_path="/x")
        self.assert_refused(ErrorCode.NOT_FOUND, "at /x", self.node.node_get_volume_stats, request)
        self.assert_refused(ErrorCode.NOT_FOUND, "at /x", self.expand, volume_path="/x")

    def test_stats_have_a_condition(self):
        self.add_entry()
        request = csi_pb2.NodeGetVolumeStatsRequest(volume_id=_VOLUME, volume_path=_STAGING)
        condition = self.node.node_get_volume_stats(request).volume_condition
        self.assertTrue(condition.abnormal)
        self.assertIn("not mounted", condition.message)

    def stage_copy(self, **fields):
        request = self.stage_request(volume_context={"attachd.copy": "true"}, **fields)
        return self.node.node_stage_volume(request)

    def test_file_system_of_copy_grows_when_it_is_staged(self):
        self.agent.grow.return_value = GrownDevice(2 * _GIB, 2 * _GIB, is_shared=False)
        self.stage_copy()
        self.grow.assert_called_once_with(mock.ANY, _VOLUME, _STAGING)
        self.node.node_stage_volume(self.stage_request())
        self.grow.assert_called_once()

    def test_copy_that_another_node_may_have_mounted_does_not_grow(self):
        self.agent.grow.return_value = GrownDevice(_GIB, _GIB, is_shared=True)
        self.stage_copy()
        self.grow.assert_not_called()

    def test_device_and_reader_of_copy_do_not_grow(self):
        mode = _Capability.AccessMode(mode="SINGLE_NODE_READER_ONLY")
        mounted = _Capability(mount=_Capability.MountVolume(), access_mode=mode)
        block = _Capability(block=_Capability.BlockVolume(), access_mode=mode)
        for found in (mounted, block):
            self.stage_copy(volume_capability=found)
        self.agent.grow.assert_not_called()

    def test_copy_that_does_not_grow_is_unavailable(self):
        self.agent.grow.return_value = GrownDevice(_GIB, _GIB, is_shared=False)
        self.grow.side_effect = exception.HostError(reason="dmesg")
        self.assert_refused(ErrorCode.UNAVAILABLE, "dmesg", self.stage_copy)

    def test_volume_is_expanded_with_its_file_system(self):
        self.add_entry()
        self.agent.grow.return_value = GrownDevice(2 * _GIB, 2 * _GIB, is_shared=False)
        self.assertEqual(2 * _GIB, self.expand(2 * _GIB).capacity_bytes)
        self.grow.assert_called_once()

    def test_volume_of_wrong_size_is_not_expanded(self):
        self.add_entry()
        self.agent.grow.return_value = GrownDevice(_GIB, 2 * _GIB, is_shared=False)
        for code, sizes in (
            (ErrorCode.OUT_OF_RANGE, (3 * _GIB, 0)),
            (ErrorCode.OUT_OF_RANGE, (0, _GIB)),
            (ErrorCode.UNAVAILABLE, (2 * _GIB, 0)),
        ):
            self.assert_refused(code, "bytes", self.expand, *sizes)
        self.grow.assert_not_called()

    def test_file_system_that_another_node_may_have_mounted_does_not_grow(self):
        self.agent.grow.return_value = GrownDevice(_GIB, _GIB, is_shared=True)
        self.add_entry()
        self.assert_refused(ErrorCode.FAILED_PRECONDITION, "Another node", self.expand)
        self.grow.assert_not_called()

    def test_device_and_reader_of_shared_volume_are_expanded(self):
        self.agent.grow.return_value = GrownDevice(_GIB, _GIB, is_shared=True)
        self.add_entry(None)
        self.assertEqual(_GIB, self.expand().capacity_bytes)

    def test_expansion_with_other_capability_is_refused(self):
        self.add_entry(None)
        self.assert_refused(
            ErrorCode.INVALID_ARGUMENT, "staged", self.expand, volume_capability=capability()
        )
