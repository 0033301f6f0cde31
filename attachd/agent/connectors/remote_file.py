# SPDX-License-Identifier: Apache-2.0
"""Connections of the protocol "nfs" with the kernel's client: loop devices over files of shares.

os-brick mounts the share, and leaves it mounted.  brick.py calls it before :func:`attach`.
"""

import hashlib
from pathlib import Path
from typing import Final

from attachd import commands, exception
from attachd.agent import block_device
from attachd.agent.connectors.base import ConnectionInfo, Device
from attachd.agent.connectors.qemu import blockdev, loop_devices, state_dir
from attachd.agent.mount import open_handles
from attachd.agent.mount.device_writers import DeviceWriters

PROTOCOL: Final = "nfs"

MOUNT_POINT_BASE: Final = "/run/attachd/mnt"
"""The directory of the mount points, unless the connection names one."""


def is_remote_file(info: ConnectionInfo) -> bool:
    """Return whether a connection is a file of a share."""
    return str(info.get("driver_volume_type")).lower() == PROTOCOL


def mount_point_base(info: ConnectionInfo) -> str:
    """Return the directory in which os-brick mounts the share."""
    return str(info.get("mount_point_base") or MOUNT_POINT_BASE)


def file_path(info: ConnectionInfo) -> Path:
    """Return the path of the file while its share is mounted; the share is not accessed.

    Source: os-brick, RemoteFsClient.get_mount_point().
    """
    try:
        export, name = str(info["export"]), str(info["name"])
    except KeyError as error:
        raise exception.HostError(
            reason=f"The connection lacks what an NFS connection has: {error}. Detach the volume, "
            "and attach it again."
        ) from None
    digest = hashlib.md5(export.encode(), usedforsecurity=False).hexdigest()
    return Path(mount_point_base(info)).resolve() / digest / name


def attach(info: ConnectionInfo, state_path: Path, writers: DeviceWriters) -> Device:
    """Return the loop device over the file, or make it; the share is mounted.

    :param state_path: the host's
    :param writers: those that were stopped may write again
    :raises HostError: there is no device
    """
    blockdev.check_format(info)
    path, writable = file_path(info), info.get("access_mode") != "ro"
    if not path.is_file():
        raise exception.HostError(
            reason=f"There is no file {path}: the backend may have revoked it. Detach the volume, "
            "and attach it again."
        )
    with state_dir.locked(state_dir.path_for(state_path, info)) as lock:
        loops = loop_devices.list_over(path)
        if any(item.closing or writers.are_stopped(item.path) for item in loops) or (
            loops and loops[0].read_only == writable
        ):
            # A second device would have a cache of its own, and so would the files of its users.
            _check_unused(loops)
            loop_devices.detach(path, lock=lock)
            loops = []
        loop = loops[0] if loops else loop_devices.attach(path, writable=writable, lock=lock)
    writers.resume(loop.path)
    return Device(loop.path, {"type": "block", "path": loop.path})


def _check_unused(loops: list[loop_devices.LoopDevice]) -> None:
    for loop in loops:
        if users := open_handles.find_users(loop.path):
            raise exception.HostError(
                reason=f"{loop.path} cannot be replaced, as it is in use by {users}. End that."
            )


def detach(info: ConnectionInfo, state_path: Path, *, force: bool = False) -> None:
    """Flush and free the loop device; the share stays mounted.

    :param state_path: the host's
    :param force: also if data that was written cannot be saved
    :raises HostError: the device is still there
    """
    path, directory = file_path(info), state_dir.path_for(state_path, info)
    with state_dir.locked(directory) as lock:
        for loop in _usable(path):
            try:
                block_device.flush(loop.path)
            except exception.HostError:
                if not force:
                    raise
        loop_devices.detach(path, lock=lock)
        state_dir.remove(directory)


def extend(info: ConnectionInfo) -> int:
    """Let the loop device have the present size of the file; returns it in bytes.

    :raises HostError: the volume is not connected
    """
    path = file_path(info)
    loops = _usable(path)
    if not loops:
        raise exception.HostError(reason="The volume is not connected: attach it again.")
    # The kernel asks the server for the size when a file is opened.
    commands.run("head", "--bytes=1", f"{path}")
    loop_devices.refresh(loops[0])
    return block_device.size(loops[0].path)


def is_present(info: ConnectionInfo, device: Device) -> bool:
    """Return whether the loop device is there."""
    return device.path in {loop.path for loop in _usable(file_path(info))}


def find_device_paths(info: ConnectionInfo) -> list[str]:
    """Return the loop devices over the file, which may have been deleted."""
    return [loop.path for loop in loop_devices.list_over(file_path(info))]


def _usable(path: Path) -> list[loop_devices.LoopDevice]:
    return [loop for loop in loop_devices.list_over(path) if not loop.closing]
