# SPDX-License-Identifier: Apache-2.0
"""Block devices of this host, as the kernel's sysfs shows them."""

import contextlib
import ctypes
import os
from pathlib import Path

from attachd import exception
from attachd.linux import commands

_BLOCK = Path("/sys/class/block")
# The kernel's unit, independent of the device's own.
_SECTOR = 512
# The prefix of multipathd's devices, in contrast to those of LVM.
_MULTIPATH = "mpath-"
_OFFLINE, _RUNNING = "offline", "running"
_TRANSPORT_OFFLINE = "transport-offline"


def size(path: str) -> int:
    """Return the size of a device or file in bytes.

    :raises HostError: it is gone
    """
    if Path(path).is_file():
        return Path(path).stat().st_size
    return int(_read(path, "size")) * _SECTOR


def is_read_only(path: str) -> bool:
    """Return whether a device refuses writes; a file never does.

    :raises HostError: it is gone
    """
    return not Path(path).is_file() and _read(path, "ro") == "1"


def can_discard(path: str) -> bool:
    """Return whether a device frees blocks that are discarded; False: it is gone, or a file.

    Source: the kernel's Documentation/ABI/stable/sysfs-block, discard_max_bytes.
    """
    try:
        return int(_read(path, "queue/discard_max_bytes")) > 0
    except exception.HostError:
        return False


def make_read_only(path: str) -> None:
    """Let a device refuse writes; raises HostError if it does not."""
    if not is_read_only(path):
        commands.run("blockdev", "--setro", path)
    if not is_read_only(path):
        raise exception.HostError(reason=f"{path} cannot be made read-only.")


def make_writable(path: str) -> None:
    """Let a device accept writes again; raises HostError if its backend does not let it."""
    if is_read_only(path):
        commands.run("blockdev", "--setrw", path)
    if is_read_only(path):
        raise exception.HostError(
            reason=f"{path} is read-only on the backend, and the attachment is for writing."
        )


def is_offline(path: str) -> bool:
    """Return whether a SCSI disk is offline; other devices never are."""
    try:
        return _state_file(path).read_text().strip() == _OFFLINE
    except OSError:
        return False


def set_offline(path: str) -> bool:
    """Let a SCSI disk refuse all requests from now on; False: it is no SCSI disk, or gone.

    A disk that lost its session for too long refuses requests as well, until the session is back.
    The kernel takes it offline only if it is set running before.  It refuses a state without the
    end of the line.

    Source: the kernel's drivers/scsi/scsi_sysfs.c, store_state_field(); scsi_lib.c,
    scsi_device_set_state()
    """
    state = _state_file(path)
    try:
        if state.read_text().strip() == _TRANSPORT_OFFLINE:
            state.write_text(f"{_RUNNING}\n")
        state.write_text(f"{_OFFLINE}\n")
    except OSError:
        return False
    return is_offline(path)


def _state_file(path: str) -> Path:
    # NVMe controllers have a file of the same name with other states.
    return _BLOCK / Path(path).resolve().name / "device" / "scsi_device" / ".." / "state"


def flush(path: str, timeout: float = commands.DEFAULT_TIMEOUT) -> None:
    """Write all pages of a device or file to its disk.

    :param timeout: in seconds, in which nothing is written
    :raises HostError: not all is written, or the result is unknown
    """
    # A process of its own: this can hang in the kernel when the backend is gone.
    commands.run("sync", path, timeout=timeout, progress=lambda: count_writes(path))


def count_writes(path: str) -> list[str]:
    """Return the counters of a device that change when the disk has written; none of a file.

    Source: the kernel's Documentation/block/stat.rst
    """
    try:
        fields = (_BLOCK / Path(path).resolve().name / "stat").read_text().split()
    except OSError:
        return []
    return [*fields[4:7:2], *fields[15:16]]  # requests, sectors, and flushes of newer kernels


def check_written(path: str) -> None:
    """Write all pages of a device as far as possible, and check that none was lost.

    Unlike a flush it succeeds on a device without a backend if nothing is left to write.

    :raises HostError: data that was written is lost

    Source: sync_file_range(2), whose flags are used all together.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    whole_device = ctypes.c_int64(0)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise exception.HostError(reason=f"{path} cannot be opened: {error}.") from error
    try:
        failed = libc.sync_file_range(descriptor, whole_device, whole_device, ctypes.c_uint(7))
        number = ctypes.get_errno()
    finally:
        os.close(descriptor)
    if failed:
        raise exception.HostError(reason=f"{path} could not be written: {os.strerror(number)}.")


def identity(path: str) -> str:
    """Return the identifier of a disk that is the same at every path, such as its WWID.

    :returns: "" if it has none

    Source: the kernel's sysfs, of SCSI, NVMe and device mapper.
    """
    directory = _BLOCK / Path(path).resolve().name
    for name in ("device/wwid", "wwid", "dm/uuid"):
        with contextlib.suppress(OSError):
            if text := (directory / name).read_text().strip():
                return text
    return ""


def sequence_number(path: str) -> str:
    """Return a number that no other disk has had at this path; "" with a kernel before 5.15.

    Source: the kernel's Documentation/ABI/stable/sysfs-block, diskseq.
    """
    try:
        return _read(path, "diskseq")
    except exception.HostError:
        return ""


def list_components(path: str) -> list[Path]:
    """List the devices that a device is made of, such as the paths of a multipath device."""
    directory = _BLOCK / Path(path).resolve().name / "slaves"
    return [Path("/dev") / component.name for component in directory.glob("*")]


def parent_disk(path: str) -> str:
    """Return the multipath device that a device is a path of; itself if it is of none."""
    for holder in sorted((_BLOCK / Path(path).resolve().name / "holders").glob("dm-*")):
        with contextlib.suppress(OSError):
            if (holder / "dm" / "uuid").read_text().startswith(_MULTIPATH):
                return f"/dev/{holder.name}"
    return path


def exists(path: str) -> bool:
    """Return whether there is a block device or a file."""
    return Path(path).is_block_device() or Path(path).is_file()


def _read(path: str, attribute: str) -> str:
    try:
        return (_BLOCK / Path(path).resolve().name / attribute).read_text().strip()
    except OSError as error:
        raise exception.HostError(
            reason=f"{path} is no block device of this host: {error}."
        ) from error
