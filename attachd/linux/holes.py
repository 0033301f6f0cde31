# SPDX-License-Identifier: Apache-2.0
"""Holes in files: their blocks are freed, and read as zeros.

Source: fallocate(2)
"""

import ctypes
import os
from typing import Final

_KEEP_SIZE: Final = 0x1
_PUNCH_HOLE: Final = 0x2


def punch(file: int, offset: int, length: int) -> None:
    """Free the blocks of a part of a file; its size stays.

    :param file: its descriptor, open for writing
    :param offset: in bytes, as is ``length``
    :raises OSError: such as EOPNOTSUPP: the file system cannot
    """
    libc = ctypes.CDLL(None, use_errno=True)
    start, count = ctypes.c_int64(offset), ctypes.c_int64(length)
    if libc.fallocate64(file, _PUNCH_HOLE | _KEEP_SIZE, start, count):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
