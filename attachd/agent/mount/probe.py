# SPDX-License-Identifier: Apache-2.0
"""What is on a device, before anything is written to it; for filesystems.py and mounts.py.

What blkid knows by its signature is told by name.  Whatever else there may be is found by
reading: a device is empty if all that is read of it is zero.  Up to 4 GiB all of it is read.  Of
a larger one, which would take hours, these are: the first GiB, the last 64 MiB, and one block of
4 KiB every 4 MiB in between.  So data without any signature that lie in between, in a few places
of a device of more than 4 GiB, can be missed; file systems, partition tables, encrypted disks and
databases spread over more than that.
"""

from collections.abc import Callable, Iterator
import contextlib
from dataclasses import dataclass
import errno
import fcntl
import mmap
import os
import time

from attachd import exception
from attachd.agent import commands

Progress = Callable[[str], None]
"""Is told, about once a second, how far something is that takes long."""

_TIMEOUT = 300.0
_NOTHING, _AMBIVALENT = 2, 8
_PART = 2**20
_SAMPLE = 2**12
_WHOLE_UP_TO = 4 * 2**30
_FIRST = 2**30
_LAST = 64 * 2**20
_EVERY = 4 * 2**20


@dataclass(frozen=True)
class Contents:
    """What a device begins with.

    :ivar filesystem: its kind, as mount knows it; None: something that cannot be mounted
    :ivar uuid: of the file system, or ""
    :ivar name: for people
    """

    filesystem: str | None
    uuid: str
    name: str


def probe(device: str) -> Contents | None:
    """Look for signatures, past each cache of them; None: there are none.

    :raises HostError: the device cannot be read
    """
    with _opened(device) as file, mmap.mmap(-1, _PART) as page:
        # blkid takes what it cannot read for nothing.
        _read(file, page, 0, min(_SAMPLE, os.lseek(file, 0, os.SEEK_END)))
    outcome = commands.execute(["blkid", "-p", "-o", "export", device], _TIMEOUT)
    if outcome.exit_code == _NOTHING:
        return None
    if outcome.exit_code == _AMBIVALENT:
        return Contents(None, "", "signatures of several kinds (see wipefs --no-act)")
    if outcome.exit_code:
        raise exception.HostError(reason=f"blkid cannot tell what is on {device}: {outcome}.")
    found = dict(line.partition("=")[::2] for line in outcome.stdout.splitlines())
    return _contents(found)


def check_empty(device: str, progress: Progress) -> None:
    """Find out that a device carries no data, as far as the top of this file tells.

    :raises HostError: it does, and which; or it cannot be read
    """
    if found := probe(device):
        raise exception.HostError(reason=_refused(device, found.name))
    listed = commands.execute(["wipefs", "--no-act", "--noheadings", device], _TIMEOUT)
    if listed.exit_code or listed.stdout.strip():
        what = listed.stdout.strip() or listed.stderr
        raise exception.HostError(reason=_refused(device, f"something (wipefs says: {what})"))
    with _opened(device) as file:
        place = _first_data(file, _Telling(device, progress))
    if place is not None:
        raise exception.HostError(reason=_refused(device, f"data (at byte {place})"))


def erase(device: str) -> None:
    """Let a device be as check_empty() has found it, after something was written to it.

    :raises HostError: it is not
    """
    with _opened(device, os.O_RDWR) as file, mmap.mmap(-1, _PART) as page:
        for place, length in _places(os.lseek(file, 0, os.SEEK_END)):
            count = _read(file, page, place, length)
            if page[:count] != bytes(count):
                page[:count] = bytes(count)
                os.pwrite(file, page[:count], place)
        os.fsync(file)


def _contents(found: dict[str, str]) -> Contents:
    kind, usage = found.get("TYPE", ""), found.get("USAGE", "")
    if usage == "filesystem":
        return Contents(kind, found.get("UUID", ""), kind)
    if kind:
        return Contents(None, "", _NAMES.get(kind, f"{usage or 'data'} of type {kind}"))
    return Contents(None, "", f"a partition table ({found.get('PTTYPE', 'unknown')})")


_NAMES = {
    "crypto_LUKS": "an encrypted disk (crypto_LUKS)",
    "linux_raid_member": "a member of a RAID (linux_raid_member)",
    "LVM2_member": "a physical volume of LVM (LVM2_member)",
    "swap": "swap space",
}


def _refused(device: str, what: str) -> str:
    return (
        f"{device} carries {what}: no file system is made on it. If nobody needs that, remove it "
        "first, such as with wipefs or dd; otherwise leave out --mkfs."
    )


class _Telling:
    """Tells how much has been read, about once a second."""

    def __init__(self, device: str, progress: Progress) -> None:
        self._device = device
        self._progress = progress
        self._due = time.monotonic() + 1

    def tell(self, part: float) -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + 1
            self._progress(f"Looking for data on {self._device}: {part:.0%}")


def _first_data(file: int, telling: _Telling) -> int | None:
    """Return the place of the first part that is not zero, in bytes, or None."""
    size = os.lseek(file, 0, os.SEEK_END)
    places = list(_places(size))
    total = sum(length for _place, length in places) or 1
    done = 0
    with mmap.mmap(-1, _PART) as page:
        for place, length in places:
            count = _read(file, page, place, length)
            if page[:count] != bytes(count):
                return place
            done += length
            telling.tell(done / total)
    return None


def _places(size: int) -> Iterator[tuple[int, int]]:
    """Return what is to be read of a device: where, and how much."""
    if size <= _WHOLE_UP_TO:
        yield from _parts(0, size)
        return
    last = (size - _LAST) // _SAMPLE * _SAMPLE
    yield from _parts(0, _FIRST)
    yield from ((place, _SAMPLE) for place in range(_FIRST, last, _EVERY))
    yield from _parts(last, size)


def _parts(begin: int, end: int) -> Iterator[tuple[int, int]]:
    return ((place, min(_PART, end - place)) for place in range(begin, end, _PART))


def _read(file: int, page: mmap.mmap, place: int, length: int) -> int:
    """Read into a page, whole blocks of it, and return how many bytes there were."""
    with memoryview(page) as view, view[: -(-length // _SAMPLE) * _SAMPLE] as wanted:
        try:
            count = os.preadv(file, [wanted], place)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # There are devices that can be opened like this, and not read.
            fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) & ~os.O_DIRECT)
            count = os.preadv(file, [wanted], place)
    if count < length:
        raise OSError(errno.EIO, f"{count} of {length} bytes could be read at {place}")
    return count


@contextlib.contextmanager
def _opened(device: str, mode: int = os.O_RDONLY) -> Iterator[int]:
    """Open a device, for reading past the cache where it can be; its errors are HostErrors."""
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
