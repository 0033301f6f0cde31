# SPDX-License-Identifier: Apache-2.0
"""Clients that attach and detach, each a volume of its own; used by all benchmarks of attaches."""

from collections import Counter
from collections.abc import Sequence
import contextlib
from dataclasses import dataclass, field
import json
import queue
import threading
import time
from typing import Any
import uuid

from cycle import wire

CALLS = ("reserve", "connect", "complete", "detach")
"""One cycle: POST, PUT, os-complete and DELETE of an attachment."""

TIMEOUT = 60.0
"""Seconds that a volume may take to be created or deleted."""
PAUSE_AFTER_ERROR = 0.1


class Unusable(Exception):
    """The service does not do what a cycle needs."""


@dataclass
class Samples:
    """What was seen, latencies in seconds.

    :ivar calls: the latencies of each call of :data:`CALLS` in cycles that ended well
    :ivar cycles: the latencies of these cycles
    :ivar errors: how often a call was answered otherwise, by call and status
    """

    calls: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in CALLS})
    cycles: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Samples") -> None:
        """Take over what another client saw."""
        for name in CALLS:
            self.calls[name] += other.calls[name]
        self.cycles += other.cycles
        self.errors += other.errors


class _Failed(Exception):
    """A call of a cycle was answered with an error."""


class Client:
    """One client with one connection and, once it has made it, one volume."""

    def __init__(self, endpoint: str, headers: dict[str, str], number: int) -> None:
        self._connection = wire.Connection(endpoint, headers)
        self._volume = ""
        server = str(uuid.uuid4())
        self._connector = _json({"attachment": {"connector": connector(number)}})
        self._complete = _json({"os-complete": None})
        self._server = server
        self._reserve = b""

    @property
    def volume(self) -> str:
        """The id of its volume; "" if it has none."""
        return self._volume

    @property
    def opened(self) -> int:
        """How many connections it needed so far."""
        return self._connection.opened

    def create_volume(self, size_gib: int, volume_type: str | None) -> None:
        """Create the volume and wait until it can be attached."""
        wanted: dict[str, Any] = {"size": size_gib, "name": "attach-cycle benchmark"}
        if volume_type is not None:
            wanted["volume_type"] = volume_type
        answer = self._ask("POST", "/volumes", {"volume": wanted})
        self._use(answer["volume"]["id"])
        self._wait_for("available")

    def create_type(self, name: str, specs: dict[str, str]) -> None:
        """Create a volume type with extra specs, or use the one of that name."""
        types = self._ask("GET", "/types")["volume_types"]
        if name not in {known["name"] for known in types}:
            self._ask("POST", "/types", {"volume_type": {"name": name, "extra_specs": specs}})

    def use_volume_of(self, other: "Client") -> None:
        """Attach the volume that another client has created."""
        self._use(other._volume)  # noqa: SLF001  of the same class

    def _use(self, volume_id: str) -> None:
        self._volume = volume_id
        self._reserve = _json(
            {"attachment": {"volume_uuid": volume_id, "instance_uuid": self._server}}
        )

    def delete_volume(self) -> None:
        """Delete the volume, and attachments that a failed cycle has left."""
        if not self._volume:
            return
        volume = self._ask("GET", f"/volumes/{self._volume}")["volume"]
        left = self._ask("GET", f"/attachments?volume_id={self._volume}")["attachments"]
        for attachment in left:
            self._ask("DELETE", f"/attachments/{attachment['id']}")
        self._connection.request("DELETE", f"/volumes/{volume['id']}")
        self._wait_for(None)
        self._connection.close()

    def _wait_for(self, status: str | None) -> None:
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            code, body = self._connection.request("GET", f"/volumes/{self._volume}")
            gone = code == 404  # noqa: PLR2004
            found = None if gone else _parsed(code, body)["volume"]["status"]
            if found == status:
                return
            if found is not None and "error" in found:
                raise Unusable(f"Volume {self._volume} is in status {found}.")
            time.sleep(0.05)
        raise Unusable(f"Volume {self._volume} did not become {status or 'deleted'} in time.")

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        sent = b"" if body is None else _json(body)
        return _parsed(*self._connection.request(method, path, sent))

    def run(self, until: float, stop: threading.Event) -> Samples:
        """Go through cycle after cycle; the last one begins before ``until``, or ``stop``.

        :param until: on the clock of time.perf_counter()
        """
        samples = Samples()
        while time.perf_counter() < until and not stop.is_set():
            try:
                self._cycle(samples)
            except _Failed as failed:
                samples.errors[str(failed)] += 1
                time.sleep(PAUSE_AFTER_ERROR)
            except (OSError, wire.BadAnswer, ValueError, KeyError) as error:
                samples.errors[f"no answer: {error!r}"] += 1
                self._connection.close()
                time.sleep(PAUSE_AFTER_ERROR)
        return samples

    def _cycle(self, samples: Samples) -> None:
        send = self._connection.request
        times = [time.perf_counter()]
        reserved = send("POST", "/attachments", self._reserve)
        times.append(time.perf_counter())
        _check("reserve", reserved, 200)
        attachment = json.loads(reserved.body)["attachment"]["id"]
        path = f"/attachments/{attachment}"
        try:
            _check("connect", send("PUT", path, self._connector), 200)
            times.append(time.perf_counter())
            _check("complete", send("POST", f"{path}/action", self._complete), 204)
            times.append(time.perf_counter())
        except _Failed:
            with contextlib.suppress(OSError):
                send("DELETE", path)
            raise
        _check("detach", send("DELETE", path), 200)
        times.append(time.perf_counter())
        for name, started, ended in zip(CALLS, times, times[1:], strict=False):
            samples.calls[name].append(ended - started)
        samples.cycles.append(times[-1] - times[0])


