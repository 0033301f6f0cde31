# SPDX-License-Identifier: Apache-2.0
"""The Node service: volumes that the agent of this host has attached, in containers.

It asks the agent for devices, and has no access to attachd's API.  A call whose caller has given
up goes on once it has begun, and the next one finds its result.
"""

from collections.abc import Iterator, Mapping
import contextlib
import functools
from typing import Final

from attachd.agent.host import Host, Identity
from attachd.agent.journal import Entry
from attachd.agent.local_socket import CallError as AgentError
from attachd.agent.staging import Publication, Staging
from attachd.csi import csi_pb2, node_errors, node_staging
from attachd.csi.new_volume import COPY_CONTEXT
from attachd.csi.node_paths import PathRules
from attachd.csi.node_stats import StatsReader
from attachd.node.agent_client import AgentClient
from attachd.node.volumes import NodeVolumes, Target
from attachd.platforms import calls
from attachd.platforms.calls import CallError, ErrorCode, NotReady
from attachd.platforms.resources import is_id
from attachd.platforms.volume_locks import VolumeLocks

ATTACHMENT_CONTEXT: Final = "attachd.attachment_id"
"""The key of publish_context."""

_MARGIN: Final = 1.0
"""Seconds of the time limit of a call that remain when the device is there."""
_RPC = csi_pb2.NodeServiceCapability.RPC
CAPABILITIES: Final = (
    _RPC.STAGE_UNSTAGE_VOLUME,
    _RPC.GET_VOLUME_STATS,
    _RPC.EXPAND_VOLUME,
    _RPC.VOLUME_CONDITION,
    _RPC.SINGLE_NODE_MULTI_WRITER,
    _RPC.VOLUME_MOUNT_GROUP,
)


