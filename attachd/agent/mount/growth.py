# SPDX-License-Identifier: Apache-2.0
"""Let the file system of a volume grow with its device.

The kernel does it, for a file system that is mounted; see filesystem_growth.py.  A process that is
killed in between leaves a file system of the former or of the new size: the next one reads it, and
continues.
"""

from collections.abc import Callable, Collection
import dataclasses
import os
from pathlib import Path
import sys
from typing import Final

from attachd import exception
from attachd.agent.journal import Entry, Journal
from attachd.agent.mount import filesystem_growth
from attachd.agent.mount.filesystem_state import FilesystemState
from attachd.linux import block_device, commands, device_nodes, loops, mountinfo
from attachd.linux.mountinfo import Mount

GROWABLE: Final = ("ext4", "xfs", "btrfs")
"""The types that can grow; ext2 and ext3 count as ext4, whose code in the kernel they use."""

_TIMEOUT: Final = 600.0
_READ_TIMEOUT: Final = 60.0
_NOT_PERMITTED: Final = os.strerror(1)


def find_mount(device: str) -> Mount | None:
    """Return a mount of a device, a writable one if there is one; None: it is not mounted."""
    try:
        numbers = device_nodes.stat_device(device).device_numbers()
    except OSError:
        return None
    mounts = [mount for mount in mountinfo.list_mounts() if any(map(mount.is_of_device, numbers))]
    return min(mounts, key=lambda mount: mount.read_only, default=None)


def is_read(entry: Entry) -> bool:
    """Return whether the journal has the size of what is on a device now.

    Only /sys and /proc are read.  What was mounted before stays as it was read then.
    """
    state, device = entry.filesystem, entry.device
    if device is None:
        return True
    if state is None or state.device_size != block_device.size(device.path):
        return False
    mount = find_mount(device.path)
    return mount is None or mount.mount_id == state.mount


def update(
    journal: Journal,
    entry: Entry,
    *,
    types: Collection[str] = (),
    check_growable: Callable[[], object] = lambda: None,
) -> Entry:
    """Read the size of the file system of an entry, and let it grow if it may.

    :param types: those of GROWABLE that may grow
    :param check_growable: called before it grows; raises HostError if it must not
    :returns: the entry as stored in the journal; ``error`` of its state says why it has not grown
    :raises HostError: it could not be read
    """
    assert entry.device is not None
    device, lock = entry.device.path, journal.held_lock()
    locks = [] if lock is None else [lock]
    state = read(device, locks)
    if state.is_smaller and _kind(state.type) in types:
        try:
            check_growable()
            state = grow(device, locks)
        except exception.HostError as error:
            state = dataclasses.replace(state, error=f"{error}")
    return entry if state == entry.filesystem else journal.write(entry, filesystem=state)


def read(device: str, locks: Collection[int] = ()) -> FilesystemState:
    """Return the size of what is on a device; nothing is changed.

    :param locks: file descriptors that are open until the end of the program that reads it
    :raises HostError: it could not be read
    """
    mount, size = find_mount(device), block_device.size(device)
    if mount is None and Path(device).is_file():
        # Other hosts may replace what has the name of the file.
        return FilesystemState("", 0, size)
    return _run(device, mount, size, 0, locks)


def grow(device: str, locks: Collection[int] = ()) -> FilesystemState:
    """Let the file system on a device grow to its size, by the kernel that has mounted it.

    :param locks: as in read()
    :raises HostError: it has not grown
    """
    mount = find_mount(device)
    if mount is None:
        raise exception.HostError(
            reason="it can grow only while it is mounted. Mount it, then repeat the command."
        )
    if mount.read_only or block_device.is_read_only(find_node(device, mount)):
        raise exception.HostError(
            reason=f"{device} is read-only on this host. A host that may write lets it grow."
        )
    if _kind(mount.fs_type) not in GROWABLE:
        raise exception.HostError(
            reason=f"only {', '.join(GROWABLE)} can grow. Use the tools of {mount.fs_type}."
        )
    _refresh(device, mount)
    size = block_device.size(device)
    state = _run(device, mount, size, size, locks)
    if state.is_smaller:
        raise exception.HostError(reason="the kernel has not let it grow (see dmesg).")
    return state


def _run(
    device: str, mount: Mount | None, device_size: int, size: int, locks: Collection[int]
) -> FilesystemState:
    """Run the program that reads a size, and lets a file system grow to a size that is not 0."""
    node = find_node(device, mount)
    where = ("", "0", "") if mount is None else (
        mount.mountpoint, f"{mount.mount_id}", mount.fs_type
    )  # fmt: skip
    result = commands.execute(
        (sys.executable, "-m", filesystem_growth.__name__, node, *where, f"{size}"),
        _TIMEOUT if size else _READ_TIMEOUT,
        tuple(locks),
        progress=lambda: block_device.count_writes(node),
    )
    if result.exit_code:
        hint = ""
        if size and _NOT_PERMITTED in result.stderr:
            hint = " The kernel wants CAP_SYS_RESOURCE, and a file system without errors."
        raise exception.HostError(reason=f"{result.stderr}.{hint}")
    fs_type, count, _block = result.stdout.rstrip("\n").split(" ")
    return FilesystemState(fs_type, int(count), device_size, mount.mount_id if mount else None)


def _refresh(device: str, mount: Mount) -> None:
    """Let the loop device over a plain file have the size of the file."""
    if not Path(device).is_file():
        return
    try:
        loops.set_capacity(find_node(device, mount))
    except OSError as error:
        raise exception.HostError(
            reason=f"the size of {mount.source} cannot be changed: {error.strerror}."
        ) from error


def find_node(device: str, mount: Mount | None) -> str:
    """Return the block device of a device: of a plain file, that which is mounted."""
    return mount.source if mount is not None and Path(device).is_file() else device


def _kind(fs_type: str) -> str:
    return "ext4" if fs_type in filesystem_growth.EXT_TYPES else fs_type
