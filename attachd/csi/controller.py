# SPDX-License-Identifier: Apache-2.0
"""The Controller service, a client of attachd's API."""

from collections import defaultdict
from typing import Final

from attachd.csi import (
    access,
    capacity,
    claim,
    csi_pb2,
    expansion,
    new_volume,
    pages,
    volume_view,
)
from attachd.csi.new_volume import NewVolume, SizeRange
from attachd.csi.snapshots import Snapshots
from attachd.platforms import deletion
from attachd.platforms.calls import CallError, ErrorCode
from attachd.platforms.creation import VolumeCreator
from attachd.platforms.publication import Fence, Publication, Publisher
from attachd.platforms.resources import is_id
from attachd.platforms.storage import GIB, Storage, StoredAttachment, StoredVolume

ATTACHMENT_KEY: Final = "attachd.attachment_id"
"""The only key of publish_context."""

_RPC = csi_pb2.ControllerServiceCapability.RPC

CAPABILITIES: Final = (
    _RPC.CREATE_DELETE_SNAPSHOT,
    _RPC.CREATE_DELETE_VOLUME,
    _RPC.CLONE_VOLUME,
    _RPC.EXPAND_VOLUME,
    _RPC.GET_CAPACITY,
    _RPC.GET_SNAPSHOT,
    _RPC.GET_VOLUME,
    _RPC.LIST_SNAPSHOTS,
    _RPC.LIST_VOLUMES,
    _RPC.LIST_VOLUMES_PUBLISHED_NODES,
    _RPC.PUBLISH_READONLY,
    _RPC.PUBLISH_UNPUBLISH_VOLUME,
    _RPC.SINGLE_NODE_MULTI_WRITER,
    _RPC.VOLUME_CONDITION,
)


