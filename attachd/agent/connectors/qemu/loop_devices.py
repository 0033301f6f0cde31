# SPDX-License-Identifier: Apache-2.0
"""Loop devices over the files of storage daemons; used by volume_device.py.

A device is found by the path of its file: /sys/block/loop*/loop/backing_file.

The devices are buffered.  With direct I/O over a FUSE file the loop driver of Linux 6.18 garbles
writes of more than one page.  The price: the host caches what it has read, and may not see what
another host writes to the same volume meanwhile.

drivers/loop.py differs: it checks a fence before each step, in one process with the kernel, while
the commands of this module outlive a killed process and keep its lock.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import os
from pathlib import Path
import time

from attachd import commands, exception
from attachd.agent import block_device

DETACH_TIMEOUT = 10.0

_BLOCK = Path("/sys/block")
_DEVICES = Path("/dev")
_POLL_INTERVAL = 0.02


@dataclasses.dataclass(frozen=True)
class LoopDevice:
    """One device in use.

    :ivar path: "/dev/loop<number>"
    :ivar read_only: it refuses writes
    :ivar closing: it was detached while open, and goes away with its last user
    """

    path: str
    read_only: bool
    closing: bool


def list_over(image: Path) -> list[LoopDevice]:
    """List the devices over a file, by the path under which it was opened."""
    name = os.fsencode(image)
    # Only a device in use has the directory "loop".
    return [
        _describe(directory)
        for directory in _BLOCK.glob("loop*/loop")
        if _backing_file(directory) == name
    ]


def attach(image: Path, *, writable: bool, lock: int) -> LoopDevice:
    """Make a new device over a file.

    :param lock: see commands.run()
    :raises HostError: there is none
    """
    mode = () if writable else ("--read-only",)
    line = ("losetup", "--find", "--show", *mode, str(image))
    path = commands.run(*line, pass_fds=[lock]).strip()
    if writable and block_device.is_read_only(path):
        # It was set read-only while it was over another file.
        commands.run("blockdev", "--setrw", path, pass_fds=[lock])
    return LoopDevice(path, read_only=not writable, closing=False)


def refresh(loop: LoopDevice) -> None:
    """Let a device have the present size of its file."""
    commands.run("losetup", "--set-capacity", loop.path)


def detach(image: Path, *, lock: int) -> None:
    """Free all devices over a file; all that was written is in the file already.

    :param lock: see commands.run()
    :raises HostError: a device is mounted or open; it goes away with its last user
    """
    for loop in list_over(image):
        _clear(loop, image, lock)
    deadline = time.monotonic() + DETACH_TIMEOUT
    while remaining := list_over(image):
        # udev opens a device for a moment.
        if time.monotonic() > deadline:
            names = ", ".join(loop.path for loop in remaining)
            raise exception.HostError(
                reason=f"{names} is still mounted or open on this host; close it, then detach "
                "again."
            )
        time.sleep(_POLL_INTERVAL)


def _clear(loop: LoopDevice, image: Path, lock: int) -> None:
    with contextlib.suppress(OSError), _opened(loop.path):
        # While it is open here, it cannot be reused for another file.
        if loop in list_over(image) and not loop.closing:
            with contextlib.suppress(exception.HostError):
                commands.run("losetup", "--detach", loop.path, pass_fds=[lock])


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _backing_file(directory: Path) -> bytes:
    # The device may be freed meanwhile.
    with contextlib.suppress(OSError):
        return (directory / "backing_file").read_bytes().removesuffix(b"\n")
    return b""


def _describe(directory: Path) -> LoopDevice:
    flags = [_read_flag(directory.parent / "ro"), _read_flag(directory / "autoclear")]
    return LoopDevice(f"{_DEVICES / directory.parent.name}", *flags)


def _read_flag(path: Path) -> bool:
    try:
        return path.read_text().strip() == "1"
    except OSError:
        return False
