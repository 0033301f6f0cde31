# SPDX-License-Identifier: Apache-2.0
"""Loop devices over files that are open: the name of the file is not used again.

losetup cannot do that: it resolves the path that it gets, also one of /proc, to a name.

Source: loop(4) and linux/loop.h; LOOP_CONFIGURE came with Linux 5.8.
"""

from collections.abc import Callable
import errno
import fcntl
import os
from pathlib import Path
import struct
from typing import Final, NamedTuple

CONTROL: Final = Path("/dev/loop-control")
DELETED: Final = " (deleted)"
"""What /sys adds to the name of a file that was removed, or has another name by now."""

_DEVICES: Final = Path("/dev")
_LOOP_GET_STATUS64: Final = 0x4C05
_LOOP_SET_CAPACITY: Final = 0x4C07
_LOOP_CONFIGURE: Final = 0x4C0A
_LOOP_CTL_GET_FREE: Final = 0x4C82
# struct loop_config: the file; block size, offset, flags and the like (60 bytes), all zero; the
# file's name, for programs that do not read /sys; 176 bytes more, all zero.
_CONFIG: Final = struct.Struct("=I 60x 64s 176x")
# struct loop_info64: device and inode of the file, lo_rdevice, offset, size limit, and others.
_INFO: Final = struct.Struct("=QQQQQ 192x")
_TRIES: Final = 64


def _no_check() -> None:
    return


def configure(file: int, name: Path, check: Callable[[], None] = _no_check) -> str:
    """Make a device over an open file; one that is open for reading makes a read-only device.

    :param file: its descriptor
    :param name: for people
    :param check: called before each change; it raises if there must be none
    :returns: "/dev/loop<number>"
    :raises OSError: there is none
    """
    config = _CONFIG.pack(file, os.fsencode(name)[:63])
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
        expected = (status.st_dev, status.st_ino, 0, 0)
        return tuple(self) == expected


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
    except OSError as error:
        if error.errno == errno.EBUSY:
            return False
        raise
    finally:
        os.close(descriptor)
    return True
