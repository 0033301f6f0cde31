# SPDX-License-Identifier: Apache-2.0
"""A volume's daemon and the loop device over its file, as one thing; for qemu/connector.py.

Whoever calls has the folder to himself, see state_dir.py; the lock is that of held().
"""

from collections.abc import Sequence
from pathlib import Path

from oslo_log import log

from attachd import exception
from attachd.agent import block_device, commands
from attachd.agent.connectors.base import Device
from attachd.agent.connectors.qemu import loop_devices, storage_daemon
from attachd.agent.connectors.qemu.blockdev import Image

LOG = log.getLogger(__name__)

_FORCED_FLUSH_SECONDS = 10.0


def complete(folder: Path, paths: Sequence[Image], lock: int) -> Device | None:
    """Return the device if its daemon runs, even if somebody has only just begun to start it.

    :returns: None: there is nothing that could be used
    :raises HostError: it was detached, but is open
    """
    if not _has_daemon(folder, paths):
        return None
    try:
        storage_daemon.await_ready(folder)
    except exception.HostError:
        return None
    image, writable = storage_daemon.image_file(folder), paths[0].writable
    over = loop_devices.over(image)
    for each in over:
        if each.closing:
            raise exception.HostError(
                reason=f"{each.path} was detached while somebody used it, and still is open. "
                "Close it, detach the volume, and attach it again."
            )
    if not over:
        return _device(loop_devices.attach(image, writable=writable, lock=lock))
    return _device(over[0]) if _fits(over, paths) else None


def find(folder: Path, paths: Sequence[Image]) -> loop_devices.Loop | None:
    """Return the device that can be used, if there is one."""
    if not _has_daemon(folder, paths) or not storage_daemon.is_ready(folder):
        return None
    over = loop_devices.over(storage_daemon.image_file(folder))
    return over[0] if _fits(over, paths) else None


def make(folder: Path, paths: Sequence[Image], lock: int) -> Device:
    """Start a daemon, on the first path that works, and make a device; nothing is there before.

    :raises HostError: something may be left
    """
    for number, image in enumerate(paths, start=1):
        try:
            storage_daemon.start(folder, image)
            break
        except exception.HostError as error:
            discard(folder, lock)
            if number == len(paths):
                raise exception.HostError(
                    reason=f"{error} ({image.where}). Look whether the backend runs and can be "
                    "reached from this host, then repeat the command."
                ) from error
            LOG.warning("The path %s does not work: %s", image.where, error)
    return _device(
        loop_devices.attach(
            storage_daemon.image_file(folder), writable=paths[0].writable, lock=lock
        )
    )


def extend(folder: Path, paths: Sequence[Image]) -> int:
    """Let the daemon, then the loop device ask for the size; returns it in bytes.

    :raises HostError: it is as large as before
    """
    loop = find(folder, paths)
    if loop is None:
        raise exception.HostError(reason="The volume is not connected: attach it again.")
    if loop.read_only or paths[0].blockdev["driver"] != "iscsi":
        # QEMU would resize a Ceph image to what it was before, and asks nobody when read-only.
        raise exception.HostError(
            reason=f"{loop.path} cannot grow while it is attached, as devices that are read-only "
            "or of Ceph cannot. Detach the volume, and attach it again."
        )
    size = storage_daemon.resize(folder)
    loop_devices.refresh(loop)
    if block_device.size(loop.path) != size:
        raise exception.HostError(reason=f"{loop.path} has not grown. Repeat the command.")
    return size


def take_away(folder: Path, lock: int, *, force: bool = False) -> None:
    """Leave nothing of a device but its empty folder; all that was written is on the volume.

    :param force: although not everything that was written can be saved
    :raises HostError: something is left
    """
    try:
        _flush(folder, _FORCED_FLUSH_SECONDS if force else commands.SECONDS)
    except exception.HostError as error:
        if not force:
            raise exception.HostError(
                reason=f"Not all that was written is on the volume: {error} Repeat the command "
                "when the backend is back, or force the detach, which loses what was not written."
            ) from error
        LOG.warning("What was written to %s is lost: %s", folder, error)
        # Without it what hangs gets errors, and goes on.
        storage_daemon.kill(folder)
    try:
        loop_devices.detach(storage_daemon.image_file(folder), lock=lock)
    except exception.HostError as error:
        if not force:
            raise
        LOG.warning("%s", error)
    storage_daemon.stop(folder, force=force)
    storage_daemon.clear(folder, lock=lock)


def discard(folder: Path, lock: int) -> None:
    """Leave nothing of an attempt to make a device, to which nobody has written."""
    storage_daemon.kill(folder)
    loop_devices.detach(storage_daemon.image_file(folder), lock=lock)
    storage_daemon.clear(folder, lock=lock)


def _flush(folder: Path, seconds: float) -> None:
    for each in loop_devices.over(storage_daemon.image_file(folder)):
        if storage_daemon.find(folder):
            block_device.flush(each.path, seconds)
        else:
            block_device.check_written(each.path)


def _has_daemon(folder: Path, paths: Sequence[Image]) -> bool:
    """Tell whether there is one daemon, and it has the volume in the way that is asked for."""
    lines = [storage_daemon.command(folder, each) for each in paths]
    found = storage_daemon.find(folder)
    return len(found) == 1 and any(list(found[0].line[-len(each) :]) == each for each in lines)


def _fits(over: Sequence[loop_devices.Loop], paths: Sequence[Image]) -> bool:
    return len(over) == 1 and not over[0].closing and over[0].read_only != paths[0].writable


def _device(loop: loop_devices.Loop) -> Device:
    return Device(loop.path, {"type": "block", "path": loop.path})
