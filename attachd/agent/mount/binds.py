# SPDX-License-Identifier: Apache-2.0
"""Bind mounts by which containers get a mounted file system, or a device as it is.

Each function can be repeated after a crash.
"""

from collections.abc import Callable, Sequence
import os
from pathlib import Path
import stat
from typing import Final

from attachd import exception
from attachd.agent.journal import Entry
from attachd.agent.mount import mounts
from attachd.linux import commands, device_nodes, mountinfo
from attachd.linux.mountinfo import Mount

_TIMEOUT: Final = 60.0
_KEPT: Final = frozenset({"nosuid", "nodev", "noexec", "noatime", "nodiratime", "relatime"})
"""Options of the original that a bind mount loses when it is made read-only."""


def bind_directory(source: str, target: str, *, read_only: bool) -> None:
    """Show a mounted file system in another directory as well, which is made if it is missing.

    :param source: its mountpoint
    :param target: an absolute path, whose parent exists
    :raises HostError: it is not shown there
    """
    check_no_link(Path(target))
    mount = mountinfo.find_at(source)
    if mount is None:
        raise exception.HostError(reason=f"Nothing is mounted at {source}.")
    current = mountinfo.find_at(target)
    if current is None:
        _make(target, Path.mkdir)
        # Read-only at once: the kernel needs two calls, which the command makes without a pause.
        options = ["ro", *_list_kept(mount)] if read_only else []
        result = _run(["bind", *options], source, target)
        current = mountinfo.find_at(target)
        if current is None:
            raise exception.HostError(reason=f"{target} cannot be mounted: {result}")
    if current.device != mount.device:
        raise exception.HostError(
            reason=f"{current.source} is mounted at {target}, and not {mount.source}. Unmount it."
        )
    is_read_only = read_only or "ro" in mount.options
    if ("ro" in current.options) != is_read_only:
        access = "ro" if is_read_only else "rw"
        result = _run(["remount", "bind", access, *_list_kept(mount)], target)
        current = mountinfo.find_at(target)
        if current is None or ("ro" in current.options) != is_read_only:
            raise exception.HostError(reason=f"{target} cannot be made {access}: {result}")


def bind_device(device: str, target: str) -> None:
    """Show a block device at another path as well, where a file is made if it is missing.

    :param target: an absolute path, whose parent exists
    :raises HostError: it is not shown there, or ``device`` is a plain file
    """
    check_no_link(Path(target))
    node = device_nodes.stat_device(device)
    if node.number is None:
        raise exception.HostError(
            reason=f"{device} is a plain file, which containers cannot have as a device."
        )
    if not is_device_at(device, target):
        if (current := mountinfo.find_at(target)) is not None:
            raise exception.HostError(
                reason=f"{current.source} is mounted at {target}, and not {device}. Unmount it."
            )
        _make(target, Path.touch)
        result = _run(["bind"], os.path.realpath(device), target)
        if not is_device_at(device, target):
            raise exception.HostError(reason=f"{target} cannot be mounted: {result}")


def is_device_at(device: str, target: str) -> bool:
    """Return whether bind_device() has shown a device at a path."""
    if mountinfo.find_at(target) is None:
        return False
    try:
        number = device_nodes.stat_device(device).number
        return number is not None and device_nodes.statx(target).block_device == number
    except OSError:
        return False


def unbind(target: str) -> None:
    """Unmount what is shown at a path, and remove its directory or file; success if it is gone.

    :raises DeviceBusy: it is in use, and stays
    :raises HostError: it is still there, or has content of its own
    """
    path = Path(target)
    check_no_link(path)
    while mountinfo.find_at(target) is not None:
        mounts.unmount(target)
    try:
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode):
            path.rmdir()
        elif stat.S_ISREG(found.st_mode) and not found.st_size:
            path.unlink()
        else:
            raise exception.HostError(reason=f"{target} has content of its own, and is kept.")
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise exception.HostError(
            reason=f"{target} cannot be removed: {error.strerror}."
        ) from error


def check_no_publication(entry: Entry) -> None:
    """Check that no container has the device of an entry as it is.

    Its file at the target would be another disk when the number of the device is used again.

    :raises DeviceBusy: one has
    """
    if entry.staging is None or entry.staging.fs_type is not None or entry.device is None:
        return
    device = entry.device.path
    paths = [item.path for item in entry.staging.publications if is_device_at(device, item.path)]
    if paths:
        raise exception.DeviceBusy(
            device=device, users=f"a container, to which it is published at {', '.join(paths)}"
        )


def check_no_link(path: Path) -> None:
    """Check that a target is no symbolic link, which could lead to a mount of the host."""
    if path.is_symlink():
        raise exception.HostError(reason=f"{path} is a symbolic link. Remove it.")


def _list_kept(mount: Mount) -> list[str]:
    return [option for option in mount.options if option in _KEPT]


def _make(target: str, make: Callable[[Path], None]) -> None:
    path = Path(target)
    try:
        if not os.path.lexists(path):
            make(path)
    except OSError as error:
        raise exception.HostError(reason=f"{target} cannot be made: {error.strerror}.") from error


def _run(options: Sequence[str], *paths: str) -> str:
    """Run mount(8) with options, and return its message."""
    line = ["mount", "-o", ",".join(options), "--", *paths]
    return commands.execute(line, _TIMEOUT).stderr
