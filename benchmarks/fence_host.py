#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure how long it takes to fence a host with 1, 10 and 100 attachments, with proof.

Each attachment is of a volume of its own.  The requests go to a private attachd-manager and API
under uwsgi, with private storage.
"""

import argparse
from collections.abc import Mapping
import json
from pathlib import Path
import sys
import time
from typing import Any

from cycle import load, report, started, wire
import driver_latency

HEADERS = {
    "OpenStack-API-Version": "volume 3.71, attachd 1.1",
    "Content-Type": "application/json",
    "Accept": "application/json",
}


def main() -> int:
    """Run the benchmark that the arguments describe.

    :returns: the exit code: 0 if all was proved, 1 if not
    """
    arguments = _parser().parse_args()
    with started.exiting_on_errors():
        rows = _measure(arguments)
    lines = [["driver", "attachments", "p50", "p99", "rounds", "not proved"]]
    lines += [
        [
            arguments.driver,
            *(f"{row[name]:.0f}" for name in ("number", "p50", "p99", "rounds", "left")),
        ]
        for row in rows
    ]
    print(report.grid(lines))
    if arguments.json is not None:
        content = {"rows": rows, "machine": report.machine()}
        arguments.json.write_text(json.dumps(content, indent=1))
    return 1 if any(row["left"] for row in rows) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Measure the latency of fencing a host, in milliseconds."
    )
    parser.add_argument("--driver", default="fake", choices=("fake", "tgt", "rbd"))
    parser.add_argument("--db", metavar="URL", required=True, help="a database that may be filled")
    parser.add_argument("--rabbit", metavar="URL", required=True, help="a virtual host of its own")
    parser.add_argument(
        "--attachments",
        type=lambda text: [int(word) for word in text.split(",")],
        default=[1, 10, 100],
        metavar="N,...",
        help="numbers of attachments of a host: 1,10,100",
    )
    parser.add_argument("--rounds", type=int, default=10, help="for each number: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    return parser


def _measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    shape = started.Shape(
        database=arguments.db,
        rabbit=arguments.rabbit,
        api_processes=2,
        api_threads=8,
        manager_workers=1,
    )
    storage = driver_latency.STORAGE[arguments.driver]
    with started.work_folder() as folder, storage(folder, arguments) as options:
        groups = {"measured": {"driver": arguments.driver, **options}}
        with started.production(folder, groups, shape) as running:
            clients = [
                load.Client(running.endpoint, HEADERS, number)
                for number in range(max(arguments.attachments))
            ]
            api = wire.Connection(running.endpoint, HEADERS)
            try:
                for client in clients:
                    client.create_volume(1, None)
                return [
                    _fence_often(
                        api, [client.volume for client in clients[:number]], arguments.rounds
                    )
                    for number in arguments.attachments
                ]
            finally:
                for client in clients:
                    client.delete_volume()


def _fence_often(api: wire.Connection, volumes: list[str], rounds: int) -> dict[str, Any]:
    """Attach the volumes to a host and fence it, each time another one."""
    samples, left = [], 0
    for number in range(rounds):
        machine = load.connector(1000 * len(volumes) + number)
        connector = {**machine, "host": f"dead-{len(volumes)}-{number}"}
        for volume in volumes:
            _ask(
                api,
                "/attachments",
                {"attachment": {"volume_uuid": volume, "connector": connector}},
            )
        before = time.perf_counter()
        body = {"fence": {"reason": "benchmark"}}
        fence = _ask(api, f"/hosts/{connector['host']}/fence", body)["fence"]
        samples.append(time.perf_counter() - before)
        left += sum(item["result"] != "proved" for item in fence["attachments"])
    quantiles = report.quantiles(samples)
    return {"number": len(volumes), "rounds": rounds, "left": left, **quantiles}


def _ask(api: wire.Connection, path: str, body: Mapping[str, Any]) -> Any:
    status, answer = api.request("POST", path, json.dumps(body).encode())
    if status != 200:  # noqa: PLR2004
        raise load.Unusable(f"POST {path} was answered with {status}: {answer[:300]!r}")
    return json.loads(answer)


if __name__ == "__main__":
    sys.exit(main())
