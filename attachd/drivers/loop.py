# SPDX-License-Identifier: Apache-2.0
"""Loop devices of this machine: files as block devices; for the file driver.

It uses the kernel's interface, not losetup: requests return error numbers, cost a tenth of a
process, and a device can be checked and freed without a race.

Source: loop(4) and linux/loop.h.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
import contextlib
from dataclasses import dataclass
import itertools
import os
from pathlib import Path
import time

from attachd import exception
from attachd.drivers import base
from attachd.linux import loops

_DEVICES = Path("/dev")
_BLOCK = Path("/sys/block")

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
        os.close(os.open(loops.CONTROL, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"{error}"
    return ""


def find(backing: Path) -> list[LoopDevice]:
    """List the devices over a file, by the path under which it was opened, or see made_under()."""
    return [_describe(item) for item in _attached() if _is_made_for(item, backing)]


def over(file: Path) -> list[LoopDevice]:
    """List the devices over the file that has a name now."""
    return [_describe(item) for item in _attached() if _present_name(item) == file]


def under(folder: Path) -> list[tuple[Path, LoopDevice]]:
    """List the devices over files that are, or were, anywhere in a directory, with those files."""
    named = ((_present_name(item), item) for item in _attached())
    return [(name, _describe(item)) for name, item in named if folder in name.parents]


def made_under(
    folder: Path, links: Collection[Path], directories: Callable[[], Iterable[Path]]
) -> Iterator[tuple[Path, LoopDevice]]:
    """Yield the devices that were made in a directory, with the paths under which they were.

    :param links: some of those paths
    :param directories: returns those of the paths.  If a file has another name by now, and its
        path is not in ``links``, its device is listed as such a directory and its own name.
    """
    for item in _attached():
        name = _present_name(item)
        if loops.is_made_for(item, name):
            if folder in name.parents:
                yield name, _describe(item)
            continue
        known = [link for link in links if loops.is_made_for(item, link)]
        unknown = (directory / item.parent.name for directory in directories())
        paths = itertools.chain(known, (path for path in unknown if _is_made_for(item, path)))
        if path := next(paths, None):
            yield path, _describe(item)


def attach(file: int, backing: Path, mode: base.AccessMode) -> LoopDevice:
    """Create a device over an open file.

    Buffered, not direct: each write passes the page cache of the file, which all devices over the
    file and all its readers share, and works on every file system.  A flush of the host still
    reaches the disk: the loop driver answers it with fsync.

    :param file: its descriptor; one that is open for reading makes a device of the mode "ro"
    :param backing: the path under which it was opened
    """
    path = loops.configure(file, backing, base.check_still_owner)
    return LoopDevice(path, mode, closing=False)


def refresh(device: LoopDevice) -> None:
    """Update the size of a device to that of its file."""
    loops.set_capacity(device.path, base.check_still_owner)


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
            raise exception.BackendInUse(
                f"{names} is still mounted or open on this host; close it, then detach again."
            )
        time.sleep(_POLL_INTERVAL)


def _clear(device: LoopDevice, backing: Path) -> None:
    """Free a device, unless it is over another file now."""
    with _opened(Path(device.path), os.O_RDONLY) as descriptor:
        # While it is open here no other process can reuse it.
        if device in find(backing):
            base.check_still_owner()
            with contextlib.suppress(OSError):
                loops.free(descriptor)


def _attached() -> Iterator[Path]:
    # Only a device in use has the directory "loop".
    return _BLOCK.glob("loop*/loop")


def _present_name(item: Path) -> Path:
    return Path(loops.read_backing_name(item).removesuffix(loops.DELETED))


def _is_made_for(item: Path, path: Path) -> bool:
    is_own_name = path.name == item.parent.name and loops.is_made_in(item, path.parent)
    return is_own_name or loops.is_made_for(item, path)


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
