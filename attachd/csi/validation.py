# SPDX-License-Identifier: Apache-2.0
"""Checks of requests that hold for each call: required fields, sizes, characters, capabilities.

Source: CSI 1.12, "Required vs. Optional Fields", "Size Limits", and the comments of the fields.
"""

from collections.abc import Iterator, Mapping
import re
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from attachd.csi import csi_pb2
from attachd.platforms.calls import CallError, ErrorCode

REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "CreateVolumeRequest": ("name", "volume_capabilities"),
    "DeleteVolumeRequest": ("volume_id",),
    "ControllerPublishVolumeRequest": ("volume_id", "node_id", "volume_capability"),
    "ControllerUnpublishVolumeRequest": ("volume_id",),
    "ValidateVolumeCapabilitiesRequest": ("volume_id", "volume_capabilities"),
    "ControllerGetVolumeRequest": ("volume_id",),
    "ControllerExpandVolumeRequest": ("volume_id", "capacity_range"),
    "CreateSnapshotRequest": ("source_volume_id", "name"),
    "DeleteSnapshotRequest": ("snapshot_id",),
    "GetSnapshotRequest": ("snapshot_id",),
    "NodeStageVolumeRequest": ("volume_id", "staging_target_path", "volume_capability"),
    "NodeUnstageVolumeRequest": ("volume_id", "staging_target_path"),
    "NodePublishVolumeRequest": ("volume_id", "target_path", "volume_capability"),
    "NodeUnpublishVolumeRequest": ("volume_id", "target_path"),
    "NodeGetVolumeStatsRequest": ("volume_id", "volume_path"),
    "NodeExpandVolumeRequest": ("volume_id", "volume_path"),
}
"""The fields that must not be empty, by the name of the message."""

_STRING: Final = 128
_COLLECTION: Final = 4096
_PATH: Final = 4096
_NODE_ID: Final = 256
_BANNED: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def check(request: Message) -> None:
    """Check a request.

    :raises CallError: INVALID_ARGUMENT, which names the field
    """
    for name in REQUIRED.get(request.DESCRIPTOR.name, ()):
        field = request.DESCRIPTOR.fields_by_name[name]
        is_single = field.message_type is not None and not field.is_repeated
        if not (request.HasField(name) if is_single else getattr(request, name)):
            raise _refuse(name, "is required")
    _check_fields(request, "")


def _check_fields(message: Message, prefix: str) -> None:
    for field, value in message.ListFields():
        name = f"{prefix}{field.name}"
        if _is_map(field):
            _check_size(name, [*value.keys(), *value.values()], _COLLECTION)
        elif field.type == FieldDescriptor.TYPE_STRING:
            _check_text(name, field, value)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for item in _items(field, value):
                _check_fields(item, f"{name}.")
                if isinstance(item, csi_pb2.VolumeCapability):
                    _check_capability(name, item)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _items(field: FieldDescriptor, value: Any) -> Iterator[Any]:
    yield from value if field.is_repeated else (value,)


def _check_text(name: str, field: FieldDescriptor, value: Any) -> None:
    if field.is_repeated:
        _check_size(name, list(value), _COLLECTION)
    elif field.name.endswith("_path"):
        _check_size(name, [value], _PATH)
    else:
        _check_size(name, [value], _NODE_ID if field.name == "node_id" else _STRING)
    if any(_BANNED.search(text) for text in _items(field, value)):
        raise _refuse(name, "has control characters")


def _check_size(name: str, texts: list[str], limit: int) -> None:
    size = sum(len(text.encode()) for text in texts)
    if size > limit:
        raise _refuse(name, f"has {size} bytes, and {limit} are permitted")


def _check_capability(name: str, capability: csi_pb2.VolumeCapability) -> None:
    if not capability.WhichOneof("access_type"):
        raise _refuse(f"{name}.access_type", "is required: block or mount")
    mode = capability.access_mode.mode
    modes = csi_pb2.VolumeCapability.AccessMode.Mode
    if mode == modes.UNKNOWN or mode not in modes.values():
        raise _refuse(f"{name}.access_mode", "is unknown or missing")


def _refuse(field: str, reason: str) -> CallError:
    return CallError(ErrorCode.INVALID_ARGUMENT, f"The field {field} {reason}.")
