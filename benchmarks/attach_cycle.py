#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure attach cycles: how many, how long they take, and what each costs.

One cycle is what a Compute service does to a volume: reserve an attachment (POST), connect it
(PUT with a connector), complete it (os-complete), delete it.  Each client does this to a volume
of its own, one cycle after the other, over one kept-alive connection.
"""

import argparse
from collections.abc import Iterator, Sequence
import contextlib
from pathlib import Path
import sys
import time
from typing import Any
from urllib.parse import urlsplit

from cycle import counters, load, processes, report, started, yardstick

LOAD = "load generator"
IDLE = 1.0
"""Seconds of listening to how busy the servers are without us."""


def main() -> int:
    """Run the benchmark that the arguments describe.

    :returns: the exit code: 0 if all went well, 1 if any cycle failed, 2 if nothing was measured
    """
    arguments = _parser().parse_args()
    with started.exiting_on_errors(), _running(arguments) as running:
        content = _measure(arguments, running)
    print(report.table(content), end="")
    if arguments.json is not None:
        report.write(arguments.json, content)
    return 1 if any(result["errors"] for result in content["results"]) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Measure attach cycles: reserve, connect, complete and delete an attachment. "
        "Nothing is started unless --start says so; volumes are created and deleted again.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--endpoint", metavar="URL", help="drive what runs at http://HOST:PORT/v3[/PROJECT]"
    )
    what.add_argument(
        "--start",
        choices=("all-in-one", "production"),
        help="start private processes, drive them and end them: attachd-all-in-one, or "
        "attachd-manager and the API under uwsgi with --db and --rabbit",
    )
    _add_load(parser)
    _add_counting(parser)
    _add_shape(parser)
    return parser


def _add_load(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("load")
    group.add_argument(
        "--clients",
        type=_numbers,
        default=[1, 4, 16],
        metavar="N,...",
        help="run once with each of these numbers of clients: 1,4,16",
    )
    group.add_argument("--seconds", type=float, default=10.0, help="of each run: %(default)s")
    group.add_argument(
        "--warmup", type=float, default=2.0, help="uncounted seconds before: %(default)s"
    )
    group.add_argument("--token", help="sent as X-Auth-Token, if given")
    group.add_argument("--microversion", default="3.71", help="%(default)s")
    group.add_argument("--volume-type", help="of the volumes; none if not given")
    group.add_argument("--json", type=Path, metavar="FILE", help="write the results there as well")


def _add_counting(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("counting")
    group.add_argument(
        "--db",
        metavar="URL",
        help="the service's MariaDB or PostgreSQL, as SQLAlchemy writes it, as a user who may "
        "read its counters; with --start production a database that may be filled",
    )
    group.add_argument(
        "--rabbit",
        metavar="URL",
        help="the service's RabbitMQ, counted by rabbitmqctl on this machine; with --start "
        "production its transport_url, best with a virtual host of its own",
    )
    group.add_argument(
        "--functions",
        action="store_true",
        help="with --start all-in-one, count the calls of Python and C functions too: the "
        "process is slower then, but the count depends on no other load",
    )
    group.add_argument(
        "--pid",
        type=_named_pid,
        action="append",
        default=[],
        metavar="NAME=PID",
        help="show the CPU time of this process and its descendants; may be repeated",
    )


def _add_shape(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is started")
    group.add_argument("--driver", default="fake", help="storage driver: %(default)s")
    group.add_argument("--api-processes", type=int, default=2, help="%(default)s")
    group.add_argument("--api-threads", type=int, default=48, help="each: %(default)s")
    group.add_argument("--manager-workers", type=int, default=1, help="%(default)s")
    group.add_argument(
        "--keep", type=Path, metavar="DIR", help="work there and leave configuration and logs"
    )


def _numbers(text: str) -> list[int]:
    found = [int(word) for word in text.split(",")]
    if min(found) < 1:
        raise ValueError(text)
    return found


def _named_pid(text: str) -> tuple[str, int]:
    name, _, pid = text.rpartition("=")
    return name or pid, int(pid)


@contextlib.contextmanager
def _running(arguments: argparse.Namespace) -> Iterator[started.Running]:
    if arguments.start is None:
        yield started.Running(arguments.endpoint)
        return
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(started.work_folder(arguments.keep))
        if arguments.start == "all-in-one":
            functions = arguments.functions
            yield stack.enter_context(
                started.all_in_one(folder, arguments.driver, functions=functions)
            )
        else:
            shape = _shape(arguments)
            options = {"file_folder": f"{folder}", "file_hosts": "*"}
            backends = {"measured": {"driver": arguments.driver, **options}}
            yield stack.enter_context(started.production(folder, backends, shape))


def _shape(arguments: argparse.Namespace) -> started.Shape:
    if not arguments.db or not arguments.rabbit:
        raise ValueError("--start production needs --db and --rabbit.")
    return started.Shape(
        database=arguments.db,
        rabbit=arguments.rabbit,
        api_processes=arguments.api_processes,
        api_threads=arguments.api_threads,
        manager_workers=arguments.manager_workers,
        # All clients are of one project, and a worker that still loads leaves them to the others.
        groups={"rpc": {"max_calls": "1000"}},
    )


def _measure(arguments: argparse.Namespace, running: started.Running) -> dict[str, Any]:
    pids = {**running.pids, **_servers(arguments), **dict(arguments.pid)}
    sources, how = _sources(arguments, running)
    how[f"CPU ms {LOAD}"] = processes.HOW_OWN
    if pids:
        how["CPU ms of the others"] = processes.HOW
    how["% otherwise"] = processes.HOW_OTHERWISE
    if arguments.start == "production":
        how["CPU ms empty call"] = yardstick.HOW
    how |= _idle(sources)
    headers = {"OpenStack-API-Version": f"volume {arguments.microversion}"}
    headers |= {"Content-Type": "application/json", "Accept": "application/json"}
    if arguments.token:
        headers["X-Auth-Token"] = arguments.token
    clients = [
        load.Client(running.endpoint, headers, number) for number in range(max(arguments.clients))
    ]
    try:
        for client in clients:
            client.create_volume(1, arguments.volume_type)
        results = [_run(clients[:count], arguments, sources, pids) for count in arguments.clients]
    finally:
        for client in clients:
            client.delete_volume()
    return report.document(results, how, _subject(arguments, running))


def _subject(arguments: argparse.Namespace, running: started.Running) -> dict[str, Any]:
    subject: dict[str, Any] = {"endpoint": running.endpoint}
    if arguments.start is not None:
        subject |= {"started": arguments.start, "driver": arguments.driver}
    if arguments.start == "production":
        subject["api"] = f"{arguments.api_processes} processes, {arguments.api_threads} threads"
        subject["manager"] = f"{arguments.manager_workers} processes"
    if arguments.db:
        subject["database"] = urlsplit(arguments.db).scheme
    return subject


def _servers(arguments: argparse.Namespace) -> dict[str, int]:
    """Find the database and the broker, if they are here and there is one of each."""
    wanted = {
        "database": (arguments.db, processes.DATABASE),
        "broker": (arguments.rabbit, processes.BROKER),
    }
    found = {}
    for name, (url, commands) in wanted.items():
        local = url and urlsplit(url).hostname in counters.LOCAL
        if local and (pid := processes.named(commands)) is not None:
            found[name] = pid
    return found


def _sources(
    arguments: argparse.Namespace, running: started.Running
) -> tuple[list[counters.Source], dict[str, str]]:
    """Return all that counts, and how it does or why it does not."""
    sources: list[counters.Source] = []
    how: dict[str, str] = {}
    if running.counter is not None:
        sources.append(counters.Own(running.counter))
    for url, make in ((arguments.db, counters.of_database), (arguments.rabbit, counters.RabbitMq)):
        if url:
            try:
                sources.append(make(url))
            except counters.NotCountable as error:
                how[urlsplit(url).scheme] = f"not counted: {error}"
    for source in sources:
        how |= source.how
    for name in (counters.STATEMENTS, counters.WRITES, counters.CALLS):
        how.setdefault(name, "not counted: nothing was named that could count it")
    return sources, how


def _idle(sources: Sequence[counters.Source]) -> dict[str, str]:
    """Return how busy the counted servers are with other work."""
    before = _counted(sources)
    time.sleep(IDLE)
    noise = counters.difference(before, _counted(sources))
    shown = [
        f"{noise[name] / IDLE:.0f} {name}/s"
        for name in (counters.STATEMENTS, counters.WRITES, counters.CALLS)
        if name in noise
    ]
    return {"before the run, without our load": ", ".join(shown)} if shown else {}


def _counted(sources: Sequence[counters.Source]) -> dict[str, int]:
    found: dict[str, int] = {}
    for source in sources:
        found |= source.read()
    return found


def _run(
    clients: Sequence[load.Client],
    arguments: argparse.Namespace,
    sources: Sequence[counters.Source],
    pids: dict[str, int],
) -> report.Result:
    call_before = _call_ms(arguments)
    if arguments.warmup:
        load.run(clients, arguments.warmup)
    before = _counted(sources)
    machine = processes.machine_cpu_seconds()
    cpu_before = {LOAD: processes.own_cpu_seconds(), **processes.cpu_seconds(pids)}
    duration, samples = load.run(clients, arguments.seconds)
    cpu_after = {LOAD: processes.own_cpu_seconds(), **processes.cpu_seconds(pids)}
    machine = processes.machine_cpu_seconds() - machine
    counted = counters.difference(before, _counted(sources))
    used = {name: cpu_after[name] - cpu_before[name] for name in cpu_after}
    call = call_before and (call_before + (_call_ms(arguments) or 0.0)) / 2
    return report.result(clients, duration, samples, counted, used, machine, call)


def _call_ms(arguments: argparse.Namespace) -> float | None:
    """Return what an empty call costs now; None where no broker is ours to use."""
    return yardstick.call_ms(arguments.rabbit) if arguments.start == "production" else None


if __name__ == "__main__":
    sys.exit(main())