class Node:
    """The Node service.

    :param topology: the segments of this node
    :param paths: which staging and target paths are permitted
    :param assume_empty: whether to look only for signatures on a device before a file system is
        made on it
    """

    name = "Node"

    def __init__(
        self,
        agent: AgentClient,
        topology: Mapping[str, str],
        paths: PathRules,
        *,
        assume_empty: bool = False,
    ) -> None:
        self._agent = agent
        self._paths = paths
        self._stats = StatsReader(agent)
        self._topology = topology
        self._assume_empty = assume_empty
        self._locks = VolumeLocks()

    @functools.cached_property
    def _volumes(self) -> NodeVolumes:
        host = self._agent.get_host()
        return NodeVolumes(Host(Identity(host.name, host.initiator), host.state_path))

    def check(self) -> None:
        """Check that the agent answers; raises NotReady."""
        try:
            self._agent.get_host()
        except AgentError as error:
            raise NotReady(f"{error}") from error

    def node_get_capabilities(
        self, _request: csi_pb2.NodeGetCapabilitiesRequest
    ) -> csi_pb2.NodeGetCapabilitiesResponse:
        """Return which calls the service has."""
        capabilities = [
            csi_pb2.NodeServiceCapability(rpc=_RPC(type=rpc_type)) for rpc_type in CAPABILITIES
        ]
        return csi_pb2.NodeGetCapabilitiesResponse(capabilities=capabilities)

    def node_get_info(self, _request: csi_pb2.NodeGetInfoRequest) -> csi_pb2.NodeGetInfoResponse:
        """Return the name of the host, how many volumes it can have, and where it is."""
        with node_errors.as_status(ErrorCode.UNAVAILABLE):
            host = self._agent.get_host()
        response = csi_pb2.NodeGetInfoResponse(
            node_id=host.name, max_volumes_per_node=host.max_attachments or 0
        )
        if self._topology:
            response.accessible_topology.segments.update(self._topology)
        return response

    def node_stage_volume(
        self, request: csi_pb2.NodeStageVolumeRequest
    ) -> csi_pb2.NodeStageVolumeResponse:
        """Wait for the device, and mount its file system."""
        self._paths.check("staging_target_path", request.staging_target_path)
        staging = node_staging.read(
            request.volume_capability, request.volume_context, request.staging_target_path
        )
        group = node_staging.read_group(request.volume_capability)
        attachment_id = request.publish_context.get(ATTACHMENT_CONTEXT, "")
        if not attachment_id:
            raise _refuse("publish_context", f"has no {ATTACHMENT_CONTEXT}")
        with self._work_on(request.volume_id, ErrorCode.INTERNAL):
            timeout = max(calls.current().remaining - _MARGIN, 0.0)
            device = self._agent.get_device(attachment_id, timeout)
            if device.volume_id != request.volume_id:
                raise _refuse("publish_context", f"is of volume {device.volume_id}")
            target = Target(request.volume_id, attachment_id, device.path, device.mode)
            calls.current().check_caller()
            self._volumes.stage(target, staging, assume_empty=self._assume_empty, group=group)
        if COPY_CONTEXT in request.volume_context:
            self._grow_copy(request.volume_id, attachment_id, staging)
        return csi_pb2.NodeStageVolumeResponse()

    def _grow_copy(self, volume_id: str, attachment_id: str, staging: Staging) -> None:
        """Let the file system of a copy have the size of its volume, unless others have it.

        Platforms call NodeExpandVolume only for volumes that have grown since.
        """
        if staging.fs_type is None or staging.read_only:
            return
        # The volume is staged: with this status platforms unstage it if the pod is deleted.
        with self._work_on(volume_id, ErrorCode.UNAVAILABLE):
            if not self._agent.grow(attachment_id, calls.current().remaining).is_shared:
                self._volumes.grow(volume_id, staging.path)

    def node_unstage_volume(
        self, request: csi_pb2.NodeUnstageVolumeRequest
    ) -> csi_pb2.NodeUnstageVolumeResponse:
        """Unmount the file system."""
        self._paths.check("staging_target_path", request.staging_target_path)
        with self._work_on(request.volume_id, ErrorCode.UNAVAILABLE):
            self._volumes.unstage(request.volume_id, request.staging_target_path)
        return csi_pb2.NodeUnstageVolumeResponse()

    def node_publish_volume(
        self, request: csi_pb2.NodePublishVolumeRequest
    ) -> csi_pb2.NodePublishVolumeResponse:
        """Show a staged volume to a container."""
        if not request.staging_target_path:
            raise CallError(
                ErrorCode.FAILED_PRECONDITION, "The field staging_target_path is required."
            )
        self._paths.check("target_path", request.target_path)
        use = node_staging.read(
            request.volume_capability, request.volume_context, request.staging_target_path
        )
        group = node_staging.read_group(request.volume_capability)
        publication = Publication(request.target_path, request.readonly or use.read_only)
        with self._work_on(request.volume_id, ErrorCode.INTERNAL):
            self._volumes.publish(request.volume_id, use, publication, group=group)
        return csi_pb2.NodePublishVolumeResponse()

    def node_unpublish_volume(
        self, request: csi_pb2.NodeUnpublishVolumeRequest
    ) -> csi_pb2.NodeUnpublishVolumeResponse:
        """Hide a volume from a container."""
        self._paths.check("target_path", request.target_path)
        with self._work_on(request.volume_id, ErrorCode.UNAVAILABLE):
            self._volumes.unpublish(request.volume_id, request.target_path)
        return csi_pb2.NodeUnpublishVolumeResponse()

    def node_get_volume_stats(
        self, request: csi_pb2.NodeGetVolumeStatsRequest
    ) -> csi_pb2.NodeGetVolumeStatsResponse:
        """Return the usage and the condition of a volume."""
        _check_id(request.volume_id)
        with node_errors.as_status(ErrorCode.INTERNAL):
            entry, _staging = self._get(request.volume_id, request.volume_path)
            stats = self._stats.read(entry, request.volume_path)
        return csi_pb2.NodeGetVolumeStatsResponse(
            usage=stats.usage,
            volume_condition=csi_pb2.VolumeCondition(
                abnormal=stats.problem is not None, message=stats.problem or "in order"
            ),
        )

    def node_expand_volume(
        self, request: csi_pb2.NodeExpandVolumeRequest
    ) -> csi_pb2.NodeExpandVolumeResponse:
        """Let the device and its file system have the size of the volume."""
        with self._work_on(request.volume_id, ErrorCode.INTERNAL):
            entry, staging = self._get(request.volume_id, request.volume_path)
            _check_kind(request, staging)
            grown = self._agent.grow(entry.attachment_id or "", calls.current().remaining)
            _check_size(request.capacity_range, grown.volume_bytes)
            if grown.size_bytes < grown.volume_bytes:
                raise CallError(
                    ErrorCode.UNAVAILABLE,
                    f"The device has {grown.size_bytes} of {grown.volume_bytes} bytes yet.",
                )
            has_fs = staging.fs_type is not None and not staging.read_only
            if has_fs and grown.is_shared:
                raise CallError(
                    ErrorCode.FAILED_PRECONDITION,
                    "Another node has the volume too, and one that has mounted it would destroy a "
                    "file system that grows here. Detach it there first.",
                )
            self._volumes.grow(request.volume_id, request.volume_path)
        return csi_pb2.NodeExpandVolumeResponse(capacity_bytes=grown.size_bytes)

    @contextlib.contextmanager
    def _work_on(self, volume_id: str, failure: ErrorCode) -> Iterator[None]:
        """Work on a volume when earlier calls for it have ended; raises CallError.

        :param failure: the status if the host has failed
        """
        _check_id(volume_id)
        with self._locks.hold(volume_id), node_errors.as_status(failure):
            yield

    def _get(self, volume_id: str, path: str) -> tuple[Entry, Staging]:
        """Return the journal entry of a volume at a path; raises CallError."""
        entry = self._volumes.find(volume_id, path)
        if entry is None or entry.staging is None:
            raise CallError(
                ErrorCode.NOT_FOUND,
                f"Volume {volume_id} is neither staged nor published at {path}.",
            )
        return entry, entry.staging


def _check_id(volume_id: str) -> None:
    """Check that an id can be one of attachd; raises CallError."""
    if not is_id(volume_id):
        raise CallError(ErrorCode.NOT_FOUND, f"There is no volume {volume_id!r}.")


def _check_kind(request: csi_pb2.NodeExpandVolumeRequest, staging: Staging) -> None:
    if request.HasField("volume_capability"):
        is_block = request.volume_capability.HasField("block")
        if is_block != (staging.fs_type is None):
            raise _refuse("volume_capability", "is not how the volume is staged")


def _check_size(sizes: csi_pb2.CapacityRange, size: int) -> None:
    if size < sizes.required_bytes or 0 < sizes.limit_bytes < size:
        raise CallError(
            ErrorCode.OUT_OF_RANGE,
            f"The volume has {size} bytes, and {sizes.required_bytes} to "
            f"{sizes.limit_bytes or 'any number of'} are required. ControllerExpandVolume comes "
            "first.",
        )


def _refuse(field: str, reason: str) -> CallError:
    return CallError(ErrorCode.INVALID_ARGUMENT, f"The field {field} {reason}.")
