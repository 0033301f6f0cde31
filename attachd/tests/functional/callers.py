# SPDX-License-Identifier: Apache-2.0
"""Plain HTTP to a served API, one request or many at the same moment; for functional tests."""

from collections.abc import Callable, Sequence
import functools
import http.client
import json
from typing import Any, NamedTuple
import urllib.parse

from attachd.tests import databases, wait

VERSION = "volume 3.71"


class Request(NamedTuple):
    """What to ask; ``path`` begins behind the API's URL, which ends in /v3."""

    method: str
    path: str
    body: Any = None


class Answer(NamedTuple):
    """What came back; ``body`` is read as JSON, None if there is none."""

    status: int
    body: Any

    @property
    def message(self) -> str:
        """The message of an error, whatever its key; "" where it is none."""
        faults = self.body.values() if isinstance(self.body, dict) else ()
        return next((each["message"] for each in faults if "message" in each), "")


class Caller:
    """A client of one API.

    :ivar url: http://ADDRESS:PORT/v3
    """

    def __init__(self, url: str, version: str = VERSION, timeout: float = wait.TIMEOUT) -> None:
        """Begin to ask.

        :param version: the microversions that are asked for
        :param timeout: seconds that an answer may take
        """
        self.url = url
        self._version = version
        self._timeout = timeout

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """Send one request over a connection of its own."""
        place = urllib.parse.urlsplit(self.url)
        connection = http.client.HTTPConnection(place.netloc, timeout=self._timeout)
        headers = {"OpenStack-API-Version": self._version, "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        sent = None if body is None else json.dumps(body)
        try:
            connection.request(method, f"{place.path}{path}", sent, headers)
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        return Answer(response.status, json.loads(raw) if raw else None)

    def get(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request that has to succeed, and return the body of its answer."""
        answer = self.ask(method, path, body)
        assert answer.status < http.client.BAD_REQUEST, (method, path, answer)
        return answer.body

    def ask_at_once(self, requests: Sequence[Request]) -> list[Answer]:
        """Send all requests at the same moment, each from a thread of its own.

        :returns: the answers, in the order of the requests
        :raises Exception: one of them got none
        """
        calls = [functools.partial(self.ask, *each) for each in requests]
        answers = databases.together(*calls)
        for each in answers:
            if isinstance(each, Exception):
                raise each
        return answers

    def new_volume(self, size: int = 1, **values: Any) -> str:
        """Make a volume and return its id once it is available."""
        volume = self.get("POST", "/volumes", {"volume": {"size": size, **values}})["volume"]
        self.wait_for(volume["id"], "available")
        return str(volume["id"])

    def volume(self, volume_id: str) -> Any:
        """Return a volume."""
        return self.get("GET", f"/volumes/{volume_id}")["volume"]

    def wait_for(self, volume_id: str, status: str) -> None:
        """Wait until a volume has a status; "gone" is that of one that is not there."""
        _wait(status, lambda: self._status(volume_id))

    def wait_for_size(self, volume_id: str, size: int) -> None:
        """Wait until a volume has a size, in GiB."""
        _wait(size, lambda: self.volume(volume_id)["size"])

    def _status(self, volume_id: str) -> str:
        answer = self.ask("GET", f"/volumes/{volume_id}")
        if answer.status == http.client.NOT_FOUND:
            return "gone"
        return str(answer.body["volume"]["status"])


def _wait(wanted: object, look: Callable[[], object]) -> None:
    wait.wait_until(lambda: look() == wanted, lambda: f"it is {look()}, not {wanted}")
