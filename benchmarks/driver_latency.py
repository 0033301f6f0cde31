#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the latency of attaches with each storage driver: grants alone, and whole cycles.

A grant is the call of the driver, in this process, by one thread for each client.  A cycle is the
one of attach_cycle.py, through a private attachd-manager and API under uwsgi.  Each client has a
volume of its own.  The storage is private as well: tgtd, a Ceph cluster of one monitor and one
OSD, files, and for nfs a directory that is mounted in place of a share, or a share that is mounted
already.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
import contextlib
import dataclasses
from importlib import metadata
import json
from pathlib import Path
import secrets
import subprocess
import sys
import threading
import time
from typing import Any
import unittest
import uuid

from cycle import load, report, started

from attachd.drivers import base
from attachd.manager import backends
from attachd.tests.fixtures import ceph, requirements, tgtd
from attachd.tests.unit.drivers import configured

LIMITS = ("max_calls", "max_calls_per_backend", "max_calls_per_project", "max_calls_per_volume")
"""Options of the API that would refuse some of the clients."""

Options = dict[str, str]
"""Those of a driver."""


def main() -> int:
    """Run the benchmark that the arguments describe.

    :returns: the exit code: 0 if all went well, 1 if any call failed, 2 if nothing was measured
    """
    arguments = _parser().parse_args()
    rows: list[dict[str, Any]] = []
    skipped: dict[str, str] = {}
    errors: list[str] = []
    with started.exiting_on_errors():
        for name in arguments.drivers:
            try:
                rows += _measure(name, arguments, errors)
            except unittest.SkipTest as reason:
                skipped[name] = f"{reason}"
        if not rows:
            raise started.NotStarted(f"No driver can be measured here: {skipped}")
    print(_table(rows), end="")
    print("\n".join([*(f"{name}: skipped, {why}" for name, why in skipped.items()), *errors]))
    if arguments.json is not None:
        content = {"rows": rows, "skipped": skipped, "errors": errors, "machine": report.machine()}
        arguments.json.write_text(json.dumps(content, indent=1))
    return 1 if errors else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Measure the latency of grants and of attach cycles with each driver.",
    )
    parser.add_argument(
        "--drivers",
        type=lambda text: text.split(","),
        default=list(STORAGE),
        metavar="NAME,...",
        help=f"{','.join(STORAGE)}",
    )
    parser.add_argument("--db", metavar="URL", help="a database that may be filled, for cycles")
    parser.add_argument("--rabbit", metavar="URL", help="a virtual host of its own, for cycles")
    parser.add_argument(
        "--clients",
        type=lambda text: [int(word) for word in text.split(",")],
        default=[1, 16],
        metavar="N,...",
        help="numbers of clients: 1,16",
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run: %(default)s")
    parser.add_argument("--warmup", type=float, default=2.0, help="seconds before: %(default)s")
    parser.add_argument(
        "--nfs",
        nargs=2,
        metavar=("SHARE", "DIRECTORY"),
        help="a share, and where it is mounted: measure nfs there",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    return parser


def _measure(name: str, arguments: argparse.Namespace, errors: list[str]) -> list[dict[str, Any]]:
    """Measure one driver; add what failed to ``errors``.

    :raises SkipTest: it cannot be measured here
    """
    if name not in STORAGE:
        raise ValueError(f"{name} is none of {', '.join(STORAGE)}.")
    runs: list[tuple[str, Callable[..., Mapping[int, list[float]]]]] = [("grant", _grants)]
    if arguments.db and arguments.rabbit:
        runs.append(("cycle", _cycles))
    rows = [{"driver": name, "clients": number} for number in arguments.clients]
    for kind, measure in runs:
        # Each has an empty storage.
        with started.work_folder() as folder, STORAGE[name](folder, arguments) as options:
            found = measure(name, folder, options, arguments, errors)
        for row in rows:
            if samples := found[row["clients"]]:
                row[kind] = {**report.quantiles(samples), "samples": len(samples)}
    return rows


def _grants(
    name: str, _folder: Path, options: Options, arguments: argparse.Namespace, errors: list[str]
) -> Mapping[int, list[float]]:
    """Return the seconds of each grant, by the number of threads."""
    (entry,) = metadata.entry_points(group="attachd.drivers", name=name)
    driver = configured.driver(entry.load(), **options)
    driver.setup()
    volumes: list[base.VolumeRef] = []
    try:
        volumes.extend(_create(driver) for _ in range(max(arguments.clients)))
        found = {}
        for number in arguments.clients:
            _grant_at_once(driver, volumes[:number], arguments.warmup)
            try:
                found[number] = _grant_at_once(driver, volumes[:number], arguments.seconds)
            except Exception as error:  # noqa: BLE001  shown in the end
                errors.append(f"{name}: grants of {number} clients failed: {error}")
                found[number] = []
        return found
    finally:
        for volume in volumes:
            driver.delete(volume)
        driver.close()


def _create(driver: base.Driver) -> base.VolumeRef:
    """Create a volume, and return it as the manager stores it."""
    volume = base.VolumeRef(f"{uuid.uuid4()}", 1)
    answer, columns = backends.split_secrets(driver.create(volume))
    return dataclasses.replace(volume, provider=answer, **columns)


def _grant_at_once(
    driver: base.Driver, volumes: Sequence[base.VolumeRef], seconds: float
) -> list[float]:
    """Grant and revoke each volume by a thread of its own; return the seconds of the grants."""
    start = threading.Barrier(len(volumes))

    def repeat(number: int, volume: base.VolumeRef) -> list[float]:
        found = []
        start.wait()
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            connector = load.connector(number)
            export = base.Export(f"{uuid.uuid4()}", connector, "rw", secrets.token_hex(16))
            before = time.perf_counter()
            try:
                driver.grant(volume, export)
                found.append(time.perf_counter() - before)
            finally:
                driver.revoke(volume, export, [])
        return found

    with futures.ThreadPoolExecutor(len(volumes)) as threads:
        parts = list(threads.map(repeat, range(len(volumes)), volumes))
    return [sample for part in parts for sample in part]


def _cycles(
    name: str, folder: Path, options: Options, arguments: argparse.Namespace, errors: list[str]
) -> Mapping[int, list[float]]:
    """Return the seconds of each cycle, by the number of clients."""
    shape = started.Shape(
        database=arguments.db,
        rabbit=arguments.rabbit,
        api_processes=2,
        api_threads=24,
        manager_workers=1,
        groups={"rpc": dict.fromkeys(LIMITS, "64")},
    )
    headers = {"OpenStack-API-Version": "volume 3.71", "Content-Type": "application/json"}
    found = {}
    # The manager refuses another storage under the name of a backend that it knows.
    backend = f"{name}-{uuid.uuid4().hex}"
    with started.production(folder, {backend: {"driver": name, **options}}, shape) as running:
        clients = [
            load.Client(running.endpoint, {**headers, "Accept": "application/json"}, number)
            for number in range(max(arguments.clients))
        ]
        try:
            for client in clients:
                client.create_volume(1, None)
            for number in arguments.clients:
                load.run(clients[:number], arguments.warmup)
                _seconds, samples = load.run(clients[:number], arguments.seconds)
                found[number] = samples.cycles
                errors += [f"{name}: {n} x {text}" for text, n in sorted(samples.errors.items())]
        finally:
            for client in clients:
                client.delete_volume()
    return found


@contextlib.contextmanager
def _cleaned() -> Iterator[unittest.TestCase]:
    """Return a test for the fixtures, and clean up after it."""
    test = unittest.TestCase()
    try:
        yield test
    finally:
        test.doCleanups()


@contextlib.contextmanager
def _fake(_folder: Path, _arguments: argparse.Namespace) -> Iterator[Options]:
    yield {}


@contextlib.contextmanager
def _file(folder: Path, _arguments: argparse.Namespace) -> Iterator[Options]:
    path = f"{folder / 'files'}"
    yield {"file_folder": path, "file_hosts": "*", "file_loop_devices": "never"}


@contextlib.contextmanager
def _tgt(_folder: Path, _arguments: argparse.Namespace) -> Iterator[Options]:
    with _cleaned() as test, tgtd.Tgtd(test) as daemon:
        yield daemon.options


@contextlib.contextmanager
def _rbd(_folder: Path, _arguments: argparse.Namespace) -> Iterator[Options]:
    with _cleaned() as test, ceph.Ceph(test) as cluster:
        # The scheduler wants to know the capacity.
        cluster.require_statistics(test)
        yield cluster.options()


@contextlib.contextmanager
def _nfs(folder: Path, arguments: argparse.Namespace) -> Iterator[Options]:
    if arguments.nfs:
        share, directory = arguments.nfs
        yield {"nfs_share": share, "nfs_mount_point": directory}
        return
    with _cleaned() as test:
        requirements.require_root(test)
    share, directory = folder / "share", f"{folder / 'mnt'}"
    for path in (share, Path(directory)):
        path.mkdir()
    subprocess.run(["mount", "--bind", f"{share}", directory], check=True)  # noqa: S603, S607
    try:
        yield {"nfs_share": "127.0.0.1:/share", "nfs_mount_point": directory}
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)  # noqa: S603, S607


def _lvm(
    _folder: Path, _arguments: argparse.Namespace
) -> contextlib.AbstractContextManager[Options]:
    raise unittest.SkipTest(
        "it needs a kernel with its targets, and is measured in guests: attachd/tests/lab"
    )


STORAGE: dict[
    str, Callable[[Path, argparse.Namespace], contextlib.AbstractContextManager[Options]]
] = {"fake": _fake, "file": _file, "tgt": _tgt, "rbd": _rbd, "nfs": _nfs, "lvm": _lvm}


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of milliseconds; "-": not measured."""
    kinds, quantiles = ("grant", "cycle"), ("p50", "p95")
    lines = [["driver", "clients", *(f"{kind} {name}" for kind in kinds for name in quantiles)]]
    lines += [
        [
            row["driver"],
            f"{row['clients']}",
            *(
                f"{row[kind][name]:.1f}" if kind in row else "-"
                for kind in kinds
                for name in quantiles
            ),
        ]
        for row in rows
    ]
    return report.grid(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
