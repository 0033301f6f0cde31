# SPDX-License-Identifier: Apache-2.0
"""Loop devices of this machine: files as block devices; for the file driver.

It uses the kernel's interface, not losetup: requests return error numbers, cost a tenth of a
process, and a device can be checked and freed without a race.

Source: loop(4) and linux/loop.h; LOOP_CONFIGURE came with Linux 5.8.
"""

from collections.abc import Collection, Iterator
import contextlib
from dataclasses import dataclass
import errno
import fcntl
import os
from pathlib import Path
import struct
import time

from attachd import exception
from attachd.drivers import base

_CONTROL = Path("/dev/loop-control")
_DEVICES = Path("/dev")
_BLOCK = Path("/sys/block")

_LOOP_CLR_FD = 0x4C01
_LOOP_SET_CAPACITY = 0x4C07
_LOOP_CONFIGURE = 0x4C0A
_LOOP_CTL_GET_FREE = 0x4C82
# struct loop_config: the file; block size, offset, flags and the like (60 bytes), all zero; the
# file's name, for programs that do not read /sys; 176 bytes more, all zero.
_CONFIG = struct.Struct("=I 60x 64s 176x")

_TRIES = 64
_DELETED = " (deleted)"
_DETACH_SECONDS = 2.0
_POLL_INTERVAL = 0.02


@dataclass(frozen=True)
class LoopDevice:
    """One device in use.

    :ivar path: "/dev/loop<number>"
    :ivar mode: "ro" refuses writes
    :ivar closing: it was detached while open and disappears after its last user
    """

    path: str
    mode: base.AccessMode
    closing: bool


def unavailable() -> str:
    """Return why this process cannot use loop devices; "" if it can."""
    try:
        os.close(os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"{error}"
    return ""


def find(backing: Path) -> list[LoopDevice]:
    """List the devices over a file, by the path under which it was opened."""
    names = {f"{backing}", f"{backing}{_DELETED}"}
    return [_describe(folder) for folder in _attached() if _backing(folder) in names]


def under(folder: Path) -> list[tuple[Path, LoopDevice]]:
    """List the devices over files that are, or were, anywhere in a directory, with those files."""
    found = ((Path(_backing(device).removesuffix(_DELETED)), device) for device in _attached())
    return [(file, _describe(item)) for file, item in found if folder in file.parents]


def attach(backing: Path, mode: base.AccessMode) -> LoopDevice:
    """Create a device over a file.

    Buffered, not direct: each write passes the page cache of the file, which all devices over the
    file and all its readers share, and works on every file system.  A flush of the host still
    reaches the disk: the loop driver answers it with fsync.
    """
    flags = os.O_RDONLY if mode == "ro" else os.O_RDWR
    with _opened(backing, flags) as file, _opened(_CONTROL, os.O_RDWR) as control:
        # A file that is open for reading makes a read-only device.
        config = _CONFIG.pack(file, os.fsencode(backing)[:63])
        for _ in range(_TRIES):
            path = _DEVICES / f"loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
            if _configure(path, config):
                return LoopDevice(f"{path}", mode, closing=False)
    raise exception.BackendError("Other programs take each free loop device first.")


def refresh(device: LoopDevice) -> None:
    """Update the size of a device to that of its file."""
    with _opened(Path(device.path), os.O_RDONLY) as descriptor:
        base.check_fencing()
        fcntl.ioctl(descriptor, _LOOP_SET_CAPACITY)


def detach(backing: Path, modes: Collection[base.AccessMode] = ("rw", "ro")) -> None:
    """Free all devices over a file; written data is in the file afterwards.

    :param modes: only the devices of these modes
    :raises BackendError: a device is mounted or open; it stays usable until its last user closes
        it, and then disappears by itself
    """
    for device in find(backing):
        if device.mode in modes and not device.closing:
            _clear(device, backing)
    deadline = time.monotonic() + _DETACH_SECONDS
    while remaining := [device for device in find(backing) if device.mode in modes]:
        # A process such as udev may have opened it for a moment.
        if time.monotonic() > deadline:
            names = ", ".join(device.path for device in remaining)
            raise exception.BackendError(
                f"{names} is still mounted or open on this host; close it, then detach again."
            )
        time.sleep(_POLL_INTERVAL)


def _configure(path: Path, config: bytes) -> bool:
    """Configure a free device; False if another process was faster."""
    with _opened(path, os.O_RDWR) as descriptor:
        base.check_fencing()
        try:
            fcntl.ioctl(descriptor, _LOOP_CONFIGURE, config)
        except OSError as error:
            if error.errno == errno.EBUSY:
                return False
            raise
    return True


def _clear(device: LoopDevice, backing: Path) -> None:
    """Free a device, unless it is over another file now."""
    with _opened(Path(device.path), os.O_RDONLY) as descriptor:
        # While it is open here no other process can reuse it.
        if device in find(backing):
            base.check_fencing()
            with contextlib.suppress(OSError):
                fcntl.ioctl(descriptor, _LOOP_CLR_FD)


def _attached() -> Iterator[Path]:
    # Only a device in use has the directory "loop".
    return _BLOCK.glob("loop*/loop")


def _backing(folder: Path) -> str:
    # It may be freed meanwhile.
    with contextlib.suppress(OSError):
        return os.fsdecode((folder / "backing_file").read_bytes()).removesuffix("\n")
    return ""


def _describe(folder: Path) -> LoopDevice:
    read_only = _flag(folder.parent / "ro")
    return LoopDevice(
        path=f"{_DEVICES / folder.parent.name}",
        mode="ro" if read_only else "rw",
        closing=_flag(folder / "autoclear"),
    )


def _flag(path: Path) -> bool:
    try:
        return path.read_text().strip() == "1"
    except OSError:
        return False


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