class Controller:
    """The Controller service.

    :param storage: the API
    :param driver: the name of the driver
    :param fence: when nodes whose agents are silent are fenced
    """

    name = "Controller"

    def __init__(self, storage: Storage, driver: str, fence: Fence) -> None:
        self._storage = storage
        self._driver = driver
        self._creator = VolumeCreator(storage)
        self._publisher = Publisher(storage, fence)
        self._snapshots = Snapshots(storage, driver)

    def check(self) -> None:
        """Check that the API answers this user.

        :raises NotReady: it does not answer
        :raises CallError: FAILED_PRECONDITION: it refuses this user, or is not there
        """
        self._storage.check()

    def controller_get_capabilities(
        self, _request: csi_pb2.ControllerGetCapabilitiesRequest
    ) -> csi_pb2.ControllerGetCapabilitiesResponse:
        """Return which calls the service has."""
        capabilities = [
            csi_pb2.ControllerServiceCapability(rpc=_RPC(type=rpc_type))
            for rpc_type in CAPABILITIES
        ]
        return csi_pb2.ControllerGetCapabilitiesResponse(capabilities=capabilities)

    def create_volume(self, request: csi_pb2.CreateVolumeRequest) -> csi_pb2.CreateVolumeResponse:
        """Create a volume, or return the one that has the name."""
        new = NewVolume.from_request(self._driver, request)
        volume = self._creator.create(new)
        show = volume_view.show_with_topology if new.wants_topology else volume_view.show
        return csi_pb2.CreateVolumeResponse(volume=show(volume))

    def delete_volume(self, request: csi_pb2.DeleteVolumeRequest) -> csi_pb2.DeleteVolumeResponse:
        """Delete a volume, and wait until it is gone; one that is gone is a success."""
        deletion.delete(self._storage.volumes, request.volume_id)
        return csi_pb2.DeleteVolumeResponse()

    def controller_publish_volume(
        self, request: csi_pb2.ControllerPublishVolumeRequest
    ) -> csi_pb2.ControllerPublishVolumeResponse:
        """Attach a volume at a node."""
        volume = self._get(request.volume_id)
        capability = request.volume_capability
        access.check([capability], is_shared=volume.is_multiattach)
        wanted = Publication(
            volume=volume,
            node=request.node_id,
            mode=access.attach_mode(capability, readonly=request.readonly),
            is_multi_node=access.is_multi_node(capability),
            has_one_writer=access.has_one_writer(capability),
        )
        claim.claim(self._storage, volume)
        attachment_id = self._publisher.publish(wanted)
        return csi_pb2.ControllerPublishVolumeResponse(
            publish_context={ATTACHMENT_KEY: attachment_id}
        )

    def controller_unpublish_volume(
        self, request: csi_pb2.ControllerUnpublishVolumeRequest
    ) -> csi_pb2.ControllerUnpublishVolumeResponse:
        """Detach a volume at a node, or at all; where it is not attached, that is a success."""
        if is_id(request.volume_id):
            self._publisher.unpublish(request.volume_id, request.node_id)
        return csi_pb2.ControllerUnpublishVolumeResponse()

    def validate_volume_capabilities(
        self, request: csi_pb2.ValidateVolumeCapabilitiesRequest
    ) -> csi_pb2.ValidateVolumeCapabilitiesResponse:
        """Return whether a volume can have all of some capabilities, or why not."""
        volume = self._get(request.volume_id)
        reason = access.find_reason(request.volume_capabilities, is_shared=volume.is_multiattach)
        parameters = {} if reason else new_volume.read_parameters(request.parameters)
        if parameters and parameters != new_volume.parameters_of(volume):
            reason = f"Volume {volume.id} was created with other parameters."
        if request.mutable_parameters:
            reason = "mutable_parameters are not supported."
        if reason:
            return csi_pb2.ValidateVolumeCapabilitiesResponse(message=reason)
        confirmed = csi_pb2.ValidateVolumeCapabilitiesResponse.Confirmed(
            volume_context=request.volume_context,
            volume_capabilities=request.volume_capabilities,
            parameters=request.parameters,
        )
        return csi_pb2.ValidateVolumeCapabilitiesResponse(confirmed=confirmed)

    def list_volumes(self, request: csi_pb2.ListVolumesRequest) -> csi_pb2.ListVolumesResponse:
        """Return the volumes of the project, oldest first, with their nodes."""
        page = pages.read(self._storage.volumes, request.max_entries, request.starting_token)
        attachments = defaultdict[str, list[StoredAttachment]](list)
        for item in self._storage.attachments():
            attachments[item.volume_id].append(item)
        response = csi_pb2.ListVolumesResponse()
        for volume in page.items:
            of_volume = attachments[volume.id]
            response.entries.add(
                volume=volume_view.show_with_topology(volume),
                status=csi_pb2.ListVolumesResponse.VolumeStatus(
                    published_node_ids=volume_view.list_nodes(of_volume),
                    volume_condition=volume_view.show_condition(volume, of_volume),
                ),
            )
        if page.has_more:
            response.next_token = page.items[-1].id
        return response

    def controller_get_volume(
        self, request: csi_pb2.ControllerGetVolumeRequest
    ) -> csi_pb2.ControllerGetVolumeResponse:
        """Return a volume, with its nodes and its condition."""
        volume = self._get(request.volume_id)
        attachments = list(self._storage.attachments(volume.id))
        return csi_pb2.ControllerGetVolumeResponse(
            volume=volume_view.show_with_topology(volume),
            status=csi_pb2.ControllerGetVolumeResponse.VolumeStatus(
                published_node_ids=volume_view.list_nodes(attachments),
                volume_condition=volume_view.show_condition(volume, attachments),
            ),
        )

    def get_capacity(self, request: csi_pb2.GetCapacityRequest) -> csi_pb2.GetCapacityResponse:
        """Return what is free, by volume type and zone."""
        return capacity.read(self._storage, request)

    def controller_expand_volume(
        self, request: csi_pb2.ControllerExpandVolumeRequest
    ) -> csi_pb2.ControllerExpandVolumeResponse:
        """Extend a volume, online too; each node then has to grow its device."""
        volume = self._get(request.volume_id)
        if request.HasField("volume_capability"):
            access.check([request.volume_capability], is_shared=volume.is_multiattach)
        sizes = SizeRange.from_message(request.capacity_range)
        grown = expansion.expand(self._storage, volume, sizes)
        return csi_pb2.ControllerExpandVolumeResponse(
            capacity_bytes=grown.size_gib * GIB, node_expansion_required=True
        )

    def create_snapshot(
        self, request: csi_pb2.CreateSnapshotRequest
    ) -> csi_pb2.CreateSnapshotResponse:
        """Take a snapshot, or return the one that has the name."""
        return csi_pb2.CreateSnapshotResponse(snapshot=self._snapshots.create(request))

    def delete_snapshot(
        self, request: csi_pb2.DeleteSnapshotRequest
    ) -> csi_pb2.DeleteSnapshotResponse:
        """Delete a snapshot, and wait until it is gone; one that is gone is a success."""
        self._snapshots.delete(request.snapshot_id)
        return csi_pb2.DeleteSnapshotResponse()

    def get_snapshot(self, request: csi_pb2.GetSnapshotRequest) -> csi_pb2.GetSnapshotResponse:
        """Return a snapshot."""
        return csi_pb2.GetSnapshotResponse(snapshot=self._snapshots.get(request.snapshot_id))

    def list_snapshots(
        self, request: csi_pb2.ListSnapshotsRequest
    ) -> csi_pb2.ListSnapshotsResponse:
        """Return the snapshots of the driver, or one of them."""
        return self._snapshots.list(request)

    def _get(self, volume_id: str) -> StoredVolume:
        volume = self._storage.volumes.get(volume_id)
        if volume is None:
            raise CallError(ErrorCode.NOT_FOUND, f"There is no volume {volume_id}.")
        return volume
