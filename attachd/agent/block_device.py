# SPDX-License-Identifier: Apache-2.0
"""What the kernel tells of a block device, whatever it is made of; for connectors."""

import contextlib
import ctypes
import os
from pathlib import Path

from attachd import exception
from attachd.agent import commands

_BLOCK = Path("/sys/class/block")
# The kernel's unit, whatever the device's own.
_SECTOR = 512
# What multipathd calls its devices by, in contrast to LVM.
_MULTIPATH = "mpath-"


def size(path: str) -> int:
    """Return the size of a device or file in bytes.

    :raises HostError: it is gone
    """
    if Path(path).is_file():
        return Path(path).stat().st_size
    return int(_read(path, "size")) * _SECTOR


def is_read_only(path: str) -> bool:
    """Tell whether a device refuses writes; a file never does.

    :raises HostError: it is gone
    """
    return not Path(path).is_file() and _read(path, "ro") == "1"


def make_read_only(path: str) -> None:
    """Let a device refuse writes; raises HostError if it does not."""
    if not is_read_only(path):
        commands.run("blockdev", "--setro", path)
    if not is_read_only(path):
        raise exception.HostError(
            reason=f"{path} cannot be made read-only, which the attachment asks for."
        )


def flush(path: str, seconds: float = commands.SECONDS) -> None:
    """Have everything that was written to a device or file on its disk.

    :raises HostError: it is not, or nobody can tell
    """
    # A process of its own: this can hang in the kernel when the backend is gone.
    commands.run("sync", path, seconds=seconds)


def check_written(path: str) -> None:
    """Have all of a device's pages written, as far as they can be, and tell if some were not.

    Unlike a flush it succeeds on a device with nobody behind it to whom nothing is left to say.

    :raises HostError: something that was written is lost

    Source: sync_file_range(2), whose flags are used all together.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    everything = ctypes.c_int64(0)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise exception.HostError(reason=f"{path} cannot be opened: {error}.") from error
    try:
        failed = libc.sync_file_range(descriptor, everything, everything, ctypes.c_uint(7))
        number = ctypes.get_errno()
    finally:
        os.close(descriptor)
    if failed:
        raise exception.HostError(reason=f"{path} did not take it: {os.strerror(number)}.")


def identity(path: str) -> str:
    """Return what a disk is known by wherever it shows up, such as its WWID; "" if by nothing.

    Source: the kernel's sysfs, of SCSI, NVMe and device mapper.
    """
    folder = _BLOCK / Path(path).resolve().name
    for name in ("device/wwid", "wwid", "dm/uuid"):
        with contextlib.suppress(OSError):
            if found := (folder / name).read_text().strip():
                return found
    return ""


def parts(path: str) -> list[Path]:
    """List the devices that a device is made of, such as the paths of a multipath device."""
    folder = _BLOCK / Path(path).resolve().name / "slaves"
    return [Path("/dev") / each.name for each in folder.glob("*")]


def whole(path: str) -> str:
    """Return the multipath device that a device is a path of; itself if it is of none."""
    for each in sorted((_BLOCK / Path(path).resolve().name / "holders").glob("dm-*")):
        with contextlib.suppress(OSError):
            if (each / "dm" / "uuid").read_text().startswith(_MULTIPATH):
                return f"/dev/{each.name}"
    return path


def exists(path: str) -> bool:
    """Tell whether there is a block device or a file."""
    return Path(path).is_block_device() or Path(path).is_file()


def _read(path: str, fact: str) -> str:
    try:
        return (_BLOCK / Path(path).resolve().name / fact).read_text().strip()
    except OSError as error:
        raise exception.HostError(
            reason=f"{path} is no block device of this host: {error}."
        ) from error
