# SPDX-License-Identifier: Apache-2.0
"""Attributes of mounts whose content other machines can change: nothing but plain files is used.

Source: mount_setattr(2), of Linux 5.12, and linux/mount.h; NOSYMFOLLOW of mount_setattr came with
5.14.  With an older kernel only the mount options remain, and confined.py avoids links.
"""

import ctypes
import errno
import os
from pathlib import Path
import platform
from typing import Final

OPTIONS: Final = "nosuid,nodev,noexec"
"""For mount(8), which passes no other ones to each helper of a file system."""

_MOUNT_SETATTR: Final = 442
_AT_FDCWD: Final = -100
_NOSUID, _NODEV, _NOEXEC, _NOSYMFOLLOW = 0x2, 0x4, 0x8, 0x200000
_FILES_ALONE: Final = _NOSUID | _NODEV | _NOEXEC

_LIBC = ctypes.CDLL(None, use_errno=True)


class _MountAttr(ctypes.Structure):
    """struct mount_attr of linux/mount.h."""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def restrict(mount_point: Path) -> str:
    """Let a mount that exists follow no links, and have no devices and programs.

    :returns: what the kernel does not support; "" if the mount has all attributes
    :raises OSError: nothing is mounted there, or this process may not
    """
    try:
        try:
            _set(mount_point, _FILES_ALONE | _NOSYMFOLLOW)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            _set(mount_point, _FILES_ALONE)  # it fails as well if nothing is mounted there
        else:
            return ""
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
    return f"Linux {platform.release()} cannot let a mount follow no links; 5.14 can"


def _set(mount_point: Path, attributes: int) -> None:
    request = _MountAttr(attributes, 0, 0, 0)
    if _LIBC.syscall(
        _MOUNT_SETATTR,
        _AT_FDCWD,
        ctypes.c_char_p(os.fsencode(mount_point)),
        0,
        ctypes.byref(request),
        ctypes.c_size_t(ctypes.sizeof(request)),
    ):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), f"{mount_point}")
