# SPDX-License-Identifier: Apache-2.0
"""Block devices and files as the kernel identifies them, independent of their paths.

Python's stat() asks the server of a network or FUSE file system, which may hang; statx() of this
module does not.  A "local" volume may be a plain file; mount puts a loop device over it by itself.

Source: statx(2); the structure is the one of linux/stat.h.
"""

from collections.abc import Iterator
import contextlib
import ctypes
from dataclasses import dataclass
import os
from pathlib import Path
import stat
import struct

from attachd import exception

_BLOCK = Path("/sys/block")
_NUMBERS = Path("/sys/dev/block")

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_AT_STATX_DONT_SYNC = 0x4000
_STATX_BASIC_STATS = 0x07FF
_STATX_MNT_ID = 0x1000
# The mask, the mode and the inode; then the device numbers of the file itself and of the file
# system that it is on, and the mount ID.
_MASK = struct.Struct("=I24xH2xQ")
_DEVICES = struct.Struct("=IIIIQ")
_DEVICES_OFFSET = 0x80

_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class FileStat:
    """A file.

    :ivar block_device: the device number of a block device; None: it is something else
    :ivar file: its identity: the number of the device that it is on, and its inode
    :ivar mount: the ID of the mount that it was reached by, as in mountinfo; None: the kernel is
        older than 5.8 and does not report it
    """

    block_device: int | None
    file: tuple[int, int]
    mount: int | None
    is_regular: bool

    @property
    def device(self) -> int:
        """The number of the device that it is on."""
        return self.file[0]


@dataclass(frozen=True)
class DeviceNode:
    """A block device, or a plain file that is used like one.

    :ivar path: one of its paths
    :ivar number: of the device; None: it is a file
    :ivar file: as in FileStat; None: it is a device
    """

    path: str
    number: int | None
    file: tuple[int, int] | None

    def matches(self, other: FileStat) -> bool:
        """Return whether a file is this device or file."""
        if self.number is not None:
            return other.block_device == self.number
        return other.block_device is None and other.file == self.file

    @property
    def sysfs_dir(self) -> Path | None:
        """The directory of the device in /sys; None: it is a file."""
        if self.number is None:
            return None
        return _NUMBERS / f"{os.major(self.number)}:{os.minor(self.number)}"

    def is_cut_off(self) -> bool:
        """Return whether no controller reaches an NVMe namespace: opening it may wait forever.

        Source: the kernel's sysfs, with and without its own multipathing.
        """
        if self.sysfs_dir is None:
            return False
        device = self.sysfs_dir / "device"
        states = [read_line(path) for path in (device / "state", *device.glob("nvme*/state"))]
        is_nvme = (device / "subsysnqn").exists()
        return is_nvme and "live" not in states

    def device_numbers(self) -> list[int]:
        """Return the numbers of the devices to mount: of a file, the loop devices over it."""
        if self.number is not None:
            return [self.number]
        return [loop.number for loop, _node in list_loops_over([self]) if loop.number is not None]

    def with_partitions(self) -> list["DeviceNode"]:
        """Return the device and its partitions."""
        if self.sysfs_dir is None:
            return [self]
        partitions = [path.parent for path in self.sysfs_dir.glob("*/partition")]
        numbers = [(path.name, _read_number(path)) for path in partitions]
        return [self] + [
            DeviceNode(f"/dev/{name}", number, None) for name, number in numbers if number
        ]

    def with_devices_on_top(self) -> list["DeviceNode"]:
        """Return the device, its partitions, and all devices made of them, such as by LVM."""
        nodes = self.with_partitions()
        on_top = [loop for loop, _node in list_loops_over(nodes)]
        for directory in filter(None, (node.sysfs_dir for node in nodes)):
            on_top += [
                DeviceNode(f"/dev/{holder.name}", _read_number(holder), None)
                for holder in sorted(directory.glob("holders/*"))
            ]
        nodes += [found for node in on_top for found in node.with_devices_on_top()]
        return list(dict.fromkeys(nodes))


def statx(path: str | os.PathLike[str]) -> FileStat:
    """Return what the kernel knows of a path without a request to a file server.

    :raises OSError: it does not exist, or access is denied
    """
    return _statx(path, _AT_STATX_DONT_SYNC)


def statx_backing(path: str) -> FileStat:
    """Return what the kernel knows of the file below a loop device, by its path.

    The kernel names it without links.  A link that is there by now is something else, which
    another machine may have made.

    :raises OSError: it does not exist, or access is denied
    """
    return _statx(path, _AT_STATX_DONT_SYNC | _AT_SYMLINK_NOFOLLOW)


def _statx(path: str | os.PathLike[str], flags: int) -> FileStat:
    buffer = ctypes.create_string_buffer(256)
    fields = _STATX_BASIC_STATS | _STATX_MNT_ID
    if _LIBC.statx(_AT_FDCWD, os.fsencode(path), flags, fields, buffer):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), f"{path}")
    mask, mode, inode = _MASK.unpack_from(buffer)
    rdev_major, rdev_minor, major, minor, mount = _DEVICES.unpack_from(buffer, _DEVICES_OFFSET)
    return FileStat(
        block_device=os.makedev(rdev_major, rdev_minor) if stat.S_ISBLK(mode) else None,
        file=(os.makedev(major, minor), inode),
        mount=mount if mask & _STATX_MNT_ID else None,
        is_regular=stat.S_ISREG(mode),
    )


def stat_device(path: str) -> DeviceNode:
    """Return the device or plain file at a path.

    :raises OSError: there is none
    :raises HostError: it is neither a block device nor a plain file
    """
    file = statx(path)
    if file.block_device is not None:
        return DeviceNode(path, file.block_device, None)
    if not file.is_regular:
        raise exception.HostError(reason=f"{path} is no block device.")
    return DeviceNode(path, None, file.file)


def list_loop_devices() -> Iterator[tuple[DeviceNode, str]]:
    """Yield the loop devices in use, each with the path of its backing file."""
    # Only a device in use has the directory "loop".
    for directory in sorted(_BLOCK.glob("loop*/loop")):
        backing = read_line(directory / "backing_file")
        number = _read_number(directory.parent)
        if backing and number:
            yield DeviceNode(f"/dev/{directory.parent.name}", number, None), backing


def list_loops_over(nodes: list[DeviceNode]) -> list[tuple[DeviceNode, DeviceNode]]:
    """Return the loop devices over some nodes, each with the node that it is over."""
    found = []
    for loop, backing in list_loop_devices():
        with contextlib.suppress(OSError):
            file = statx_backing(backing)
            found += [(loop, node) for node in nodes if node.matches(file)]
    return found


def read_line(path: Path) -> str:
    """Return the content of a file of /sys or /proc without its newline; "" if there is none."""
    try:
        return path.read_text(errors="surrogateescape").removesuffix("\n")
    except OSError:
        return ""


def _read_number(directory: Path) -> int | None:
    major, _, minor = read_line(directory / "dev").partition(":")
    return os.makedev(int(major), int(minor)) if minor else None
