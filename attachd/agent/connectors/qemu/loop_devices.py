# SPDX-License-Identifier: Apache-2.0
"""Loop devices over images, which make block devices of files; for qemu/connector.py.

Whose device it is tells the path of its file: /sys/block/loop*/loop/backing_file.

They are buffered.  With direct I/O over a FUSE file the loop driver of Linux 6.18 garbles
writes of more than one page.  The price: what a host has read is kept in its memory, and it may
not see what another host writes to the same volume meanwhile.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import os
from pathlib import Path
import time

from attachd import exception
from attachd.agent import block_device, commands

_BLOCK = Path("/sys/block")
_DEVICES = Path("/dev")
_DETACH_SECONDS = 10.0
_NAP = 0.02


@dataclasses.dataclass(frozen=True)
class Loop:
    """One device in use.

    :ivar path: "/dev/loop<number>"
    :ivar read_only: it refuses writes
    :ivar closing: it was detached while open, and goes away with its last user
    """

    path: str
    read_only: bool
    closing: bool


def over(image: Path) -> list[Loop]:
    """List the devices over a file, by the path under which it was opened."""
    name = os.fsencode(image)
    # Only a device in use has the folder "loop".
    return [_describe(each) for each in _BLOCK.glob("loop*/loop") if _backing(each) == name]


def attach(image: Path, *, writable: bool, lock: int) -> Loop:
    """Put a new device over a file.

    :param lock: see commands.run()
    :raises HostError: there is none
    """
    mode = () if writable else ("--read-only",)
    line = ("losetup", "--find", "--show", *mode, str(image))
    path = commands.run(*line, keeping=[lock]).strip()
    if writable and block_device.is_read_only(path):
        # Somebody has said so of the device when it was over another file.
        commands.run("blockdev", "--setrw", path, keeping=[lock])
    return Loop(path, read_only=not writable, closing=False)


def refresh(loop: Loop) -> None:
    """Let a device have the present size of its file."""
    commands.run("losetup", "--set-capacity", loop.path)


def detach(image: Path, *, lock: int) -> None:
    """Free all devices over a file; nothing is to be written any more.

    :param lock: see commands.run()
    :raises HostError: a device is mounted or open; it goes away with its last user
    """
    for loop in over(image):
        _clear(loop, image, lock)
    deadline = time.monotonic() + _DETACH_SECONDS
    while left := over(image):
        # Somebody may only have had a look at it, as udev does.
        if time.monotonic() > deadline:
            names = ", ".join(each.path for each in left)
            raise exception.HostError(
                reason=f"{names} is still mounted or open on this host; close it, then detach "
                "again."
            )
        time.sleep(_NAP)


def _clear(loop: Loop, image: Path, lock: int) -> None:
    with contextlib.suppress(OSError), _opened(loop.path):
        # While it is open here it cannot become another's.
        if loop in over(image) and not loop.closing:
            with contextlib.suppress(exception.HostError):
                commands.run("losetup", "--detach", loop.path, keeping=[lock])


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _backing(folder: Path) -> bytes:
    # It may be freed while we look.
    with contextlib.suppress(OSError):
        return (folder / "backing_file").read_bytes().removesuffix(b"\n")
    return b""


def _describe(folder: Path) -> Loop:
    flags = [_flag(folder.parent / "ro"), _flag(folder / "autoclear")]
    return Loop(f"{_DEVICES / folder.parent.name}", *flags)


def _flag(path: Path) -> bool:
    try:
        return path.read_text().strip() == "1"
    except OSError:
        return False
