#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure how much one tenant slows down another one.

The noisy tenant attaches one multiattach volume of a slow backend to many hosts, synchronously
from many clients or asynchronously from one.  The measured tenant sends GET requests, and attaches
volumes of a healthy backend and of the slow one.  Each of its latencies under load is compared
with that of the idle service.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
from dataclasses import dataclass, field
import json
from pathlib import Path
import statistics
import sys
import threading
import time
from typing import Any, Final

from cycle import load, started, wire

NOISY: Final = "noisy:noisyproject"
MEASURED: Final = "measured:measuredproject"
ADMIN: Final = "admin:admin:admin"

GET: Final = "GET"
HEALTHY: Final = "cycle, healthy backend"
SLOW: Final = "cycle, slow backend"

LIMITS: Final[Mapping[str, float]] = {GET: 3.0, HEALTHY: 2.0}
"""Largest permitted ratio of the p95 under load to the p95 of the idle service."""

GET_PAUSE: Final = 0.02
RAMP_UP: Final = 3.0
"""Seconds between the start of the load and the start of the measurement."""


@dataclass
class Latencies:
    """Latencies of the measured tenant, in seconds, by kind.

    :ivar errors: numbers of calls that failed, by kind and status
    """

    seconds: dict[str, list[float]] = field(
        default_factory=lambda: {name: [] for name in (GET, HEALTHY, SLOW)}
    )
    errors: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Latencies") -> None:
        """Add the latencies of another time."""
        for name, seconds in other.seconds.items():
            self.seconds[name] += seconds
        self.errors += other.errors


def main() -> int:
    """Run the benchmark that the arguments describe.

    :returns: the exit code: 0 if all ratios are permitted, 1 if not, 2 if nothing was measured
    """
    arguments = _parser().parse_args()
    backends = {
        "healthy": {"driver": arguments.driver},
        "slow": {"driver": "fake", "fake_delay": f"{arguments.delay}"},
    }
    shape = started.Shape(
        database=arguments.db,
        rabbit=arguments.rabbit,
        api_processes=arguments.api_processes,
        api_threads=arguments.api_threads,
        manager_workers=arguments.manager_workers,
    )
    with (
        started.exiting_on_errors(),
        started.production_with_tgtd(backends, shape, arguments.keep) as running,
    ):
        results = _measure(arguments, running.endpoint)
    for result in results:
        print(_shown(result))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")
    return 1 if any(row["passed"] is False for row in _rows(results)) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Measure the latencies of one tenant while another one attaches a multiattach "
        "volume of a slow backend to many hosts. Starts private processes with --db and --rabbit."
    )
    parser.add_argument("--db", metavar="URL", required=True, help="an empty MariaDB database")
    parser.add_argument("--rabbit", metavar="URL", required=True, help="transport_url")
    parser.add_argument(
        "--driver", default="fake", choices=("fake", "tgt"), help="of the healthy backend"
    )
    parser.add_argument("--clients", type=int, default=64, help="noisy clients: %(default)s")
    parser.add_argument(
        "--asynchronous", type=int, default=150, help="requests of one client: %(default)s"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run: %(default)s")
    parser.add_argument(
        "--rounds", type=int, default=3, help="turns of idle service and load: %(default)s"
    )
    parser.add_argument("--delay", type=float, default=1.0, help="slow backend: %(default)s s")
    parser.add_argument("--api-processes", type=int, default=2, help="%(default)s")
    parser.add_argument(
        "--api-threads", type=int, default=0, help="each; 0: as in etc/attachd/uwsgi.ini"
    )
    parser.add_argument("--manager-workers", type=int, default=1, help="%(default)s")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="work there and leave configuration and logs"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the results there as well"
    )
    return parser


def _headers(token: str, **more: str) -> dict[str, str]:
    return {
        "OpenStack-API-Version": "volume 3.71",
        "Content-Type": "application/json",
        "Accept": "application/json",
        "X-Auth-Token": token,
        **more,
    }


def _ask(connection: wire.Connection, method: str, path: str, body: Any = None) -> dict[str, Any]:
    answer = connection.request(method, path, b"" if body is None else json.dumps(body).encode())
    if answer.status >= 300:  # noqa: PLR2004  HTTP
        raise load.Unusable(f"{method} {path}: {answer.status} {answer.body[:300]!r}")
    answered: dict[str, Any] = json.loads(answer.body) if answer.body else {}
    return answered


