#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure attach cycles of many hosts on one multiattach volume, and on a volume for each host.

It starts a private attachd-manager and API under uwsgi, and for the driver tgt a private tgtd.
A cycle is the one of attach_cycle.py; each client is another host and another server.  The two
measurements of a number of clients follow each other, and are repeated in turns.
"""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
import itertools
import json
from pathlib import Path
import statistics
import sys
from typing import Any

from cycle import load, started

SHARED, SEPARATE = "one volume", "separate volumes"
TYPE = "parallel-multiattach"
LIMITS = ("max_calls", "max_calls_per_backend", "max_calls_per_project", "max_calls_per_volume")
"""Options of the API that would refuse some of the clients."""


def main() -> int:
    """Run the benchmark that the arguments describe.

    :returns: the exit code: 0 if all went well, 1 if any cycle failed, 2 if nothing was measured
    """
    arguments = _parser().parse_args()
    options = {"driver": arguments.driver}
    if arguments.driver == "fake":
        options["fake_delay"] = str(arguments.fake_delay)
    shape = started.Shape(
        database=arguments.db,
        rabbit=arguments.rabbit,
        api_processes=2,
        api_threads=24,
        manager_workers=arguments.manager_workers,
        groups={"rpc": dict.fromkeys(LIMITS, "64")},
    )
    with (
        started.exiting_on_errors(),
        started.production_with_tgtd({"measured": options}, shape) as running,
    ):
        rows, errors = _measure(arguments, running.endpoint)
    print(_table(rows), end="")
    for text, count in sorted(errors.items()):
        print(f"{count} x {text}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"driver": arguments.driver, "rows": rows}, indent=1))
    return 1 if errors else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Measure attach cycles on one multiattach volume, and on separate volumes.",
    )
    parser.add_argument("--db", required=True, metavar="URL", help="a database that may be filled")
    parser.add_argument("--rabbit", required=True, metavar="URL", help="a virtual host of its own")
    parser.add_argument("--driver", choices=("fake", "tgt"), default="fake", help="%(default)s")
    parser.add_argument(
        "--fake-delay",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="that each call of the fake driver takes: %(default)s",
    )
    parser.add_argument(
        "--clients", default="1,16,32", metavar="N,...", help="numbers of clients: %(default)s"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run: %(default)s")
    parser.add_argument("--warmup", type=float, default=2.0, help="seconds before: %(default)s")
    parser.add_argument("--turns", type=int, default=3, help="runs of each: %(default)s")
    parser.add_argument("--manager-workers", type=int, default=1, help="%(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    return parser


def _measure(
    arguments: argparse.Namespace, endpoint: str
) -> tuple[list[dict[str, Any]], Mapping[str, int]]:
    numbers = [int(word) for word in arguments.clients.split(",")]
    groups = {
        name: [_client(endpoint, number) for number in range(max(numbers))]
        for name in (SHARED, SEPARATE)
    }
    owners = [groups[SHARED][0], *groups[SEPARATE]]
    samples: dict[tuple[int, str], list[tuple[float, load.Samples]]] = {}
    groups[SHARED][0].create_type(TYPE, {"multiattach": "<is> True"})
    turns = itertools.product(range(arguments.turns), numbers, groups.items())
    try:
        for owner in owners:
            owner.create_volume(1, TYPE)
        for client in groups[SHARED][1:]:
            client.use_volume_of(groups[SHARED][0])
        for _turn, number, (name, clients) in turns:
            load.run(clients[:number], arguments.warmup)
            run = load.run(clients[:number], arguments.seconds)
            samples.setdefault((number, name), []).append(run)
    finally:
        for owner in owners:
            owner.delete_volume()
    errors: Counter[str] = Counter()
    for runs in samples.values():
        for _seconds, seen in runs:
            errors += seen.errors
    return [_row(*key, runs) for key, runs in samples.items()], errors


def _client(endpoint: str, number: int) -> load.Client:
    headers = {"OpenStack-API-Version": "volume 3.71", "Content-Type": "application/json"}
    return load.Client(endpoint, {**headers, "Accept": "application/json"}, number)


def _row(number: int, volumes: str, runs: Sequence[tuple[float, load.Samples]]) -> dict[str, Any]:
    rates = [len(seen.cycles) / seconds for seconds, seen in runs]
    cycles = sorted(1000 * cycle for _seconds, seen in runs for cycle in seen.cycles) or [0.0]
    return {
        "clients": number,
        "volumes": volumes,
        "cycles per second": round(statistics.median(rates), 1),
        "of the runs": [round(rate, 1) for rate in rates],
        "p50 ms": round(cycles[len(cycles) // 2]),
        "p95 ms": round(cycles[len(cycles) * 95 // 100]),
    }


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = ["clients  volumes           cycles/s  p50 ms  p95 ms  runs"]
    lines += [
        f"{row['clients']:7}  {row['volumes']:16}  {row['cycles per second']:8.1f}  "
        f"{row['p50 ms']:6}  {row['p95 ms']:6}  {row['of the runs']}"
        for row in rows
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
