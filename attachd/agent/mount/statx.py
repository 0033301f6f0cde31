# SPDX-License-Identifier: Apache-2.0
"""What the kernel knows of a file without asking its file server; for open_handles.py.

Python's stat() asks the server of a network or FUSE file system, which may be the one that hangs.

Source: statx(2); the structure is the one of linux/stat.h.
"""

import ctypes
from dataclasses import dataclass
import os
import stat
import struct

_AT_FDCWD = -100
_AT_STATX_DONT_SYNC = 0x4000
_STATX_BASIC_STATS = 0x07FF
_STATX_MNT_ID = 0x1000
# The mask, the mode and the inode; then the numbers of the device that it is and of the one that
# it is on, and of the mount.
_MASK = struct.Struct("=I24xH2xQ")
_PLACE = struct.Struct("=IIIIQ")
_PLACE_OFFSET = 0x80

_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Stat:
    """A file.

    :ivar block_device: the number of the block device that it is; None: it is something else
    :ivar file: what tells it from all others: the number of the device that it is on, and its own
    :ivar mount: the number of the mount that it was reached by, as in mountinfo; None: the kernel
        is older than 5.8 and does not tell
    """

    block_device: int | None
    file: tuple[int, int]
    mount: int | None

    @property
    def device(self) -> int:
        """Return the number of the device that it is on."""
        return self.file[0]


def stat_of(path: str | os.PathLike[str]) -> Stat:
    """Look at what a path leads to.

    :raises OSError: there is none, or it may not be seen
    """
    buffer = ctypes.create_string_buffer(256)
    wanted = _STATX_BASIC_STATS | _STATX_MNT_ID
    if _LIBC.statx(_AT_FDCWD, os.fsencode(path), _AT_STATX_DONT_SYNC, wanted, buffer):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), f"{path}")
    mask, mode, inode = _MASK.unpack_from(buffer)
    rdev_major, rdev_minor, major, minor, mount = _PLACE.unpack_from(buffer, _PLACE_OFFSET)
    return Stat(
        block_device=os.makedev(rdev_major, rdev_minor) if stat.S_ISBLK(mode) else None,
        file=(os.makedev(major, minor), inode),
        mount=mount if mask & _STATX_MNT_ID else None,
    )