def _create_types(endpoint: str) -> None:
    """Create a volume type for each backend."""
    connection = wire.Connection(endpoint, _headers(ADMIN))
    for name in ("healthy", "slow"):
        specs = {"volume_backend_name": name, "multiattach": "<is> True"}
        if name == "healthy":
            del specs["multiattach"]
        _ask(connection, "POST", "/types", {"volume_type": {"name": name, "extra_specs": specs}})
    connection.close()


def _measure(arguments: argparse.Namespace, endpoint: str) -> list[dict[str, Any]]:
    _create_types(endpoint)
    noisy = load.Client(endpoint, _headers(NOISY), 0)
    noisy.create_volume(1, "slow")
    cyclers = {
        HEALTHY: load.Client(endpoint, _headers(MEASURED), 1001),
        SLOW: load.Client(endpoint, _headers(MEASURED), 1002),
    }
    cyclers[HEALTHY].create_volume(1, "healthy")
    cyclers[SLOW].create_volume(1, "slow")
    _observe(endpoint, cyclers, RAMP_UP)
    window = arguments.seconds / arguments.rounds
    idle, loaded = Latencies(), Latencies()
    statuses: Counter[int] = Counter()
    for _ in range(arguments.rounds):
        # In turns, because the speed of the machine varies.
        idle.add(_observe(endpoint, cyclers, window))
        synchronous = _Noise(endpoint, noisy.volume)
        with synchronous.running(arguments.clients, synchronous.attach_and_detach):
            loaded.add(_observe(endpoint, cyclers, window))
        statuses += synchronous.statuses
    asynchronous = _Noise(endpoint, noisy.volume, {"Prefer": "respond-async"})
    asynchronous.left = arguments.asynchronous
    with asynchronous.running(1, asynchronous.attach_asynchronously):
        loaded_asynchronously = _observe(endpoint, cyclers, arguments.seconds)
    return [
        _result(f"{arguments.clients} clients on one volume", idle, loaded, statuses),
        _result(
            f"{arguments.asynchronous} asynchronous requests of one client",
            idle,
            loaded_asynchronously,
            asynchronous.statuses,
        ),
    ]


