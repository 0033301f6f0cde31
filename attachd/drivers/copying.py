# SPDX-License-Identifier: Apache-2.0
"""Consistent copies of sparse files; for drivers whose volumes are files.

Some file systems (XFS, Btrfs, bcachefs, NFS 4.2 over one of them) clone a file at once and share
its blocks.  On others the data is copied, by the server of a share if it can, and the copy counts
only if the file's time of change shows that it was not written meanwhile.
"""

import errno
import fcntl
import os
import time
from typing import Final, NamedTuple

from attachd import exception
from attachd.drivers import base

_FICLONE: Final = 0x40049409
"""The ioctl that clones a file; Source: linux/fs.h, ioctl_ficlone(2)."""

_CANNOT_CLONE: Final = frozenset(
    {
        *(errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM),
        errno.EBADF,
    }
)
_TRIES: Final = 3
_TICK_NS: Final = 50_000_000
"""More than the granularity of the clock that file systems use for times of change."""
_CHUNK: Final = 4 * 2**20
SYNC_BYTES: Final = 64 * _CHUNK
"""Synchronized after that much, so that no single step takes long."""


class _Mark(NamedTuple):
    """Attributes that change with a file's content."""

    modified_ns: int
    changed_ns: int
    size: int


def copy(reading: int, writing: int, source: str, limit: int) -> None:
    """Fill a file with the content of another one at one moment.

    :param reading: the source, open for reading
    :param writing: the target, open for reading and writing
    :param source: its name, for messages
    :param limit: what the source has beyond so many bytes is left out
    :raises BackendError: the source is written to all the time
    :raises OSError: from the operating system
    """
    if not _clone(reading, writing):
        _copy_until_stable(source, reading, writing, limit)
    if os.fstat(writing).st_size > limit:
        base.check_still_owner()
        os.ftruncate(writing, limit)
    os.fsync(writing)


def _clone(reading: int, writing: int) -> bool:
    """Share the blocks; False if the file system cannot."""
    base.check_still_owner()
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
    except OSError as error:
        if error.errno in _CANNOT_CLONE:
            return False
        raise
    return True


def _copy_until_stable(source: str, reading: int, writing: int, limit: int) -> None:
    for _ in range(_TRIES):
        before = _rested(reading)
        if before is None:
            continue
        base.check_still_owner()
        os.ftruncate(writing, 0)
        size = min(before.size, limit)
        os.ftruncate(writing, size)
        _copy_data(reading, writing, size)
        if before == _mark(reading):
            return
    raise exception.BackendError(
        f"{source} is written to, and its file system cannot copy one moment of it: detach the "
        "volume first, or keep volumes on XFS or Btrfs."
    )


def _mark(descriptor: int) -> _Mark:
    found = os.fstat(descriptor)
    return _Mark(found.st_mtime_ns, found.st_ctime_ns, found.st_size)


def _rested(reading: int) -> _Mark | None:
    """Wait for a short time until another change would change the mark."""
    for _ in range(_TRIES):
        mark = _mark(reading)
        if time.time_ns() - mark.changed_ns > _TICK_NS:
            return mark
        time.sleep(_TICK_NS / 1e9)
    return None


def _copy_data(reading: int, writing: int, size: int) -> None:
    """Copy the data without holes; the target has the length of the source and is all zeros."""
    end = unsynced = 0
    while True:
        try:
            start = os.lseek(reading, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # no data from here on
                return
            raise
        if start >= size:
            return
        end = min(os.lseek(reading, start, os.SEEK_HOLE), size)
        while start < end:
            copied = _copy_chunk(reading, writing, start, min(_CHUNK, end - start))
            if not copied:  # it has become shorter, which changes its mark
                return
            start += copied
            base.report_progress(start / size)
            unsynced += copied
            if unsynced >= SYNC_BYTES:
                os.fdatasync(writing)
                unsynced = 0


def _copy_chunk(reading: int, writing: int, start: int, length: int) -> int:
    """Copy some bytes, within the file system if it can; returns how many."""
    base.check_still_owner()
    try:
        return os.copy_file_range(reading, writing, length, start, start)
    except OSError as error:
        if error.errno not in _CANNOT_CLONE:
            raise
    chunk = os.pread(reading, length, start)
    if chunk == bytes(len(chunk)):  # a file system without SEEK_DATA shows no holes
        return len(chunk)
    base.check_still_owner()
    return os.pwrite(writing, chunk, start)
