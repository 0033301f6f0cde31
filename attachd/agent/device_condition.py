# SPDX-License-Identifier: Apache-2.0
"""Paths and I/O errors of block devices, as the kernel's sysfs shows them.

Only files are read: no command is run and no device is opened, either of which could hang.
"""

from collections.abc import Iterator, Sequence
import datetime
from pathlib import Path
import re
from typing import Final, NamedTuple

from attachd.linux.device_nodes import read_line
from attachd.rpc.agent_manager_api import MAX_LINE, MAX_PATHS, PathReport

_WORKING: Final = frozenset({"running", "live"})
"""The states of a SCSI disk and of an NVMe controller that work."""
_CONTROLLER: Final = re.compile(r"nvme\d+")


class DeviceCondition(NamedTuple):
    """The condition of a device.

    :ivar paths: SCSI disks or NVMe controllers; none of a device of another kind
    :ivar last_io_error: in words; None: none is known
    """

    paths: list[PathReport]
    last_io_error: str | None


class _Errors(NamedTuple):
    """The errors of a path.

    :ivar first: how many there were at first: the kernel counts what is refused when it finds a
        disk
    :ivar total: how many there are
    :ivar last_at: when the total was higher than before; None: never
    """

    first: int
    total: int
    last_at: datetime.datetime | None = None


class DeviceObserver:
    """Reads the condition of the device of one attachment, again and again.

    :param sys: the directory of sysfs
    """

    def __init__(self, sys: Path = Path("/sys")) -> None:
        self._sys = sys
        self._errors: dict[str, _Errors] = {}

    def read(self, device: str) -> DeviceCondition:
        """Return the condition of a device; its last error since the first call.

        :param device: its path
        """
        name = Path(device).resolve().name
        block = self._sys / "class/block"
        parts = sorted(path.name for path in (block / name / "slaves").glob("*")) or [name]
        paths: list[PathReport] = []
        errors: list[str] = []
        for directory in (path for part in parts for path in _list_paths(block / part)):
            path, state = _name(directory), read_line(directory / "state")
            is_working = state in _WORKING
            paths.append({"name": path, "state": "active" if is_working else "failed"})
            errors += [] if is_working else [f"{path} is {state or 'gone'}"]
            errors += self._count_errors(path, read_line(directory / "ioerr_cnt"))
        errors += _list_file_system_errors(self._sys / "fs/ext4" / name)
        return DeviceCondition(paths[:MAX_PATHS], "; ".join(errors)[:MAX_LINE] or None)

    def _count_errors(self, path: str, counter: str) -> Iterator[str]:
        """Yield how many requests of a SCSI disk have failed, if any did since the first call."""
        if not counter:
            return
        total = int(counter, 16)
        known = self._errors.get(path)
        if known is None or total < known.total:  # Another disk has got the name.
            known = _Errors(total, total)
        elif total > known.total:
            known = _Errors(known.first, total, datetime.datetime.now(datetime.UTC))
        self._errors[path] = known
        if known.last_at is not None:
            yield f"{path}: {total - known.first} failed requests, the last {_text(known.last_at)}"


def _list_paths(block: Path) -> Sequence[Path]:
    """Return the directories of the paths of a disk, which have a state.

    With the kernel's own multipathing, an NVMe disk belongs to a subsystem with controllers.
    """
    device = block / "device"
    if (device / "state").exists():
        return [device]
    return sorted(path for path in device.glob("nvme*") if _CONTROLLER.fullmatch(path.name))


def _name(directory: Path) -> str:
    """Return the name of a path: of a SCSI disk that of its block device."""
    if directory.name != "device":
        return directory.name
    controller = directory.resolve().name
    return controller if _CONTROLLER.fullmatch(controller) else directory.parent.name


def _list_file_system_errors(directory: Path) -> Iterator[str]:
    """Yield how many errors a file system of the device has had since it was checked.

    Source: the kernel's Documentation/ABI/testing/sysfs-fs-ext4
    """
    count = read_line(directory / "errors_count")
    if count and count != "0":
        seconds = int(read_line(directory / "last_error_time") or 0)
        moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
        yield f"ext4: {count} errors, the last {_text(moment)}"


def _text(moment: datetime.datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
