# SPDX-License-Identifier: Apache-2.0
"""Loop devices over files that are open: the name of the file is not used again.

losetup cannot do that: it resolves the path that it gets, also one of /proc, to a name.

The kernel shows the present name of the file, which other machines may be able to change.  So a
device has a record of the path that it was made for: its size limit, which is larger than files
are and so limits nothing.

Source: loop(4) and linux/loop.h; LOOP_CONFIGURE came with Linux 5.8.
"""

from collections.abc import Callable
import errno
import fcntl
import hashlib
import os
from pathlib import Path
import struct
from typing import Final, NamedTuple

CONTROL: Final = Path("/dev/loop-control")
DELETED: Final = " (deleted)"
"""What /sys adds to the name of a file that was removed, or has another name by now."""

_DEVICES: Final = Path("/dev")
_BLOCK: Final = Path("/sys/block")
_LOOP_CLR_FD: Final = 0x4C01
_LOOP_GET_STATUS64: Final = 0x4C05
_LOOP_SET_CAPACITY: Final = 0x4C07
_LOOP_CONFIGURE: Final = 0x4C0A
_LOOP_CTL_GET_FREE: Final = 0x4C82
# struct loop_config: the file; block size, offset and others (36 bytes), all zero; size limit; 16
# bytes, all zero; the file's name, for programs that do not read /sys; 176 bytes, all zero.
_CONFIG: Final = struct.Struct("=I 36x Q 16x 64s 176x")
# struct loop_info64: device and inode of the file, lo_rdevice, offset, size limit, and others.
_INFO: Final = struct.Struct("=QQQQQ 192x")
_BLKROSET: Final = 0x125D
_OFF: Final = struct.pack("i", 0)
_TRIES: Final = 64
_RECORD: Final = 1 << 62
"""The smallest record; the kernel takes no limit of 2^63 and more."""
_HALF: Final = 31
"""The number of bits for the directory, and for the name in it."""


def _no_check() -> None:
    return


def configure(file: int, name: Path, check: Callable[[], None] = _no_check) -> str:
    """Make a device over an open file; one that is open for reading makes a read-only device.

    :param file: its descriptor
    :param name: the path that it is made for, see :func:`is_made_for`
    :param check: called before each change; it raises if there must be none
    :returns: "/dev/loop<number>"
    :raises OSError: there is none
    """
    config = _CONFIG.pack(file, _record(name), os.fsencode(name)[:63])
    control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_TRIES):
            path = f"{_DEVICES}/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
            if _configure(path, config, check):
                return path
    finally:
        os.close(control)
    raise OSError(errno.EBUSY, "Other programs take each free loop device first")


def set_capacity(path: str, check: Callable[[], None] = _no_check) -> None:
    """Let a device have the present size of its file; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        check()
        fcntl.ioctl(descriptor, _LOOP_SET_CAPACITY)
    finally:
        os.close(descriptor)


def release(path: str) -> None:
    """Let a device go away with its last user; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        free(descriptor)
    finally:
        os.close(descriptor)


def free(device: int) -> None:
    """Let an open device go away with its last user; raises OSError.

    The flag of "blockdev --setro" would stay, and keep the next program that is given this number
    from writing.  It is removed when no one else has the device open, so that those who have,
    such as writers that were stopped, never write again.

    Source: the kernel's drivers/block/loop.c, loop_clr_fd(), loop_get_status().
    """
    fcntl.ioctl(device, _LOOP_CLR_FD)
    try:
        get_backing(device)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        # It is no longer in use, and cannot be opened again.
        fcntl.ioctl(device, _BLKROSET, _OFF)


def is_made_for(folder: Path, path: Path) -> bool:
    """Return whether a device was made for a path, which its file may have lost by now.

    A device without a record, of another program or a former release, is known by the present
    name of its file.

    :param folder: of the device, /sys/block/loop*/loop
    """
    record = _read_record(folder)
    if record is not None:
        return record == _record(path)
    return read_backing_name(folder) in {f"{path}", f"{path}{DELETED}"}


def list_made_for(path: Path) -> list[str]:
    """List the devices that were made for a path."""
    # Only a device in use has the directory "loop".
    folders = sorted(_BLOCK.glob("loop*/loop"))
    return [f"{_DEVICES / item.parent.name}" for item in folders if is_made_for(item, path)]


def is_made_in(folder: Path, directory: Path) -> bool:
    """Return whether a device was made for a path in a directory."""
    record = _read_record(folder)
    if record is not None:
        return record >> _HALF == _record(directory / "any") >> _HALF
    return Path(read_backing_name(folder)).parent == directory


def read_backing_name(folder: Path) -> str:
    """Return the present name of the file of a device; "" if it has just been freed."""
    try:
        return os.fsdecode((folder / "backing_file").read_bytes()).removesuffix("\n")
    except OSError:
        return ""


class Backing(NamedTuple):
    """What a device is over.

    :ivar device: the number of the device that its file is on
    :ivar inode: of its file
    :ivar offset: in the file
    :ivar size_limit: 0: up to its end
    """

    device: int
    inode: int
    offset: int
    size_limit: int

    def is_file(self, status: os.stat_result) -> bool:
        """Return whether it is a whole file, which may have another name by now."""
        expected = (status.st_dev, status.st_ino, 0)
        return self[:3] == expected and (not self.size_limit or self.size_limit >= _RECORD)


def get_backing(device: int) -> Backing:
    """Return what an open device is over; raises OSError if it is no loop device in use."""
    info = fcntl.ioctl(device, _LOOP_GET_STATUS64, bytes(_INFO.size))
    number, inode, _rdevice, offset, size_limit = _INFO.unpack(info)
    return Backing(number, inode, offset, size_limit)


def _configure(path: str, config: bytes, check: Callable[[], None]) -> bool:
    """Configure a free device; False if another process was faster."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        check()
        fcntl.ioctl(descriptor, _LOOP_CONFIGURE, config)
        # "blockdev --setro" of a former use stays.  It has no effect on what the kernel makes of
        # the file: a device over one that is open for reading stays read-only.
        fcntl.ioctl(descriptor, _BLKROSET, _OFF)
    except OSError as error:
        if error.errno == errno.EBUSY:
            return False
        raise
    finally:
        os.close(descriptor)
    return True


def _record(path: Path) -> int:
    bits = (
        int.from_bytes(hashlib.sha256(os.fsencode(part)).digest()[:4], "big") >> 1
        for part in (path.parent, path)
    )
    directory, name = bits
    return _RECORD | directory << _HALF | name


def _read_record(folder: Path) -> int | None:
    try:
        limit = int((folder / "sizelimit").read_text())
    except (OSError, ValueError):
        return None
    return limit if limit >= _RECORD else None
