# SPDX-License-Identifier: Apache-2.0
"""The results, for people and for programs; used by attach_cycle.py."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
import json
import math
import os
from pathlib import Path
import platform
from typing import Any

from cycle import counters, load

QUANTILES = (50, 95, 99)
SERVICE = ("api", "manager")
"""The processes that are attachd, of those whose CPU time is shown."""


@dataclass(frozen=True)
class Result:
    """One run with so many clients.

    :ivar cycles: cycles that ended well
    :ivar seconds: how long it took
    :ivar latency_ms: p50, p95 and p99 of each call and of a whole cycle
    :ivar per_cycle: counts divided by cycles, only what could be counted
    :ivar cpu_ms_per_cycle: by process
    :ivar otherwise_percent: of all cores' time, used by processes that are not shown
    :ivar call_ms: CPU of an empty RPC call at the same time, in its client and server; None: not
        measured
    :ivar errors: how often what went wrong
    :ivar connections: opened by the clients since they exist
    """

    clients: int
    cycles: int
    seconds: float
    cycles_per_second: float
    latency_ms: Mapping[str, Mapping[str, float]]
    per_cycle: Mapping[str, float]
    cpu_ms_per_cycle: Mapping[str, float]
    otherwise_percent: float
    call_ms: float | None
    errors: Mapping[str, int]
    connections: int


def result(
    clients: Sequence[load.Client],
    duration: float,
    samples: load.Samples,
    counted: Mapping[str, int],
    cpu_seconds: Mapping[str, float],
    machine_cpu_seconds: float,
    call_ms: float | None = None,
) -> Result:
    """Summarize one run."""
    otherwise = max(0.0, machine_cpu_seconds - sum(cpu_seconds.values()))
    cycles = len(samples.cycles)
    divisor = cycles or math.nan
    return Result(
        clients=len(clients),
        cycles=cycles,
        seconds=round(duration, 3),
        cycles_per_second=round(cycles / duration, 2),
        latency_ms={
            name: quantiles(values)
            for name, values in [*samples.calls.items(), ("cycle", samples.cycles)]
        },
        per_cycle={
            name: round(count / divisor, 3)
            for name, count in counted.items()
            if count or name in _COUNTS
        },
        cpu_ms_per_cycle={
            name: round(1000 * used / divisor, 3) for name, used in cpu_seconds.items()
        },
        otherwise_percent=round(100 * otherwise / (duration * _cores()), 1),
        call_ms=None if call_ms is None else round(call_ms, 3),
        errors=dict(samples.errors),
        connections=sum(client.opened for client in clients),
    )


_COUNTS = (counters.STATEMENTS, counters.WRITES, counters.CALLS)


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return the smallest value that so many per cent of all do not exceed."""
    ordered = sorted(seconds)
    if not ordered:
        return {}
    return {
        f"p{q}": round(1000 * ordered[math.ceil(len(ordered) * q / 100) - 1], 3) for q in QUANTILES
    }


def machine() -> dict[str, Any]:
    """Describe where this runs, as far as it matters for a number of milliseconds."""
    return {
        "cpu": _cpu_model(),
        "cores": _cores(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _cores() -> int:
    return os.cpu_count() or 1


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def document(
    results: Sequence[Result], how: Mapping[str, str], subject: Mapping[str, Any]
) -> dict[str, Any]:
    """Return everything as JSON can say it."""
    return {
        "subject": dict(subject),
        "machine": machine(),
        "results": [asdict(run) for run in results],
        "how": dict(how),
    }


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write the JSON file."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def table(content: Mapping[str, Any]) -> str:
    """Return the tables, one under the other."""
    results = content["results"]
    parts = [
        "\n".join(f"{name}: {value}" for name, value in content["subject"].items()),
        "machine: " + ", ".join(f"{key} {value}" for key, value in content["machine"].items()),
        grid(_speed(results)),
        grid(_cost(results)),
        "How the numbers were obtained:\n"
        + "\n".join(f"- {name}: {text}" for name, text in content["how"].items()),
    ]
    wrong = [
        f"{run['clients']} clients: {count} x {what}"
        for run in results
        for what, count in run["errors"].items()
    ]
    return "\n\n".join(parts + (["WRONG ANSWERS:\n" + "\n".join(wrong)] if wrong else [])) + "\n"


def _speed(results: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    quantiles = "/".join(f"p{q}" for q in QUANTILES)
    rows = [["clients", "cycles", "cycles/s", f"cycle {quantiles} ms", *load.CALLS]]
    for run in results:
        latency = run["latency_ms"]
        shown = [
            "/".join(f"{latency[name].get(f'p{q}', math.nan):.1f}" for q in QUANTILES)
            for name in ("cycle", *load.CALLS)
        ]
        rate = f"{run['cycles_per_second']:.1f}"
        rows.append([str(run["clients"]), str(run["cycles"]), rate, *shown])
    return rows


def _cost(results: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    names = [name for name in _COUNTS if any(name in run["per_cycle"] for run in results)]
    processes = list(results[0]["cpu_ms_per_cycle"]) if results else []
    rows = [["clients", *(f"{name}/cycle" for name in names)]]
    rows[0] += [*(f"CPU ms {name}" for name in processes), "% otherwise"]
    compared = any(run["call_ms"] is not None for run in results)
    rows[0] += ["CPU ms empty call", "api + manager in calls"] if compared else []
    for run in results:
        counted = [f"{run['per_cycle'].get(name, math.nan):.2f}" for name in names]
        used = [f"{run['cpu_ms_per_cycle'].get(name, math.nan):.2f}" for name in processes]
        rows.append([str(run["clients"]), *counted, *used, str(run["otherwise_percent"])])
        rows[-1] += _compared(run) if compared else []
    return rows


def _compared(item: Mapping[str, Any]) -> list[str]:
    used = sum(item["cpu_ms_per_cycle"][name] for name in SERVICE)
    return [f"{item['call_ms']:.2f}", f"{used / item['call_ms']:.1f}"]


def grid(rows: Sequence[Sequence[str]]) -> str:
    """Return a simple table as reStructuredText has it."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rule = "  ".join("=" * width for width in widths)
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([rule, lines[0], rule, *lines[1:], rule])
