# SPDX-License-Identifier: Apache-2.0
"""Clients that watch attachments while the API restarts, for test_event_watch."""

from collections.abc import Callable
import contextlib
import json
import threading
from typing import Any, Self

import requests

from attachd.tests.wait import TIMEOUT, wait_until

HEADERS = {"OpenStack-API-Version": "volume 3.71, attachd 1.0"}
SILENCE = 60
"""Seconds after which a watcher connects anew: a stream sends something every ten."""
PAUSE = 0.1
"""Seconds between two tries; no result depends on it."""

Url = Callable[[], str]
"""Returns the current URL of the API."""


class Watcher(threading.Thread):
    """Notes every event from a revision on.

    :ivar seen: the events, as they came
    :ivar connected: how many times it has connected
    """

    def __init__(self, url: Url, since: int) -> None:
        super().__init__(daemon=True)
        self.seen: list[dict[str, Any]] = []
        self.connected = 0
        self._url = url
        self._place = since
        self._over = threading.Event()

    def run(self) -> None:
        """Watch until :meth:`end` is called."""
        while not self._over.is_set():
            # It reconnects after refused and broken connections, and after a 5xx.
            with contextlib.suppress(requests.RequestException, Unavailable, json.JSONDecodeError):
                self._watch()
            self._over.wait(PAUSE)

    def wait_for(self, revision: int) -> None:
        """Wait until an event was seen."""
        wait_until(
            lambda: self.seen and self.seen[-1]["revision"] >= revision,
            lambda: f"{len(self.seen)} events were seen, the last one is {self.seen[-1:]}",
        )

    def end(self) -> None:
        """Watch no more."""
        self._over.set()

    def __enter__(self) -> Self:
        """Begin."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self.end()
        self.join(TIMEOUT)

    def _watch(self) -> None:
        raise NotImplementedError

    def _check(self, answer: requests.Response) -> None:
        if answer.status_code in {502, 503, 504}:
            raise Unavailable
        assert answer.status_code == 200, answer.text
        self.connected += 1


class Unavailable(Exception):
    """The API cannot answer now."""


class Poller(Watcher):
    """Asks, waits for an answer, and asks again from where that ended."""

    def _watch(self) -> None:
        with requests.Session() as session:
            while not self._over.is_set():
                query = {"since": self._place, "wait": 5}
                url = f"{self._url()}/v3/events"
                answer = session.get(url, params=query, headers=HEADERS, timeout=SILENCE)
                self._check(answer)
                result = answer.json()
                self.seen += result["events"]
                self._place = result["revision"]


class StreamListener(Watcher):
    """Listens to a stream of server-sent events, according to the HTML standard."""

    def _watch(self) -> None:
        headers = HEADERS | {"Accept": "text/event-stream", "Last-Event-ID": str(self._place)}
        url = f"{self._url()}/v3/events"
        with requests.get(url, headers=headers, timeout=SILENCE, stream=True) as answer:
            self._check(answer)
            place, data = self._place, ""
            for line in answer.iter_lines(chunk_size=1):
                name, _, value = line.decode().partition(": ")
                if name == "id":
                    place = int(value)
                elif name == "data":
                    data += value
                elif not line:
                    # An event ends with a blank line.
                    self.seen += [json.loads(data)] if data else []
                    self._place, data = place, ""
                if self._over.is_set():
                    return


class Attacher(threading.Thread):
    """A client that attaches and detaches a volume of its own, also while services restart.

    :ivar trouble: unexpected responses
    """

    def __init__(self, url: Url, volume_id: str, cycles: int) -> None:
        super().__init__(daemon=True)
        self.trouble: list[str] = []
        self._url = url
        self._volume_id = volume_id
        self._cycles = cycles

    def run(self) -> None:
        """Run all cycles."""
        for number in range(self._cycles):
            try:
                self._cycle(number)
            except Exception as error:  # noqa: BLE001  the test looks at it
                self.trouble.append(f"{type(error).__name__}: {error}")

    def _cycle(self, number: int) -> None:
        key = f"{self._volume_id}-{number}"
        wanted = {"volume_uuid": self._volume_id, "connector": {"host": "h", "initiator": "iqn.h"}}
        answer = self._ask("POST", "", {"attachment": wanted}, key=key)
        path = f"/{answer.json()['attachment']['id']}"
        self._ask("POST", f"{path}/action", {"os-complete": {}}, gone=True)
        self._ask("DELETE", path, gone=True)

    def _ask(
        self, method: str, path: str, body: Any = None, *, gone: bool = False, key: str = ""
    ) -> requests.Response:
        """Repeat a request until it is answered; what was done without an answer may be gone."""
        headers = HEADERS | ({"Idempotency-Key": key} if key else {})

        def answered() -> list[requests.Response]:
            with contextlib.suppress(requests.RequestException):
                url = f"{self._url()}/v3/attachments{path}"
                answer = requests.request(method, url, json=body, headers=headers, timeout=SILENCE)
                if answer.status_code < 300 or (gone and answer.status_code == 404):
                    return [answer]
                if answer.status_code not in {409, 502, 503, 504}:
                    raise AssertionError(f"{method} {path}: {answer.status_code} {answer.text}")
            return []

        (answer,) = wait_until(answered, f"{method} {path} is not answered", interval=PAUSE)
        return answer
