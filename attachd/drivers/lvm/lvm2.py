# SPDX-License-Identifier: Apache-2.0
"""LVs of a volume group, by the commands of lvm2; for volumes.py."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import json
from pathlib import Path
import threading
from typing import Any, Final

from attachd import exception
from attachd.drivers import base, command
from attachd.linux import commands

_CHUNK: Final = 4 * 2**20
"""The copy's; a size in GiB is a multiple."""

_COLUMNS: Final = "lv_name,lv_size,lv_path,lv_active,pool_lv"
DETAILS: Final = (
    "lv_name,lv_size,pool_lv,origin,lv_layout,lv_role,lv_permissions,lv_device_open,"
    "lv_skip_activation"
)
"""The columns for LVs that the driver has not made."""
# The command may keep descriptors open by which it counts as alive, see base.py.
_ENVIRONMENT: Final = {"LVM_SUPPRESS_FD_WARNINGS": "1"}

# Held where extents are taken, so that none are between their release and their use elsewhere.
_allocation = threading.Lock()

Row = Mapping[str, str]
"""What lvm2 reports of one object, by its names of columns; sizes are in bytes."""


def check_commands() -> None:
    """Check that the commands are installed."""
    if missing := commands.list_missing({"lvm": "lvm2", "blkdiscard": "util-linux"}):
        raise exception.BackendError(f"Install {', '.join(missing)}.", final=True)