class _Noise:
    """The load of the noisy tenant.

    :ivar statuses: number of answers, by status
    :ivar left: number of asynchronous requests that are still to be accepted
    """

    def __init__(
        self, endpoint: str, volume: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self._endpoint = endpoint
        self._volume = volume
        self._headers = headers or {}
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.statuses: Counter[int] = Counter()
        self.left = 0

    @contextlib.contextmanager
    def running(
        self, clients: int, step: Callable[[wire.Connection, int], None]
    ) -> Iterator[None]:
        """Let clients repeat a step inside the block; the first RAMP_UP seconds are waited for."""
        threads = [
            threading.Thread(target=self._repeat, args=(step, number), daemon=True)
            for number in range(clients)
        ]
        for thread in threads:
            thread.start()
        time.sleep(RAMP_UP)
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def _repeat(self, step: Callable[[wire.Connection, int], None], number: int) -> None:
        connection = wire.Connection(self._endpoint, _headers(NOISY, **self._headers))
        while not self._stop.is_set():
            try:
                step(connection, number)
            except (OSError, wire.BadAnswer, ValueError):
                self._count(0)
                connection.close()
                self._stop.wait(load.PAUSE_AFTER_ERROR)

    def _count(self, status: int) -> None:
        with self._lock:
            self.statuses[status] += 1

    def _send(
        self, connection: wire.Connection, method: str, path: str, body: bytes = b""
    ) -> wire.Answer:
        """Send a request, and again if it is refused, as Retry-After says."""
        while True:
            answer = connection.request(method, path, body)
            self._count(answer.status)
            if answer.status not in {429, 503} or self._stop.wait(connection.retry_after or 1.0):
                return answer

    def _attach(self, connection: wire.Connection, number: int) -> str | None:
        """Attach the volume to one host; return the id of the attachment, or None."""
        request = {"volume_uuid": self._volume, "connector": load.connector(number)}
        body = json.dumps({"attachment": request}).encode()
        answer = self._send(connection, "POST", "/attachments", body)
        if answer.status >= 300:  # noqa: PLR2004  HTTP
            self._stop.wait(load.PAUSE_AFTER_ERROR)
            return None
        return str(json.loads(answer.body)["attachment"]["id"])

    def attach_and_detach(self, connection: wire.Connection, number: int) -> None:
        """Attach the volume to a host of the client's own, and detach it."""
        if (attachment := self._attach(connection, number)) is not None:
            self._send(connection, "DELETE", f"/attachments/{attachment}")

    def attach_asynchronously(self, connection: wire.Connection, _number: int) -> None:
        """Attach the volume to one more host, as long as requests are left."""
        if self.left <= 0:
            self._stop.wait(load.PAUSE_AFTER_ERROR)
        elif self._attach(connection, 2000 + self.left) is not None:
            self.left -= 1


def _observe(endpoint: str, cyclers: Mapping[str, load.Client], seconds: float) -> Latencies:
    """Measure the calls of the measured tenant."""
    observed = Latencies()
    until = time.perf_counter() + seconds
    threads = [
        threading.Thread(target=_observe_cycles, args=(observed, name, client, until))
        for name, client in cyclers.items()
    ]
    threads.append(
        threading.Thread(target=_observe_gets, args=(observed, endpoint, cyclers[HEALTHY], until))
    )
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return observed


def _observe_cycles(observed: Latencies, name: str, client: load.Client, until: float) -> None:
    samples = client.run(until, threading.Event())
    observed.seconds[name] = samples.cycles
    for error, number in samples.errors.items():
        observed.errors[f"{name}: {error[:120]}"] += number


def _observe_gets(observed: Latencies, endpoint: str, client: load.Client, until: float) -> None:
    connection = wire.Connection(endpoint, _headers(MEASURED))
    paths = (
        f"/volumes/{client.volume}",
        "/attachments",
        f"/attachments?volume_id={client.volume}",
    )
    while time.perf_counter() < until:
        for path in paths:
            started_at = time.perf_counter()
            try:
                status = connection.request("GET", path).status
            except (OSError, wire.BadAnswer) as error:
                connection.close()
                observed.errors[f"{GET}: {error!r}"] += 1
                continue
            observed.seconds[GET].append(time.perf_counter() - started_at)
            if status != 200:  # noqa: PLR2004  HTTP
                observed.errors[f"{GET}: {status}"] += 1
            time.sleep(GET_PAUSE)
    connection.close()


def _percentiles(seconds: Sequence[float]) -> tuple[float | None, float | None]:
    """Return median and 95th percentile; None without any sample."""
    if not seconds:
        return None, None
    if len(seconds) == 1:
        return seconds[0], seconds[0]
    return statistics.median(seconds), statistics.quantiles(seconds, n=20, method="inclusive")[-1]


def _result(
    noise: str, idle: Latencies, loaded: Latencies, statuses: Mapping[int, int]
) -> dict[str, Any]:
    rows = []
    for name in (GET, HEALTHY, SLOW):
        before, after = _percentiles(idle.seconds[name]), _percentiles(loaded.seconds[name])
        ratio = after[1] / before[1] if before[1] and after[1] else None
        limit = LIMITS.get(name)
        rows.append(
            {
                "calls": name,
                "idle": before,
                "loaded": after,
                "samples": [len(idle.seconds[name]), len(loaded.seconds[name])],
                "ratio": ratio,
                "limit": limit,
                "passed": None if limit is None else ratio is not None and ratio <= limit,
            }
        )
    return {
        "noise": noise,
        "rows": rows,
        "errors": {"idle": dict(idle.errors), "loaded": dict(loaded.errors)},
        "answers to the noisy tenant": {str(code): statuses[code] for code in sorted(statuses)},
    }


def _rows(results: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for result in results:
        yield from result["rows"]


def _shown(result: Mapping[str, Any]) -> str:
    lines = [f"{result['noise']}:"]
    for row in result["rows"]:
        limit = "" if row["limit"] is None else f"  (limit {row['limit']:.0f})"
        ratio = "none" if row["ratio"] is None else f"{row['ratio']:.1f}"
        lines.append(
            f"  {row['calls']:24} p50/p95 in ms: idle {_milliseconds(row['idle'])}, "
            f"loaded {_milliseconds(row['loaded'])}, ratio of p95 {ratio}{limit}"
        )
    lines.append(f"  answers to the noisy tenant: {result['answers to the noisy tenant']}")
    for when, errors in result["errors"].items():
        lines += [f"  {when}: {number} times {error}" for error, number in errors.items()]
    return "\n".join(lines)


def _milliseconds(percentiles: Sequence[float | None]) -> str:
    return "/".join("none" if value is None else f"{1000 * value:.1f}" for value in percentiles)


if __name__ == "__main__":
    sys.exit(main())
