# SPDX-License-Identifier: Apache-2.0
"""A client whose server may die under it: no answer is an answer as well; for site.py."""

from collections.abc import Mapping
import contextlib
import http.client
import json
import socket
import threading
from typing import Any, NamedTuple
import urllib.parse

from attachd.tests.wait import TIMEOUT

VERSION = "volume 3.71"
NOTHING = 0
"""The status of an answer that never came."""


class Answer(NamedTuple):
    """What came back; ``body`` is read as JSON, None if there is none."""

    status: int
    body: Any = None


class Request(NamedTuple):
    """What to ask; ``path`` begins behind the API's URL, which ends in /v3."""

    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = {}


class Attempt:
    """A request under way, from a thread of its own."""

    def __init__(self, client: "Client", request: Request) -> None:
        self.answer: Answer | None = None
        self._connection = client.connect()
        self._thread = threading.Thread(target=self._run, args=(client, request), daemon=True)
        self._thread.start()

    def _run(self, client: "Client", request: Request) -> None:
        self.answer = client.send(self._connection, request)

    @property
    def is_over(self) -> bool:
        """Whether there is an answer, or there will never be one."""
        return self.answer is not None

    def wait(self) -> Answer:
        """Wait for the answer."""
        self._thread.join()
        assert self.answer is not None
        return self.answer

    def give_up(self) -> Answer:
        """Hang up, and return what has come until then."""
        if (channel := self._connection.sock) is not None and not self.is_over:
            with contextlib.suppress(OSError):  # It may have hung up before.
                channel.shutdown(socket.SHUT_RDWR)
        self._thread.join(TIMEOUT)
        assert self.answer is not None
        return self.answer


class Client:
    """A client of one API.

    :ivar url: http://ADDRESS:PORT/v3
    """

    def __init__(self, url: str) -> None:
        self._place = urllib.parse.urlsplit(url)

    def connect(self) -> http.client.HTTPConnection:
        """Open a connection, which is used for one request."""
        return http.client.HTTPConnection(self._place.netloc, timeout=TIMEOUT)

    def send(self, connection: http.client.HTTPConnection, request: Request) -> Answer:
        """Send a request and return its answer, or that there is none."""
        headers = {"OpenStack-API-Version": VERSION, "Accept": "application/json"}
        sent = None
        if request.body is not None:
            headers["Content-Type"] = "application/json"
            sent = json.dumps(request.body)
        try:
            connection.request(
                request.method,
                f"{self._place.path}{request.path}",
                sent,
                {**headers, **request.headers},
            )
            response = connection.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException):
            return Answer(NOTHING)
        finally:
            connection.close()
        return Answer(response.status, json.loads(raw) if raw else None)

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send one request over a connection of its own."""
        return self.send(self.connect(), Request(method, path, body, headers or {}))

    def get(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request that has to succeed, and return the body of its answer."""
        answer = self.ask(method, path, body)
        assert 0 < answer.status < http.client.BAD_REQUEST, (method, path, answer)
        return answer.body

    def begin(self, request: Request) -> Attempt:
        """Send a request and do not wait for its answer."""
        return Attempt(self, request)
