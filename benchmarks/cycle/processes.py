# SPDX-License-Identifier: Apache-2.0
"""CPU time of processes, as Linux counts it; used by attach_cycle.py."""

from collections.abc import Mapping
import os
from pathlib import Path
import time

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")

HOW = (
    "utime + stime in /proc/PID/stat of the process and all its descendants, "
    f"in ticks of {1000 / _TICKS:g} ms"
)
HOW_OTHERWISE = (
    "what /proc/stat counts as busy without the processes shown, in per cent of all cores: "
    "all other work of this machine, database and broker included unless they are shown"
)
HOW_OWN = "time.process_time() of this command"


DATABASE = ("mariadbd", "mysqld", "postgres")
BROKER = ("beam.smp",)
"""The names of the processes of servers."""


def cpu_seconds(roots: Mapping[str, int]) -> dict[str, float]:
    """Return what each process and its present descendants have used since they began."""
    used, children = _all()
    found = {}
    for name, root in roots.items():
        if root not in used:
            raise ProcessLookupError(f"There is no process {root} ({name}).")
        family = [root]
        for pid in family:
            family += children.get(pid, ())
        found[name] = sum(used[pid] for pid in family)
    return found


def own_cpu_seconds() -> float:
    """Return what this process, the load generator, has used since it began."""
    return time.process_time()


def machine_cpu_seconds() -> float:
    """Return what all processes and the kernel have used since the machine was started."""
    # proc(5): user, nice, system, idle, iowait, irq, softirq, steal, ...
    ticks = [int(word) for word in (_PROC / "stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / _TICKS


def named(names: tuple[str, ...]) -> int | None:
    """Return the one process with such a name, or None if there is none, or several."""
    found = [
        int(folder.name)
        for folder in _PROC.iterdir()
        if folder.name.isdigit() and _comm(folder) in names
    ]
    oldest = [pid for pid in found if _parent(pid) not in found]
    return oldest[0] if len(oldest) == 1 else None


def _comm(folder: Path) -> str:
    try:
        return (folder / "comm").read_text().strip()
    except OSError:
        return ""


def _parent(pid: int) -> int:
    return int(_stat(_PROC / str(pid))[1])


def _all() -> tuple[dict[int, float], dict[int, list[int]]]:
    used: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = _stat(folder)
        except OSError:
            continue  # It has just ended.
        pid = int(folder.name)
        # proc(5): utime is field 14 and stime field 15, the state being field 3.
        used[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
        children.setdefault(int(fields[1]), []).append(pid)
    return used, children


def _stat(folder: Path) -> list[str]:
    """Return the fields from the state on: the name before it may hold anything."""
    return (folder / "stat").read_text().rpartition(")")[2].split()
