# SPDX-License-Identifier: Apache-2.0
"""The contents of a device, checked before a file system is made or mounted.

blkid names what has a signature.  Other data are found by reading: a device is empty if all of it
reads as zero.  Holes are not read: the kernel lists those of a plain file, and so those of a loop
device over one; the file may be a FUSE export of QEMU, which asks the backend.  Of other devices
all is read, several chunks at a time.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent import futures
import contextlib
from dataclasses import dataclass
import datetime
import errno
import fcntl
import mmap
import os
from pathlib import Path
import time

from attachd import exception
from attachd.linux import commands, confined, device_nodes, loops

Progress = Callable[[str], None]
"""Called about once a second with the progress of a long operation, for people."""

_TIMEOUT = 300.0
# Exit codes of blkid.
_NOT_FOUND, _AMBIVALENT = 2, 8
_CHUNK = 2**20
_BLOCK = 2**12
_ZEROS = bytes(_CHUNK)
_READS = 8
"""Number of parallel reads: a network has a latency, and a disk a queue."""


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
        _read(file, page, 0, min(_BLOCK, os.lseek(file, 0, os.SEEK_END)))
    result = commands.execute(["blkid", "-p", "-o", "export", device], _TIMEOUT)
    if result.exit_code == _NOT_FOUND:
        return None
    if result.exit_code == _AMBIVALENT:
        return Contents(None, "", "signatures of several kinds (see wipefs --no-act)")
    if result.exit_code:
        raise exception.HostError(reason=f"blkid cannot determine what is on {device}: {result}.")
    values = dict(line.partition("=")[::2] for line in result.stdout.splitlines())
    return _parse_contents(values)


def check_no_signature(device: str) -> None:
    """Check that a device has no signature of data; other data are not looked for.

    :raises HostError: it has one, which the message names; or it cannot be read
    """
    if contents := detect(device):
        raise exception.HostError(reason=_refusal(device, contents.name))
    listed = commands.execute(["wipefs", "--no-act", "--noheadings", device], _TIMEOUT)
    if listed.exit_code or listed.stdout.strip():
        what = listed.stdout.strip() or listed.stderr
        raise exception.HostError(reason=_refusal(device, f"something (wipefs says: {what})"))


def check_empty(device: str, progress: Progress) -> None:
    """Check that a device carries no data.

    :raises HostError: it carries data, which the message names; or it cannot be read
    """
    check_no_signature(device)
    with contextlib.closing(_find_data(device, progress)) as found:
        for offset, _length in found:
            raise exception.HostError(reason=_refusal(device, f"data (at byte {offset})"))


def erase(device: str, progress: Progress) -> None:
    """Write zeros over all data of a device that check_empty() has found to be empty before.

    :raises HostError: the device cannot be read or written
    """
    with (
        _opened(device, os.O_RDWR) as file,
        contextlib.closing(_find_data(device, progress)) as found,
    ):
        for offset, length in found:
            os.pwrite(file, _ZEROS[:length], offset)
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
    """Reports how much has been read, and how long the rest will take, about once a second."""

    def __init__(self, device: str, progress: Progress, total: int) -> None:
        self._text = f"Searching for data on {device}"
        self._progress = progress
        self._total = total
        self._done = 0
        self._began = time.monotonic()
        self._next = self._began + 1

    def add(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now >= self._next:
            self._next = now + 1
            seconds = (now - self._began) * (self._total - self._done) / self._done
            left = datetime.timedelta(seconds=round(seconds))
            size = f"{self._total / 2**30:.1f} GiB"
            self._progress(f"{self._text}: {self._done / self._total:.0%} of {size}, {left} left")


def _find_data(device: str, progress: Progress) -> Generator[tuple[int, int], None, None]:
    """Yield offset and length, in bytes, of the chunks of a device that are not zero."""
    with _opened(device) as file, futures.ThreadPoolExecutor(_READS) as pool:
        ranges = _data_ranges(device, file)
        reporter = _ProgressReporter(device, progress, sum(end - begin for begin, end in ranges))
        reads: deque[tuple[int, int, futures.Future[bool]]] = deque()

        def finish(most: int) -> Iterator[tuple[int, int]]:
            while len(reads) > most:
                offset, length, result = reads.popleft()
                if not result.result():
                    yield offset, length
                reporter.add(length)

        try:
            for offset, length in _chunks(ranges):
                reads.append((offset, length, pool.submit(_is_zero, file, offset, length)))
                yield from finish(2 * _READS)
            yield from finish(0)
        finally:
            pool.shutdown(cancel_futures=True)


def _is_zero(file: int, offset: int, length: int) -> bool:
    with mmap.mmap(-1, _CHUNK) as page:
        return _ZEROS.startswith(page[: _read(file, page, offset, length)])


def _chunks(ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for begin, end in ranges:
        for offset in range(begin, end, _CHUNK):
            yield offset, min(_CHUNK, end - offset)


def _data_ranges(device: str, file: int) -> list[tuple[int, int]]:
    """Return begin and end of what may be data, in order; the rest are holes.

    What was written to the device counts, also if it has not reached the file below.
    """
    size = os.lseek(file, 0, os.SEEK_END)
    os.fsync(file)
    ranges: list[tuple[int, int]] = []
    with _mapped(device, file) as mapped:
        end = 0
        while end < size:
            try:
                begin = os.lseek(mapped, end, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    break  # The rest is a hole.
                return [(0, size)]
            end = os.lseek(mapped, begin, os.SEEK_HOLE)
            begin = begin // _BLOCK * _BLOCK
            # A hole that is shorter than a chunk is not worth another read.
            if ranges and begin - ranges[-1][1] < _CHUNK:
                begin = ranges.pop()[0]
            ranges.append((begin, min(end, size)))
    return ranges


@contextlib.contextmanager
def _mapped(device: str, file: int) -> Iterator[int]:
    """Open what knows the holes of a device: the file below a loop device, else the device."""
    try:
        backing = _open_backing(device, file)
    except OSError:
        yield file
        return
    try:
        yield backing
    finally:
        os.close(backing)


def _open_backing(device: str, file: int) -> int:
    """Open the file below a loop device; raises OSError if there is none, or not by its name."""
    backing = loops.get_backing(file)
    sysfs_dir = device_nodes.stat_device(device).sysfs_dir
    assert sysfs_dir is not None
    path = Path(device_nodes.read_line(sysfs_dir / "loop" / "backing_file"))
    found = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not backing.is_file(os.fstat(found)):
            raise OSError(errno.ESTALE, "Another file has its name", f"{path}")
        return confined.reopen(found, path, os.O_RDONLY)
    finally:
        os.close(found)


def _read(file: int, page: mmap.mmap, offset: int, length: int) -> int:
    """Read whole blocks into a page, and return the number of bytes that were read."""
    with memoryview(page) as view, view[: -(-length // _BLOCK) * _BLOCK] as blocks:
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
