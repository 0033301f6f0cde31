# SPDX-License-Identifier: Apache-2.0
"""Connections of the protocol "local": the volume is a device of this host already.

Or it is a plain file in a ``folder`` to which other hosts may write.
"""

import os
from pathlib import Path
from typing import Final

from attachd import exception
from attachd.agent.connectors.base import ConnectionInfo, Device
from attachd.linux import block_device
from attachd.linux.confined import ConfinedDirectory

PROTOCOL: Final = "local"


def is_local(info: ConnectionInfo) -> bool:
    """Return whether a connection is a device of this host."""
    return str(info.get("driver_volume_type")).lower() == PROTOCOL


def connect(info: ConnectionInfo) -> Device:
    """Return the device as it is.

    It may be a plain file, which mount(8) accepts as well, but only for writing, because a file
    cannot refuse writes.  A device is not made read-only: another attachment may write to it.

    :raises HostError: there is no device, or it accepts writes that it should refuse
    """
    path = _device_path(info)
    if folder := info.get("folder"):
        _check_file(path, str(folder))
    if not block_device.exists(path):
        raise exception.HostError(
            reason=f"{path} does not exist on this host. A local volume can only be attached on "
            "the machine where its manager runs."
        )
    if info.get("access_mode") == "ro" and not block_device.is_read_only(path):
        raise exception.HostError(
            reason=f"{path} accepts writes, but the attachment is read-only. Let the backend hand "
            "out read-only devices (file_loop_devices = always), or attach for writing."
        )
    return Device(path, {"type": PROTOCOL, "path": path})


def disconnect(info: ConnectionInfo, *, force: bool = False) -> None:
    """Flush what was written to the device; the backend removes the device.

    :raises HostError: the flush failed, and ``force`` is not set
    """
    path = _device_path(info)
    try:
        if block_device.exists(path):
            block_device.flush(path)
    except exception.HostError:
        if not force:
            raise


def extend(info: ConnectionInfo) -> int:
    """Return the size in bytes; the backend has extended the device already."""
    return block_device.size(_device_path(info))


def is_present(info: ConnectionInfo, device: Device) -> bool:
    """Return whether the device is there."""
    return info.get("device_path") == device.path and block_device.exists(device.path)


def _check_file(path: str, folder: str) -> None:
    """Check that a path leads to a plain file in a directory; raises HostError."""
    try:
        os.close(ConfinedDirectory(Path(folder)).open(Path(path), os.O_RDONLY))
    except FileNotFoundError:
        return  # The caller says so.
    except (OSError, ValueError) as error:
        raise exception.HostError(
            reason=f"The file of the volume cannot be used: {error}. Each host that reaches "
            f"{folder} can replace it: let the administrator of the storage check what is there."
        ) from error


def _device_path(info: ConnectionInfo) -> str:
    path = info.get("device_path")
    if not isinstance(path, str) or not path:
        raise exception.HostError(
            reason="The connection names no device_path. Detach the volume, and attach it again."
        )
    return path
