# SPDX-License-Identifier: Apache-2.0
"""Access modes of the Container Storage Interface, in terms of attachd."""

from collections.abc import Iterable
from typing import Final

from attachd.csi import csi_pb2
from attachd.platforms.calls import CallError, ErrorCode

Capability = csi_pb2.VolumeCapability
_Mode = csi_pb2.VolumeCapability.AccessMode

_READERS: Final = frozenset({_Mode.SINGLE_NODE_READER_ONLY, _Mode.MULTI_NODE_READER_ONLY})
_MULTI_NODE: Final = frozenset(
    {
        _Mode.MULTI_NODE_READER_ONLY,
        _Mode.MULTI_NODE_SINGLE_WRITER,
        _Mode.MULTI_NODE_MULTI_WRITER,
    }
)


def is_multi_node(capability: Capability) -> bool:
    """Return whether several nodes have the volume at the same time."""
    return capability.access_mode.mode in _MULTI_NODE


def has_one_writer(capability: Capability) -> bool:
    """Return whether only one of several nodes writes."""
    return capability.access_mode.mode == _Mode.MULTI_NODE_SINGLE_WRITER


def attach_mode(capability: Capability, *, readonly: bool) -> str:
    """Return the mode of an attachment: "rw" or "ro"."""
    return "ro" if readonly or capability.access_mode.mode in _READERS else "rw"


def find_reason(capabilities: Iterable[Capability], *, is_shared: bool) -> str:
    """Return why a volume cannot have some capabilities; "" if it can.

    :param is_shared: whether it can be attached to several hosts
    """
    for capability in capabilities:
        mode = _Mode.Mode.Name(capability.access_mode.mode)
        writers = capability.access_mode.mode == _Mode.MULTI_NODE_MULTI_WRITER
        if writers and capability.HasField("mount"):
            return (
                f"{mode} with mount: file systems as ext4 and xfs are damaged if several nodes "
                "write. Use block, or a mode with one writer."
            )
        if is_multi_node(capability) and not is_shared:
            return (
                f"{mode}: the volume type has no extra spec multiattach='<is> True', so one node "
                "has the volume at a time."
            )
    return ""


def check(capabilities: Iterable[Capability], *, is_shared: bool) -> None:
    """Check the capabilities of a new volume, or of an attachment.

    :raises CallError: INVALID_ARGUMENT
    """
    if reason := find_reason(capabilities, is_shared=is_shared):
        raise CallError(ErrorCode.INVALID_ARGUMENT, reason)
