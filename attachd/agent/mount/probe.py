# SPDX-License-Identifier: Apache-2.0
"""The contents of a device, checked before a file system is made or mounted.

blkid names what has a signature.  Other data are found by reading: a device is empty if all that
is read of it is zero.  Up to 4 GiB all of it is read.  Of a larger one, which would take hours,
these are: the first GiB, the last 64 MiB, and one block of 4 KiB every 4 MiB in between.  So data
without a signature that lie in between, in a few places of a device of more than 4 GiB, can be
missed; file systems, partition tables, encrypted disks and databases spread over more than that.
"""

from collections.abc import Callable, Iterator
import contextlib
from dataclasses import dataclass
import errno
import fcntl
import mmap
import os
import time

from attachd import commands, exception

Progress = Callable[[str], None]
"""Called about once a second with the progress of a long operation, for people."""

_TIMEOUT = 300.0
# Exit codes of blkid.
_NOT_FOUND, _AMBIVALENT = 2, 8
_CHUNK = 2**20
_SAMPLE = 2**12
_MAX_READ_ALL = 4 * 2**30
_FIRST = 2**30
_LAST = 64 * 2**20
_SAMPLE_INTERVAL = 4 * 2**20


@dataclass(frozen=True)
class Contents:
    """What blkid finds on a device.

    :ivar filesystem: its type, as mount knows it; None: it cannot be mounted
    :ivar uuid: of the file system, or ""
    :ivar name: a description for people
    """

    filesystem: str | None
    uuid: str
    name: str


def detect(device: str) -> Contents | None:
    """Read the signatures of a device, not those that are cached; None: there are none.

    :raises HostError: the device cannot be read
    """
    with _opened(device) as file, mmap.mmap(-1, _CHUNK) as page:
        # blkid reports a device that it cannot read as empty.
        _read(file, page, 0, min(_SAMPLE, os.lseek(file, 0, os.SEEK_END)))
    result = commands.execute(["blkid", "-p", "-o", "export", device], _TIMEOUT)
    if result.exit_code == _NOT_FOUND:
        return None
    if result.exit_code == _AMBIVALENT:
        return Contents(None, "", "signatures of several kinds (see wipefs --no-act)")
    if result.exit_code:
        raise exception.HostError(reason=f"blkid cannot determine what is on {device}: {result}.")
    values = dict(line.partition("=")[::2] for line in result.stdout.splitlines())
    return _parse_contents(values)


def check_empty(device: str, progress: Progress) -> None:
    """Check that a device carries no data, with the limits described in this module.

    :raises HostError: it carries data, which the message names; or it cannot be read
    """
    if contents := detect(device):
        raise exception.HostError(reason=_refusal(device, contents.name))
    listed = commands.execute(["wipefs", "--no-act", "--noheadings", device], _TIMEOUT)
    if listed.exit_code or listed.stdout.strip():
        what = listed.stdout.strip() or listed.stderr
        raise exception.HostError(reason=_refusal(device, f"something (wipefs says: {what})"))
    with _opened(device) as file:
        offset = _find_data(file, _ProgressReporter(device, progress))
    if offset is not None:
        raise exception.HostError(reason=_refusal(device, f"data (at byte {offset})"))


def erase(device: str) -> None:
    """Write zeros where check_empty() reads, to a device that it has found to be empty before.

    :raises HostError: the device cannot be read or written
    """
    with _opened(device, os.O_RDWR) as file, mmap.mmap(-1, _CHUNK) as page:
        for offset, length in _regions(os.lseek(file, 0, os.SEEK_END)):
            count = _read(file, page, offset, length)
            if page[:count] != bytes(count):
                page[:count] = bytes(count)
                os.pwrite(file, page[:count], offset)
        os.fsync(file)


def _parse_contents(values: dict[str, str]) -> Contents:
    """Return the contents of blkid's values by name."""
    type_, usage = values.get("TYPE", ""), values.get("USAGE", "")
    if usage == "filesystem":
        return Contents(type_, values.get("UUID", ""), type_)
    if type_:
        return Contents(None, "", _NAMES.get(type_, f"{usage or 'data'} of type {type_}"))
    return Contents(None, "", f"a partition table ({values.get('PTTYPE', 'unknown')})")


_NAMES = {
    "crypto_LUKS": "an encrypted disk (crypto_LUKS)",
    "linux_raid_member": "a member of a RAID (linux_raid_member)",
    "LVM2_member": "a physical volume of LVM (LVM2_member)",
    "swap": "swap space",
}


def _refusal(device: str, what: str) -> str:
    return (
        f"{device} carries {what}: no file system is made on it. If it is not needed, remove it "
        "first, such as with wipefs or dd; otherwise leave out --mkfs."
    )


class _ProgressReporter:
    """Reports how much has been read, about once a second."""

    def __init__(self, device: str, progress: Progress) -> None:
        self._device = device
        self._progress = progress
        self._next = time.monotonic() + 1

    def report(self, fraction: float) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 1
            self._progress(f"Searching for data on {self._device}: {fraction:.0%}")


def _find_data(file: int, reporter: _ProgressReporter) -> int | None:
    """Return the offset of the first region that is not zero, in bytes, or None."""
    size = os.lseek(file, 0, os.SEEK_END)
    regions = list(_regions(size))
    total = sum(length for _offset, length in regions) or 1
    done = 0
    with mmap.mmap(-1, _CHUNK) as page:
        for offset, length in regions:
            count = _read(file, page, offset, length)
            if page[:count] != bytes(count):
                return offset
            done += length
            reporter.report(done / total)
    return None


def _regions(size: int) -> Iterator[tuple[int, int]]:
    """Yield offset and length of what is read of a device."""
    if size <= _MAX_READ_ALL:
        yield from _chunks(0, size)
        return
    last = (size - _LAST) // _SAMPLE * _SAMPLE
    yield from _chunks(0, _FIRST)
    yield from ((offset, _SAMPLE) for offset in range(_FIRST, last, _SAMPLE_INTERVAL))
    yield from _chunks(last, size)


def _chunks(begin: int, end: int) -> Iterator[tuple[int, int]]:
    return ((offset, min(_CHUNK, end - offset)) for offset in range(begin, end, _CHUNK))


def _read(file: int, page: mmap.mmap, offset: int, length: int) -> int:
    """Read whole blocks into a page, and return the number of bytes that were read."""
    with memoryview(page) as view, view[: -(-length // _SAMPLE) * _SAMPLE] as blocks:
        try:
            count = os.preadv(file, [blocks], offset)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # Some devices can be opened with O_DIRECT, but not read.
            fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) & ~os.O_DIRECT)
            count = os.preadv(file, [blocks], offset)
    if count < length:
        raise OSError(errno.EIO, f"{count} of {length} bytes could be read at {offset}")
    return count


@contextlib.contextmanager
def _opened(device: str, mode: int = os.O_RDONLY) -> Iterator[int]:
    """Open a device, for reading without the page cache if possible; errors become HostError."""
    try:
        try:
            direct = os.O_DIRECT if mode == os.O_RDONLY else 0
            file = os.open(device, mode | os.O_CLOEXEC | direct)
        except OSError:
            file = os.open(device, mode | os.O_CLOEXEC)
        try:
            yield file
        finally:
            os.close(file)
    except OSError as error:
        verb = "read" if mode == os.O_RDONLY else "written"
        reason = f"{device} cannot be {verb}: {error.strerror}."
        raise exception.HostError(reason=reason) from error
