# SPDX-License-Identifier: Apache-2.0
import unittest
import uuid

from attachd.csi import csi_pb2
from attachd.csi.controller import CAPABILITIES, Controller
from attachd.platforms.calls import CallError
from attachd.platforms.publication import Fence
from attachd.tests.fixtures.csi_requests import GIB, block, mount, new_volume, sizes
from attachd.tests.unit.platforms.fake_storage import FakeStorage, refusal

_RPC = csi_pb2.ControllerServiceCapability.RPC


class ControllerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.storage = FakeStorage()
        self.controller = Controller(self.storage, "csi.example.org", Fence.PROVED)

    def failed(self, method, request):
        with self.assertRaises(CallError) as caught:
            method(request)
        return caught.exception.code.name, f"{caught.exception}"

    def test_capabilities_are_those_of_table(self):
        request = csi_pb2.ControllerGetCapabilitiesRequest()
        response = self.controller.controller_get_capabilities(request)
        claimed = [item.rpc.type for item in response.capabilities]
        self.assertEqual(list(CAPABILITIES), claimed)
        self.assertNotIn(_RPC.MODIFY_VOLUME, claimed)

    def test_create_volume_returns_volume(self):
        self.storage.statuses = ["available"]
        request = csi_pb2.CreateVolumeRequest(**new_volume("pvc"))
        volume = self.controller.create_volume(request).volume
        self.assertIn(volume.volume_id, self.storage.volumes)

    def test_delete_volume_waits_until_it_is_gone(self):
        volume = self.storage.add(status="deleting")
        self.storage.statuses = ["deleting", "deleting", None]
        request = csi_pb2.DeleteVolumeRequest(volume_id=volume.id)
        for _ in range(2):
            self.controller.delete_volume(request)
        self.assertEqual([], self.storage.requested)

    def test_missing_volumes_are_not_found(self):
        for method, request in (
            (self.controller.controller_get_volume, csi_pb2.ControllerGetVolumeRequest()),
            (
                self.controller.validate_volume_capabilities,
                csi_pb2.ValidateVolumeCapabilitiesRequest(),
            ),
            (
                self.controller.controller_publish_volume,
                csi_pb2.ControllerPublishVolumeRequest(),
            ),
            (
                self.controller.controller_expand_volume,
                csi_pb2.ControllerExpandVolumeRequest(),
            ),
        ):
            request.volume_id = "none"
            self.assertEqual(
                ("NOT_FOUND", "There is no volume none."), self.failed(method, request)
            )

    def test_invalid_tokens_are_aborted(self):
        self.storage.failures = [refusal(404, "marker_not_found")]
        for token in ("none", str(uuid.uuid4())):
            request = csi_pb2.ListVolumesRequest(starting_token=token)
            self.assertEqual("ABORTED", self.failed(self.controller.list_volumes, request)[0])
        request = csi_pb2.ListVolumesRequest(max_entries=-1)
        self.assertEqual("INVALID_ARGUMENT", self.failed(self.controller.list_volumes, request)[0])

    def test_validation_confirms_what_is_possible(self):
        volume = self.storage.add(metadata={"csi.parameter.fsType": "xfs"})
        request = csi_pb2.ValidateVolumeCapabilitiesRequest(
            volume_id=volume.id, volume_capabilities=[mount()], parameters={"fsType": "xfs"}
        )
        response = self.controller.validate_volume_capabilities(request)
        self.assertEqual({"fsType": "xfs"}, dict(response.confirmed.parameters))
        request.parameters["fsType"] = "ext4"
        response = self.controller.validate_volume_capabilities(request)
        self.assertFalse(response.HasField("confirmed"))
        self.assertIn("other parameters", response.message)

    def test_snapshot_is_created_shown_and_deleted(self):
        self.storage.statuses = ["available"] * 2
        volume = self.storage.add()
        request = csi_pb2.CreateSnapshotRequest(name="a", source_volume_id=volume.id)
        shown = self.controller.create_snapshot(request).snapshot
        got = csi_pb2.GetSnapshotRequest(snapshot_id=shown.snapshot_id)
        self.assertEqual(shown, self.controller.get_snapshot(got).snapshot)
        (entry,) = self.controller.list_snapshots(csi_pb2.ListSnapshotsRequest()).entries
        self.assertEqual(shown, entry.snapshot)
        deleted = csi_pb2.DeleteSnapshotRequest(snapshot_id=shown.snapshot_id)
        for _ in range(2):
            self.controller.delete_snapshot(deleted)
        self.assertEqual({}, self.storage.snapshots)

    def test_publish_volume_returns_only_id_of_attachment(self):
        volume = self.storage.add()
        request = csi_pb2.ControllerPublishVolumeRequest(
            volume_id=volume.id, node_id="one", volume_capability=mount(), readonly=True
        )
        response = self.controller.controller_publish_volume(request)
        (attachment,) = self.storage.attached
        self.assertEqual({"attachd.attachment_id": attachment.id}, dict(response.publish_context))
        self.assertEqual(("one", "ro"), (attachment.node, attachment.mode))

    def test_publish_volume_with_impossible_capability_is_refused(self):
        volume = self.storage.add()
        for capability in (mount("MULTI_NODE_MULTI_WRITER"), block("MULTI_NODE_READER_ONLY")):
            request = csi_pb2.ControllerPublishVolumeRequest(
                volume_id=volume.id, node_id="one", volume_capability=capability
            )
            code, _ = self.failed(self.controller.controller_publish_volume, request)
            self.assertEqual("INVALID_ARGUMENT", code)

    def test_unpublish_volume_that_never_was_succeeds(self):
        for volume_id in ("none", str(uuid.uuid4())):
            self.controller.controller_unpublish_volume(
                csi_pb2.ControllerUnpublishVolumeRequest(volume_id=volume_id, node_id="one")
            )
        self.assertEqual([], self.storage.requested)

    def test_expansion_needs_node(self):
        volume = self.storage.add()
        request = csi_pb2.ControllerExpandVolumeRequest(
            volume_id=volume.id, capacity_range=sizes(2 * GIB)
        )
        response = self.controller.controller_expand_volume(request)
        self.assertEqual(
            (2 * GIB, True), (response.capacity_bytes, response.node_expansion_required)
        )

    def test_expansion_with_impossible_capability_is_refused(self):
        request = csi_pb2.ControllerExpandVolumeRequest(
            volume_id=self.storage.add().id,
            capacity_range=sizes(2 * GIB),
            volume_capability=block("MULTI_NODE_MULTI_WRITER"),
        )
        code, _ = self.failed(self.controller.controller_expand_volume, request)
        self.assertEqual("INVALID_ARGUMENT", code)
        self.assertEqual([], self.storage.requested)
