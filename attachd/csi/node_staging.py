# SPDX-License-Identifier: Apache-2.0
"""Capabilities of the Container Storage Interface as the manner of a staging."""

from collections.abc import Mapping
import re
from typing import Final

from attachd import exception
from attachd.agent.mount import filesystems
from attachd.agent.mount.mount_rules import MountRules
from attachd.agent.staging import Staging
from attachd.csi import access, csi_pb2
from attachd.csi.new_volume import FS_TYPE_CONTEXT
from attachd.platforms.calls import CallError, ErrorCode

DEFAULT_FS_TYPE: Final = "ext4"

_Mode = csi_pb2.VolumeCapability.AccessMode
_EXCLUSIVE: Final = frozenset(
    {_Mode.SINGLE_NODE_WRITER, _Mode.SINGLE_NODE_READER_ONLY, _Mode.SINGLE_NODE_SINGLE_WRITER}
)
"""Modes of volumes that are published at one path of a node at a time."""
_ACCESS_OPTIONS: Final = frozenset({"ro", "rw"})
_GROUP: Final = re.compile("0|[1-9][0-9]{0,9}")
_NO_GROUP: Final = 2**32 - 1
"""The number that chown(2) takes for none."""


def read(capability: csi_pb2.VolumeCapability, context: Mapping[str, str], path: str) -> Staging:
    """Return how a volume with a capability is staged.

    :param context: volume_context
    :param path: the staging directory
    :raises CallError: INVALID_ARGUMENT: it cannot be
    """
    access.check([capability], is_shared=True)
    exclusive = capability.access_mode.mode in _EXCLUSIVE
    read_only = access.attach_mode(capability, readonly=False) == "ro"
    if capability.HasField("block"):
        return Staging(path, None, read_only, exclusive=exclusive)
    flags = list(capability.mount.mount_flags)
    options = ",".join(flag for flag in flags if flag not in _ACCESS_OPTIONS)
    fs_type = capability.mount.fs_type or context.get(FS_TYPE_CONTEXT) or DEFAULT_FS_TYPE
    try:
        rules = MountRules(options=options)
        filesystems.mkfs_command(fs_type)
        rules.check_type(filesystems.blkid_name(fs_type), "The capability")
    except exception.HostError as error:
        reason = f"The field volume_capability is not possible: {error}"
        raise CallError(ErrorCode.INVALID_ARGUMENT, reason) from error
    return Staging(path, fs_type, read_only or "ro" in flags, options, exclusive)


def read_group(capability: csi_pb2.VolumeCapability) -> int | None:
    """Return the number of the group that is to read and write a volume; None: it names none.

    :raises CallError: INVALID_ARGUMENT: it is no number of a group
    """
    text = capability.mount.volume_mount_group
    if not text:
        return None
    if not _GROUP.fullmatch(text) or int(text) >= _NO_GROUP:
        raise CallError(
            ErrorCode.INVALID_ARGUMENT,
            f"The field volume_capability.mount.volume_mount_group is no number of a group: "
            f"{text!r}. Names are those of the container.",
        )
    return int(text)