def _check(call: str, answer: wire.Answer, wanted: int) -> None:
    if answer.status != wanted:
        text = answer.body.decode(errors="replace")
        raise _Failed(f"{call}: {answer.status} {text[:200]}")


def _parsed(status: int, body: bytes) -> dict[str, Any]:
    if status >= 300:  # noqa: PLR2004
        raise Unusable(f"The service answers {status}: {body.decode(errors='replace')[:300]}")
    found: dict[str, Any] = json.loads(body) if body else {}
    return found


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def connector(number: int) -> dict[str, Any]:
    """Return what a compute node with an iSCSI initiator sends, in kind and size."""
    return {
        "platform": "x86_64",
        "os_type": "linux",
        "ip": f"192.0.2.{number % 250 + 1}",
        "host": f"compute-{number}",
        "multipath": False,
        "initiator": f"iqn.1993-08.org.debian:01:{number:012x}",
        "do_local_attach": False,
        "system uuid": str(uuid.UUID(int=number)),
        "nqn": f"nqn.2014-08.org.nvmexpress:uuid:{uuid.UUID(int=number)}",
        "nvme_native_multipath": False,
        "found_dsc": "",
        "host_ips": [f"192.0.2.{number % 250 + 1}"],
        "mountpoint": "/dev/vdb",
    }


def run(clients: Sequence[Client], seconds: float) -> tuple[float, Samples]:
    """Let all clients run at the same time.

    :returns: how many seconds passed from the first cycle's begin to the last one's end, and
        what all clients saw
    """
    start = threading.Barrier(len(clients) + 1)
    stop = threading.Event()
    moment = [0.0]
    found: queue.SimpleQueue[Samples] = queue.SimpleQueue()

    def work(client: Client) -> None:
        start.wait()
        found.put(client.run(moment[0] + seconds, stop))

    for client in clients:
        threading.Thread(target=work, args=(client,), daemon=True).start()
    moment[0] = time.perf_counter()
    start.wait()
    samples = Samples()
    waiting = len(clients)
    try:
        while waiting:
            samples.add(found.get())
            waiting -= 1
    finally:
        # Also after an interruption: no thread may use the clients afterwards.
        stop.set()
        for _ in range(waiting):
            found.get()
    return time.perf_counter() - moment[0], samples
