#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the latency of ControllerPublishVolume: until a volume is a device on its node.

attachd-csi answers when the agent of the node has made the device, so nothing polls.  One volume
is attached and detached alone, over and over; then many are attached at once, half of them to each
of two nodes.  API, manager, agents, driver and storage are private; the devices are in user space,
or loop devices over the files of the driver ``file``.
"""

import argparse
from collections.abc import Iterator, Sequence
from concurrent import futures
import contextlib
import json
from pathlib import Path
import statistics
import sys
import time
from typing import Any
import unittest
import uuid

from cycle import processes, report

from attachd.tests.fixtures import agent_deployment, requirements
from attachd.tests.fixtures.csi_driver import CsiDriver
from attachd.tests.fixtures.csi_requests import mount, new_volume

STORAGE = {
    "file": agent_deployment.FileDeployment,
    "rbd": agent_deployment.RbdDeployment,
    "tgt": agent_deployment.AgentDeployment,
}
NODES = 2


def main() -> int:
    """Run the benchmark that the arguments describe.

    :returns: the exit code: 0, or 2 if nothing can be measured here
    """
    arguments = _parser().parse_args()
    try:
        with _cleaned() as test:
            requirements.require_root(test)
            rows = _measure(test, arguments)
    except unittest.SkipTest as reason:
        sys.stderr.write(f"Nothing can be measured here: {reason}\n")
        return 2
    lines = [["call", "volumes", "p50", "p99", "p50/alone", "p99/alone", "CPU", "samples"]]
    lines += [
        [
            row["call"],
            f"{row['volumes']}",
            *(f"{row[name]:.0f}" for name in ("p50", "p99")),
            *(f"{row[name]:.1f}" for name in ("ratio_p50", "ratio_p99")),
            f"{row['cpu']:.0f}",
            f"{row['samples']}",
        ]
        for row in rows
    ]
    print(report.grid(lines))
    if arguments.json is not None:
        content = {"rows": rows, "machine": report.machine()}
        arguments.json.write_text(json.dumps(content, indent=1))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Measure the latency of attaches by CSI, in milliseconds; and of all "
        "processors, also for other work, the time in milliseconds for each volume."
    )
    parser.add_argument("--driver", default="tgt", choices=tuple(STORAGE))
    parser.add_argument(
        "--volumes", type=int, default=64, metavar="N", help="at once: %(default)s"
    )
    parser.add_argument("--alone", type=int, default=10, metavar="N", help="rounds: %(default)s")
    parser.add_argument("--rounds", type=int, default=1, help="of many: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    return parser


@contextlib.contextmanager
def _cleaned() -> Iterator[unittest.TestCase]:
    """Return a test for the fixtures, and clean up after it."""
    test = unittest.TestCase()
    try:
        yield test
    finally:
        test.doCleanups()


def _measure(test: unittest.TestCase, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    deployment = STORAGE[arguments.driver](test)
    hosts = [agent_deployment.AgentHost(deployment, test) for _ in range(NODES)]
    for host in hosts:
        host.start()
    workers = f"--workers={max(arguments.volumes, 1)}"
    driver = CsiDriver(test, deployment.url, "--mode=controller", workers)
    volumes = [_create(driver) for _ in range(arguments.volumes)]
    try:
        alone = [_cycle(driver, volumes[:1], hosts) for _ in range(arguments.alone + 1)]
        many = [_cycle(driver, volumes, hosts) for _ in range(arguments.rounds)]
    finally:
        for volume_id in volumes:
            driver.call("DeleteVolume", volume_id=volume_id)
    # The first one connects, and loads what is loaded late.
    return [*_rows(1, alone[1:], alone[1:]), *_rows(arguments.volumes, many, alone[1:])]


Samples = dict[str, list[float]]
"""Seconds by call; and by "CPU of" it those of all processors, by volume."""


def _rows(number: int, found: Sequence[Samples], alone: Sequence[Samples]) -> list[dict[str, Any]]:
    rows = []
    for call in ("publish", "unpublish"):
        samples = [seconds for part in found for seconds in part[call]]
        base = 1000 * statistics.median(seconds for part in alone for seconds in part[call])
        quantiles = report.quantiles(samples)
        ratios = {f"ratio_{name}": quantiles[name] / base for name in ("p50", "p99")}
        cpu = statistics.median(seconds for part in found for seconds in part[f"CPU of {call}"])
        subject = {"call": call, "volumes": number, "samples": len(samples), "cpu": 1000 * cpu}
        rows.append({**subject, **quantiles, **ratios})
    return rows


def _create(driver: CsiDriver) -> str:
    answer = driver.call("CreateVolume", **new_volume(f"pvc-{uuid.uuid4()}"))
    return str(answer.volume.volume_id)


def _cycle(
    driver: CsiDriver, volumes: Sequence[str], hosts: Sequence[agent_deployment.AgentHost]
) -> Samples:
    """Publish all volumes at once, and unpublish them; return how long each call took."""
    placed = [
        {"volume_id": volume_id, "node_id": hosts[number % len(hosts)].name}
        for number, volume_id in enumerate(volumes)
    ]
    found: Samples = {}
    for call, more in (("publish", {"volume_capability": mount()}), ("unpublish", {})):
        used = processes.machine_cpu_seconds()
        name = f"Controller{call.capitalize()}Volume"
        found[call] = _call_at_once(driver, name, [{**fields, **more} for fields in placed])
        found[f"CPU of {call}"] = [(processes.machine_cpu_seconds() - used) / len(volumes)]
    return found


def _call_at_once(driver: CsiDriver, name: str, requests: Sequence[dict[str, Any]]) -> list[float]:
    started = time.perf_counter()

    def call(fields: dict[str, Any]) -> float:
        driver.call(name, **fields)
        return time.perf_counter() - started

    with futures.ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(call, requests))


if __name__ == "__main__":
    sys.exit(main())
