# SPDX-License-Identifier: Apache-2.0
"""The device of a volume: a storage daemon and the loop device over its file.

The caller holds the lock of the directory, see state_dir.locked(), and passes its descriptor.
"""

from collections.abc import Sequence
import logging
from pathlib import Path

from attachd import exception
from attachd.agent.connectors.base import Device
from attachd.agent.connectors.qemu import loop_devices, storage_daemon
from attachd.agent.connectors.qemu.blockdev import VolumePath
from attachd.agent.mount import open_handles
from attachd.linux import block_device, commands

LOG = logging.getLogger(__name__)

FORCED_FLUSH_TIMEOUT = 10.0
"""Seconds without a write of a flush whose failure is accepted."""


def resume(directory: Path, paths: Sequence[VolumePath]) -> Device | None:
    """Return the device if its daemon runs, also if another process has just started it.

    :returns: None: there is no usable device
    :raises HostError: the device was detached, but is open
    """
    if not _has_daemon(directory, paths):
        return None
    try:
        storage_daemon.wait_until_ready(directory)
    except exception.HostError:
        return None
    image, writable = storage_daemon.image_file(directory), paths[0].writable
    loops = loop_devices.list_over(image)
    for loop in loops:
        if loop.closing:
            raise exception.HostError(
                reason=f"{loop.path} was detached while it was in use, and is still open. "
                "Close it, detach the volume, and attach it again."
            )
    if not loops:
        return _device(loop_devices.attach(image, writable=writable))
    return _device(loops[0]) if _matches(loops, paths) else None


def find(directory: Path, paths: Sequence[VolumePath]) -> loop_devices.LoopDevice | None:
    """Return the usable loop device of a volume, if there is one."""
    if not _has_daemon(directory, paths) or not storage_daemon.is_ready(directory):
        return None
    loops = loop_devices.list_over(storage_daemon.image_file(directory))
    return loops[0] if _matches(loops, paths) else None


def create(directory: Path, paths: Sequence[VolumePath], lock: int) -> Device:
    """Start a daemon on the first path that works, and make a device; nothing is there before.

    :raises HostError: no path works; parts of a device may be left
    """
    for number, path in enumerate(paths, start=1):
        try:
            storage_daemon.start(directory, path, lock)
            break
        except exception.HostError as error:
            discard(directory, lock)
            if number == len(paths):
                raise exception.HostError(
                    reason=f"{error} ({path.label}). Check that the backend runs and can be "
                    "reached from this host, then repeat the command."
                ) from error
            LOG.warning("Path %s does not work: %s", path.label, error)
    image = storage_daemon.image_file(directory)
    return _device(loop_devices.attach(image, writable=paths[0].writable))


def extend(directory: Path, paths: Sequence[VolumePath]) -> int:
    """Let the daemon, then the loop device read the size again; returns it in bytes.

    :raises GrowthNeedsDetach: it never will
    :raises HostError: the device has its former size
    """
    loop = find(directory, paths)
    if loop is None:
        raise exception.HostError(reason="The volume is not connected: attach it again.")
    if loop.read_only or paths[0].blockdev["driver"] != "iscsi":
        # QEMU would resize an image of Ceph or a file of a share to its former size, and reads no
        # size when read-only.
        raise exception.GrowthNeedsDetach(
            reason=f"{loop.path} cannot grow while it is attached, as devices that are read-only "
            "or of Ceph or NFS cannot. Detach the volume, and attach it again."
        )
    size = storage_daemon.resize(directory)
    loop_devices.refresh(loop)
    if block_device.size(loop.path) != size:
        raise exception.HostError(reason=f"{loop.path} has not grown. Repeat the command.")
    return size


def check_unused(directory: Path) -> None:
    """Check that no device of a daemon that has ended is mounted or open; nothing is changed.

    :raises HostError: it is in use: what its users wrote may be lost, and they have to know
    """
    for loop in loop_devices.list_over(storage_daemon.image_file(directory)):
        if users := open_handles.find_users(loop.path):
            raise exception.HostError(
                reason=f"{loop.path} has lost its volume, because its {storage_daemon.TOOL} has "
                f"ended, and is in use by {users}: what was written and not synced may be lost. "
                "End that, and it is connected again; or detach it with --force."
            )


def delete(directory: Path, lock: int, *, force: bool = False) -> None:
    """Remove a device except for its empty directory, after a flush of what was written.

    :param force: also if data that was written cannot be saved; users of the device get errors
    :raises HostError: a part of the device is left
    """
    try:
        _flush(directory, FORCED_FLUSH_TIMEOUT if force else commands.DEFAULT_TIMEOUT)
    except exception.HostError as error:
        if not force:
            raise exception.HostError(
                reason=f"Not all that was written is on the volume: {error} Repeat the command "
                "when the backend is back, or detach it with --force, which loses what was not "
                "written."
            ) from error
        LOG.warning("Not all that was written is on the volume, and that is lost: %s", error)
        # Without the daemon, processes that hang on the device get errors and go on.
        storage_daemon.kill(directory)
    try:
        loop_devices.detach(storage_daemon.image_file(directory), lock=lock)
    except exception.HostError:
        if force:
            # The files stay: only by them the device is found that goes away with its users.
            storage_daemon.kill(directory)
        raise
    storage_daemon.stop(directory, force=force)
    storage_daemon.remove_files(directory, lock=lock)


def discard(directory: Path, lock: int) -> None:
    """Remove what is left of a failed create; nothing was written to it."""
    storage_daemon.kill(directory)
    loop_devices.detach(storage_daemon.image_file(directory), lock=lock)
    storage_daemon.remove_files(directory, lock=lock)


def _flush(directory: Path, timeout: float) -> None:
    lost = directory / "lost"
    for loop in loop_devices.list_over(storage_daemon.image_file(directory)):
        if storage_daemon.list_running(directory):
            block_device.flush(loop.path, timeout)
            continue
        try:
            block_device.check_written(loop.path)
        except exception.HostError:
            # The kernel reports a lost write once.
            lost.touch()
            raise
        if lost.exists():
            raise exception.HostError(reason=f"{loop.path} could not be written.")


def _has_daemon(directory: Path, paths: Sequence[VolumePath]) -> bool:
    """Return whether exactly one daemon runs, and it exports one of these paths."""
    lines = [storage_daemon.command_line(directory, path) for path in paths]
    daemons = storage_daemon.list_running(directory)
    return len(daemons) == 1 and any(list(daemons[0].line[-len(line) :]) == line for line in lines)


def _matches(loops: Sequence[loop_devices.LoopDevice], paths: Sequence[VolumePath]) -> bool:
    return len(loops) == 1 and not loops[0].closing and loops[0].read_only != paths[0].writable


def _device(loop: loop_devices.LoopDevice) -> Device:
    return Device(loop.path, {"type": "block", "path": loop.path})
