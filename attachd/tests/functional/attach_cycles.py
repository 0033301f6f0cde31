# SPDX-License-Identifier: Apache-2.0
"""Attach cycles of many hosts on one multiattach volume, for test_multiattach_races.

Each cycle is what Nova does: reserve, connect, complete, show, delete.  A response that a single
client would not get is an error.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
import contextlib
import itertools
import random
import statistics
import threading
import time
from typing import Any, Self
import uuid

from attachd.tests.fixtures import http_client, initiators
from attachd.tests.wait import wait_until

LONGEST_PAUSE = 0.1
"""Seconds."""

BETWEEN_LOOKS = 0.01
"""Seconds."""

VERBS = ("reserve", "connect", "complete", "show", "delete", "log in", "log in once more")


class Durations:
    """How long each call took, by verb; for many threads."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = {verb: [] for verb in VERBS}
        self._started_at = time.monotonic()

    @contextlib.contextmanager
    def measure(self, verb: str) -> Iterator[None]:
        """Note how long something takes, if it succeeds."""
        started_at = time.monotonic()
        yield
        self._seconds[verb].append(time.monotonic() - started_at)

    def figures(self, cycles: int) -> str:
        """Return some lines about the durations."""
        seconds = time.monotonic() - self._started_at
        lines = [f"{cycles} cycles in {seconds:.1f} s: {cycles / seconds:.1f} each second"]
        for verb, every in self._seconds.items():
            if every:
                cuts = statistics.quantiles([*every, every[0]], n=20, method="inclusive")
                named = f"p50 {cuts[9]:.3f} s, p95 {cuts[18]:.3f} s, longest {max(every):.3f} s"
                lines.append(f"{verb:>8}: {len(every)} times, {named}")
        return "\n".join(lines)


class Worker:
    """A host, and a server on it.

    :ivar trouble: unexpected responses
    """

    def __init__(
        self, api: http_client.Client, volume_id: str, host: initiators.IscsiHost, clock: Durations
    ) -> None:
        self.trouble: list[str] = []
        self._api = api
        self._volume = volume_id
        self._host = host
        self._clock = clock
        self._server = str(uuid.uuid4())
        self._chance = random.Random(f"{host.connector['host']}")

    def cycle(self, *, log_in: bool) -> None:
        """Attach, look at it, and detach; remember what went wrong."""
        try:
            attachment = self._attach(log_in=log_in)
            self._pause()
            self._detach(attachment)
        except Exception as error:  # noqa: BLE001  the test looks at it
            self.trouble.append(f"{type(error).__name__}: {error}")

    def _pause(self) -> None:
        # Spreads the calls of several hosts; no result depends on it.
        time.sleep(self._chance.uniform(0, LONGEST_PAUSE))

    def _ask(self, verb: str, expected: int, *request: Any) -> Any:
        with self._clock.measure(verb):
            answer = self._api.request(*request)
        assert answer.status == expected, (verb, request, answer)
        return answer.body

    def _attach(self, *, log_in: bool) -> str:
        wanted = {"attachment": {"volume_uuid": self._volume, "instance_uuid": self._server}}
        made = self._ask("reserve", 200, "POST", "/attachments", wanted)["attachment"]
        assert made["status"] == "reserved", made
        attachment = str(made["id"])
        self._pause()
        body = {"attachment": {"connector": self._host.connector}}
        path = f"/attachments/{attachment}"
        result = self._ask("connect", 200, "PUT", path, body)["attachment"]["connection_info"]
        self._pause()
        self._ask("complete", 204, "POST", f"{path}/action", {"os-complete": None})
        self._pause()
        seen = self._ask("show", 200, "GET", path)["attachment"]
        self._check(attachment, seen, result)
        if log_in:
            self._log_in({"driver_volume_type": result["driver_volume_type"], "data": result})
        return attachment

    def _log_in(self, info: dict[str, Any]) -> None:
        """Log in with the attachment's own secret, and read; open-iscsi goes on trying as well.

        While another host's account goes, tgtd may not know ours for a moment: see
        Tgtd.unbind_account().  Where many go one after the other, that can happen again.
        """
        verbs = itertools.chain(["log in"], itertools.repeat("log in once more"))

        def logged_in() -> bool:
            try:
                with self._clock.measure(next(verbs)):
                    self._host.read(info, 0, 512)
            except initiators.Refused as refused:
                assert "Authentication failure" in f"{refused}", refused
                return False
            return True

        wait_until(logged_in)

    def _check(self, attachment_id: str, seen: dict[str, Any], result: dict[str, Any]) -> None:
        assert (seen["status"], seen["attach_mode"]) == ("attached", "rw"), seen
        assert (seen["volume_id"], seen["instance"]) == (self._volume, self._server), seen
        assert seen["connection_info"] == result, (seen, result)
        named = (result["attachment_id"], result["access_mode"])
        assert named == (attachment_id, "rw"), result

    def _detach(self, attachment_id: str) -> None:
        left = self._ask("delete", 200, "DELETE", f"/attachments/{attachment_id}")["attachments"]
        assert attachment_id not in {item["id"] for item in left}, left
        gone = self._api.request("GET", f"/attachments/{attachment_id}")
        assert gone.status == 404, gone


def run(workers: Sequence[Worker], cycles: int, logins: int) -> list[str]:
    """Let all workers go through so many cycles together.

    :param logins: in how many cycles the host logs in as well
    :returns: errors; after the first one no cycle begins
    """
    work = iter(range(cycles))
    mutex = threading.Lock()
    every = max(cycles // logins, 1)
    accident = threading.Event()

    def go(worker: Worker) -> None:
        while not accident.is_set():
            with mutex:
                number = next(work, None)
            if number is None:
                return
            worker.cycle(log_in=number % every == 0)
            if worker.trouble:
                accident.set()

    with futures.ThreadPoolExecutor(len(workers)) as pool:
        list(pool.map(go, workers))
    return list(itertools.chain.from_iterable(item.trouble for item in workers))


class Monitor:
    """Looks at something again and again, in a thread of its own, until it is left.

    :ivar trouble: what was wrong
    :ivar count: how many times it looked
    """

    def __init__(self, read_state: Callable[[], Iterable[str]]) -> None:
        self.trouble: list[str] = []
        self.count = 0
        self._read_state = read_state
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.wait(BETWEEN_LOOKS):
                self.trouble += self._read_state()
                self.count += 1
        except Exception as error:  # noqa: BLE001  the test looks at it
            self.trouble.append(f"{type(error).__name__}: {error}")
