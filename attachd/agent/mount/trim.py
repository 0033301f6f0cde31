# SPDX-License-Identifier: Apache-2.0
"""Free the blocks of a volume that its file system does not use (TRIM).

The kernel does it, for a file system that is mounted, range after range; each can be repeated.
"""

from collections.abc import Iterator
import os
import re
from typing import Final, NamedTuple

from attachd import exception
from attachd.agent.mount import growth
from attachd.linux import block_device, commands

TOOLS: Final = {"fstrim": "util-linux"}
"""Packages by command."""

STEP: Final = 64 * 2**30
"""Bytes of a range: other work on the volume waits for the end of one."""

_TIMEOUT: Final = 600.0
_TRIMMED: Final = re.compile(r"\((\d+) bytes\) trimmed")


class Range(NamedTuple):
    """A part of a mounted file system.

    :ivar start: in bytes
    :ivar length: in bytes; None: up to the end
    """

    mountpoint: str
    start: int
    length: int | None


class CannotTrim(exception.HostError):
    """A device is not mounted for writing, or frees no blocks."""


def list_ranges(device: str) -> Iterator[Range]:
    """Yield the ranges of the file system on a device; raises CannotTrim."""
    mount = growth.find_mount(device)
    if mount is None:
        raise CannotTrim(
            reason=f"{device} is not mounted. Mount it for writing, then repeat the command."
        )
    if mount.read_only:
        raise CannotTrim(
            reason=f"{device} is mounted read-only at {mount.mountpoint}, and only a file system "
            "that is mounted for writing frees its blocks."
        )
    if not block_device.can_discard(growth.find_node(device, mount)):
        raise CannotTrim(
            reason=f"{device} does not take discarded blocks: its storage has none to free, or "
            "does not support it (discard in its connection)."
        )
    found = os.statvfs(mount.mountpoint)
    size = found.f_blocks * found.f_frsize
    for start in range(0, max(size, 1), STEP):
        yield Range(mount.mountpoint, start, STEP if start + STEP < size else None)


def trim(part: Range, lock: int | None = None) -> int:
    """Free the unused blocks of a range; return how many bytes the file system has discarded.

    :param lock: file descriptor of the volume's lock, which is held until the end of the command
    :raises HostError: it failed, or did not end in ten minutes
    """
    length = [] if part.length is None else ["--length", f"{part.length}"]
    line = ("fstrim", "--verbose", "--offset", f"{part.start}", *length, part.mountpoint)
    printed = commands.run(*line, timeout=_TIMEOUT, pass_fds=[] if lock is None else [lock])
    match = _TRIMMED.search(printed)
    return int(match[1]) if match else 0
