# SPDX-License-Identifier: Apache-2.0
"""Loop devices over the files of storage daemons; used by volume_device.py.

A device is found by the path of its file, see loops.is_made_for().  remote_file.py
makes devices over files of shares, where other machines may change the names.

The devices are buffered.  With direct I/O over a FUSE file the loop driver of Linux 6.18 garbles
writes of more than one page.  The price: the host caches what it has read, and may not see what
another host writes to the same volume meanwhile.

drivers/loop.py differs: it checks the ownership before each step, while the commands of this
module outlive a killed process and keep its lock.
"""

import contextlib
import dataclasses
import os
from pathlib import Path
import time

from attachd import exception
from attachd.agent.mount import open_handles
from attachd.linux import commands, confined, device_nodes, loops

DETACH_TIMEOUT = 10.0

_BLOCK = Path("/sys/block")
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
    """List the devices over a file, by the path under which it was opened.

    Also those over a file that has lost this name since, to another file or to none.
    """
    return [_describe(path) for path in loops.list_made_for(image)]


def attach(image: Path, *, writable: bool) -> LoopDevice:
    """Make a new device over a file that only this host can replace; see attach_open()."""
    flags = os.O_RDWR if writable else os.O_RDONLY
    try:
        found = os.open(image, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            file = confined.reopen(found, image, flags)
        finally:
            os.close(found)
    except OSError as error:
        raise exception.HostError(reason=f"{image} cannot be opened: {error}.") from error
    try:
        return attach_open(file, image, writable=writable)
    finally:
        os.close(file)


def attach_open(file: int, image: Path, *, writable: bool) -> LoopDevice:
    """Make a new device over an open file.

    :param file: its descriptor
    :param image: the path under which it was opened
    :raises HostError: there is none
    """
    try:
        path = loops.configure(file, image)
    except OSError as error:
        raise exception.HostError(
            reason=f"No loop device can be made over {image}: {error}. It needs Linux 5.8 or "
            "later, and a free loop device."
        ) from error
    return LoopDevice(path, read_only=not writable, closing=False)


def refresh(loop: LoopDevice) -> None:
    """Let a device have the present size of its file; raises HostError."""
    try:
        loops.set_capacity(loop.path)
    except OSError as error:
        raise exception.HostError(reason=f"{loop.path} cannot be resized: {error}.") from error


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
            users = ", ".join(
                filter(None, (open_handles.find_users(loop.path) for loop in remaining))
            )
            raise exception.HostError(
                reason=f"{names} is still in use by {users or 'the kernel'}. It goes away with "
                "its last user: end that, then detach again."
            )
        time.sleep(_POLL_INTERVAL)


def _clear(loop: LoopDevice, image: Path, lock: int) -> None:
    with contextlib.suppress(OSError), Path(loop.path).open("rb", buffering=0) as device:
        # While it is open here, it cannot be reused for another file.
        if loop in list_over(image) and not loop.closing:
            with contextlib.suppress(exception.HostError):
                commands.run("losetup", "--detach", loop.path, pass_fds=[lock])
            loops.free(device.fileno())


def _describe(path: str) -> LoopDevice:
    directory = _BLOCK / Path(path).name
    flags = [directory / "ro", directory / "loop" / "autoclear"]
    # The device may be freed meanwhile: then it has neither.
    return LoopDevice(path, *(device_nodes.read_line(flag) == "1" for flag in flags))
