# SPDX-License-Identifier: Apache-2.0
"""Devices as the kernel knows them, whatever their paths; for open_handles.py and mounts.py.

A volume that is "local" may be a plain file; mount puts a loop device over it by itself.
"""

from collections.abc import Iterator
import contextlib
from dataclasses import dataclass
import os
from pathlib import Path

from attachd import exception
from attachd.agent.mount import statx
from attachd.agent.mount.statx import Stat

_BLOCK = Path("/sys/block")
_NUMBERS = Path("/sys/dev/block")


@dataclass(frozen=True)
class Node:
    """A block device, or a plain file that is used like one.

    :ivar path: one of its paths
    :ivar number: of the device; None: it is a file
    :ivar file: of the file, as in statx.py; None: it is a device
    """

    path: str
    number: int | None
    file: tuple[int, int] | None

    def is_it(self, found: Stat) -> bool:
        """Tell whether what was looked at is this."""
        if self.number is not None:
            return found.block_device == self.number
        return found.block_device is None and found.file == self.file

    @property
    def folder(self) -> Path | None:
        """Return the folder of the device in /sys; None: it is a file."""
        if self.number is None:
            return None
        return _NUMBERS / f"{os.major(self.number)}:{os.minor(self.number)}"

    def numbers(self) -> list[int]:
        """Return the numbers of what can be mounted of it: of a file, the loop devices over it."""
        if self.number is not None:
            return [self.number]
        return [loop.number for loop, _under in loops_over([self]) if loop.number is not None]

    def with_partitions(self) -> list["Node"]:
        """Return the device and its partitions."""
        folders = [each.parent for each in self.folder.glob("*/partition")] if self.folder else []
        numbers = [(each.name, _number(each)) for each in folders]
        return [self] + [Node(f"/dev/{name}", each, None) for name, each in numbers if each]


def look(path: str) -> Node:
    """Return what a path leads to.

    :raises OSError: there is nothing
    :raises HostError: it is neither a block device nor a plain file
    """
    found = statx.stat_of(path)
    if found.block_device is not None:
        return Node(path, found.block_device, None)
    if not Path(path).is_file():
        raise exception.HostError(reason=f"{path} is no block device.")
    return Node(path, None, found.file)


def loops() -> Iterator[tuple[Node, str]]:
    """Return the loop devices in use, each with the path of what it is over."""
    # Only a device in use has the folder "loop".
    for folder in sorted(_BLOCK.glob("loop*/loop")):
        backing = line_of(folder / "backing_file")
        number = _number(folder.parent)
        if backing and number:
            yield Node(f"/dev/{folder.parent.name}", number, None), backing


def loops_over(nodes: list[Node]) -> list[tuple[Node, Node]]:
    """Return the loop devices over some nodes, each with the one that it is over."""
    found = []
    for loop, backing in loops():
        with contextlib.suppress(OSError):
            stat = statx.stat_of(backing)
            found += [(loop, each) for each in nodes if each.is_it(stat)]
    return found


def line_of(path: Path) -> str:
    """Return the line that a file of /sys or /proc has; "" if there is none, or no such file."""
    try:
        return path.read_text(errors="surrogateescape").removesuffix("\n")
    except OSError:
        return ""


def _number(folder: Path) -> int | None:
    major, _, minor = line_of(folder / "dev").partition(":")
    return os.makedev(int(major), int(minor)) if minor else None
