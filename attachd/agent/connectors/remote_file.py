# SPDX-License-Identifier: Apache-2.0
"""Connections of the protocol "nfs" with the kernel's client: loop devices over files of shares.

os-brick mounts the share, and leaves it mounted.  brick.py calls it before :func:`attach`.

Each host that reaches the share can replace what has the name of a file, also while the file is in
use.  So the name is used once, to open the file (see attachd/linux/confined.py), and the device is
made over what was opened.
"""

from collections.abc import Iterator
import contextlib
import hashlib
import logging
import os
from pathlib import Path
from typing import Any, Final

from attachd import exception
from attachd.agent.connectors.base import ConnectionInfo, Device
from attachd.agent.connectors.qemu import blockdev, loop_devices, state_dir
from attachd.agent.mount import open_handles
from attachd.agent.mount.device_writers import DeviceWriters
from attachd.linux import block_device, loops, share_mounts
from attachd.linux.confined import ConfinedDirectory

LOG = logging.getLogger(__name__)

PROTOCOL: Final = "nfs"

MOUNT_POINT_BASE: Final = "/run/attachd/mnt"
"""The directory of the mount points, unless the connection names one."""


def is_remote_file(info: ConnectionInfo) -> bool:
    """Return whether a connection is a file of a share."""
    return str(info.get("driver_volume_type")).lower() == PROTOCOL


def mount_point_base(info: ConnectionInfo) -> str:
    """Return the directory in which os-brick mounts the share."""
    return str(info.get("mount_point_base") or MOUNT_POINT_BASE)


def with_mount_options(info: ConnectionInfo) -> dict[str, Any]:
    """Return a connection by whose options os-brick mounts the share without devices and programs.

    mount(8) takes several lists of options.
    """
    return {**info, "options": f"{info.get('options') or ''} -o {share_mounts.OPTIONS}".strip()}


def file_path(info: ConnectionInfo) -> Path:
    """Return the path of the file while its share is mounted; the share is not accessed."""
    path = _mount_point(info) / str(_required(info, "name"))
    if not path.is_relative_to(_mount_point(info)):
        raise exception.HostError(
            reason=f"The connection has the name {info['name']!r}, which is not in the share."
        )
    return path


def _mount_point(info: ConnectionInfo) -> Path:
    """Return the path where os-brick mounts the share.

    Source: os-brick, RemoteFsClient.get_mount_point().
    """
    export = str(_required(info, "export"))
    digest = hashlib.md5(export.encode(), usedforsecurity=False).hexdigest()
    return Path(mount_point_base(info)).resolve() / digest


def _required(info: ConnectionInfo, key: str) -> Any:
    try:
        return info[key]
    except KeyError as error:
        raise exception.HostError(
            reason=f"The connection lacks what an NFS connection has: {error}. Detach the volume, "
            "and attach it again."
        ) from None


def attach(info: ConnectionInfo, state_path: Path, writers: DeviceWriters) -> Device:
    """Return the loop device over the file, or make it; the share is mounted.

    :param state_path: the host's
    :param writers: those that were stopped may write again
    :raises HostError: there is no device
    """
    blockdev.check_format(info)
    _restrict_mount(_mount_point(info))
    path, writable = file_path(info), info.get("access_mode") != "ro"
    flags = os.O_RDWR if writable else os.O_RDONLY
    with (
        _opened(info, flags) as file,
        state_dir.locked(state_dir.path_for(state_path, info)) as lock,
    ):
        devices = loop_devices.list_over(path)
        if any(item.closing or writers.are_stopped(item.path) for item in devices) or (
            devices and devices[0].read_only == writable
        ):
            # A second device would have a cache of its own, and so would the files of its users.
            _check_unused(devices)
            loop_devices.detach(path, lock=lock)
            devices = []
        for item in devices:
            _check_is_over(item, file, path)
        loop = devices[0] if devices else loop_devices.attach_open(file, path, writable=writable)
    writers.resume(loop.path)
    return Device(loop.path, {"type": "block", "path": loop.path})


def _restrict_mount(mount_point: Path) -> None:
    try:
        if missing := share_mounts.restrict(mount_point):
            LOG.debug("Mount %s: %s", mount_point, missing)
    except OSError as error:
        raise exception.HostError(
            reason=f"The mount of the share cannot be restricted: {error}. Check that the share "
            "is mounted, then repeat the command."
        ) from error


@contextlib.contextmanager
def _opened(info: ConnectionInfo, flags: int) -> Iterator[int]:
    """Open the file of the volume for the block; raises HostError."""
    path = file_path(info)
    try:
        file = ConfinedDirectory(_mount_point(info)).open(path, flags)
    except FileNotFoundError as error:
        raise exception.HostError(
            reason=f"There is no file {path}: the backend may have revoked it. Detach the volume, "
            "and attach it again."
        ) from error
    except OSError as error:
        raise exception.HostError(
            reason=f"The file of the volume cannot be used: {error}. Each host that reaches the "
            "share can replace it: let the administrator of the storage check what is there."
        ) from error
    try:
        yield file
    finally:
        os.close(file)


def _check_is_over(loop: loop_devices.LoopDevice, file: int, path: Path) -> None:
    """Check that a device is over an open file, and not over a former one of the same name."""
    try:
        device = os.open(loop.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            is_same = loops.get_backing(device).is_file(os.fstat(file))
        finally:
            os.close(device)
    except OSError as error:
        raise exception.HostError(reason=f"{loop.path} cannot be used: {error}.") from error
    if not is_same:
        raise exception.HostError(
            reason=f"{loop.path} is over another file than the one that is {path} by now: it was "
            "replaced while the volume was attached. Let the administrator of the storage check "
            "what is there, then detach the volume, and attach it again."
        )


def _check_unused(devices: list[loop_devices.LoopDevice]) -> None:
    for loop in devices:
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
    devices = _usable(path)
    if not devices:
        raise exception.HostError(reason="The volume is not connected: attach it again.")
    # The kernel asks the server for the size when a file is opened.
    with _opened(info, os.O_RDONLY) as file:
        _check_is_over(devices[0], file, path)
        loop_devices.refresh(devices[0])
    return block_device.size(devices[0].path)


def is_present(info: ConnectionInfo, device: Device) -> bool:
    """Return whether the loop device is there."""
    return device.path in {loop.path for loop in _usable(file_path(info))}


def find_device_paths(info: ConnectionInfo) -> list[str]:
    """Return the loop devices over the file, which may have been deleted."""
    return [loop.path for loop in loop_devices.list_over(file_path(info))]


def _usable(path: Path) -> list[loop_devices.LoopDevice]:
    return [loop for loop in loop_devices.list_over(path) if not loop.closing]