@dataclass(frozen=True)
class VolumeGroup:
    """A volume group.

    :ivar name: its name
    :ivar timeout: seconds for one command of lvm2
    """

    name: str
    timeout: float

    def report(self, columns: str) -> Row:
        """Return columns of the group itself."""
        return self._list("vgs", "vg", columns)[0]

    def list_lvs(self, columns: str = _COLUMNS) -> list[Row]:
        """List the LVs."""
        return self._list("lvs", "lv", columns)

    def find(self, name: str) -> Row | None:
        """Return an LV, or None."""
        condition = ("--select", f"lv_name={name}")
        return next(iter(self._list("lvs", "lv", _COLUMNS, *condition)), None)

    def device(self, name: str) -> Path:
        """Return the path of an LV's device."""
        row = self.find(name)
        if row is None:
            raise exception.BackendError(f"The LV {self.full(name)} is missing.")
        return Path(row["lv_path"])

    def full(self, name: str) -> str:
        """Return the name of an LV as lvm2 takes it."""
        return f"{self.name}/{name}"

    def create_thick(self, name: str, size: int) -> None:
        """Create a linear LV, with old data."""
        with _allocation:
            self.change(
                "lvcreate", "--yes", "--type", "linear", "--size", f"{size}b", "--name", name,
                "--zero", "n", "--wipesignatures", "n", self.name,
            )  # fmt: skip

    def create_thin(self, pool: str, name: str, size: int) -> None:
        """Create an LV in a thin pool."""
        self.change(
            "lvcreate", "--yes", "--type", "thin", "--thinpool", pool,
            "--virtualsize", f"{size}b", "--name", name, self.name,
        )  # fmt: skip

    def snapshot(self, source: Row, name: str, *how: str) -> None:
        """Create a snapshot of an LV."""
        full = self.full(source["lv_name"])
        with _allocation:
            self.change("lvcreate", "--yes", "--snapshot", "--name", name, *how, full)

    def grow(self, name: str, size: int) -> None:
        """Extend an LV that is smaller."""
        row = self.find(name)
        if row and int(row["lv_size"]) < size:
            self.change("lvextend", "--size", f"{size}b", self.full(name))

    def remove(self, name: str) -> None:
        """Remove an LV, if it exists."""
        if self.find(name):
            self.change("lvremove", "--yes", "--force", self.full(name))

    def rename(self, name: str, new: str) -> None:
        """Rename an LV, whether it is active or not."""
        self.change("lvrename", self.name, name, new)

    def zero(self, name: str, offset: int = 0) -> None:
        """Overwrite the rest of an LV; the kernel does it at once where the disk can."""
        path, row = self.device(name), self.find(name)
        if row and int(row["lv_size"]) > offset:
            _run_long(["blkdiscard", "--zeroout", "--offset", f"{offset}", f"{path}"])

    def copy(self, source: str, name: str) -> None:
        """Copy an LV to the start of another one."""
        paths = [f"if={self.device(source)}", f"of={self.device(name)}"]
        modes = ["iflag=direct", "oflag=direct", "conv=notrunc,fsync"]
        _run_long(["dd", *paths, f"bs={_CHUNK}", *modes, "status=none"])

    def ranges(self, name: str) -> list[str]:
        """Return the extents of an LV, as lvextend takes them: /dev/sda:0-255."""
        arguments = ["lvs", "--segments", *_report("seg_pe_ranges"), self.full(name)]
        rows = _rows(self._ask(arguments), "seg")
        return [item for row in rows for item in row["seg_pe_ranges"].split()]

    def activate(self, row: Row) -> None:
        """Make the device of an LV, which a boot may not have done."""
        if row["lv_active"] != "active":
            self.change("lvchange", "--activate", "y", self.full(row["lv_name"]))

    def move_extents(self, source: str, name: str) -> bool:
        """Remove an LV, and extend another one with its extents.

        :returns: False if other LVs got them in between, from other processes
        """
        ranges = self.ranges(source)
        extents = sum(map(_count, ranges))
        line = ["lvextend", "--extents", f"+{extents}", self.full(name), *ranges]
        with _allocation:
            self.remove(source)
            try:
                self.change(*line)
            except exception.BackendError as error:
                if "insufficient" in f"{error}".lower():
                    return False
                raise
        return True

    def discard(self, name: str) -> None:
        """Discard the blocks of an LV."""
        _run_long(["blkdiscard", f"{self.device(name)}"])

    def change(self, *arguments: str) -> None:
        """Run a command that changes the group."""
        base.check_still_owner()
        self._ask(arguments)

    def _list(self, name: str, kind: str, columns: str, *more: str) -> list[Row]:
        return _rows(self._ask([name, *_report(columns), *more, self.name]), kind)

    def _ask(self, arguments: Sequence[str]) -> str:
        outcome = command.run(["lvm", *arguments], self.timeout, _ENVIRONMENT)
        if outcome.exit_code:
            full = "insufficient" in outcome.stderr.lower() or "reached" in outcome.stderr
            advice = f" Extend the volume group {self.name} or its thin pool." if full else ""
            raise exception.BackendError(
                f"'lvm {arguments[0]}' failed: {outcome.stderr or outcome.exit_code}{advice}"
            )
        return outcome.stdout


def _report(columns: str) -> list[str]:
    return ["--reportformat", "json", "--units", "b", "--nosuffix", "--options", columns]


def _rows(text: str, kind: str) -> list[Row]:
    """Parse a report of lvm2.

    Source: lvmreport(7), JSON.
    """
    try:
        reports: list[dict[str, Any]] = json.loads(text)["report"]
    except (ValueError, KeyError) as error:
        raise exception.BackendError(f"lvm reported no JSON: {error}.") from error
    return [row for report in reports for row in report.get(kind, [])]


def _count(extents: str) -> int:
    """Return how many extents are in /dev/sda:0-255."""
    first, _dash, last = extents.rpartition(":")[2].partition("-")
    return int(last) - int(first) + 1


def _run_long(line: list[str]) -> None:
    """Run a command on a device that may take long; it ends when this process may not continue."""
    base.check_still_owner()
    try:
        outcome = commands.run_long(line, base.check_still_owner)
    except exception.HostError as error:
        raise exception.BackendError(f"{error}") from error
    if outcome.exit_code:
        raise exception.BackendError(f"'{line[0]}' failed: {outcome.stderr}")


def reason(error: Exception) -> object:
    """Return the reason of a BackendError without its prefix, or another error as it is."""
    return error.details["reason"] if isinstance(error, exception.BackendError) else error
