# SPDX-License-Identifier: Apache-2.0
"""A client's calls, each repeated until its outcome is known, and noted in the history; for
clients.py.

PUT and DELETE are just sent again.  POST is sent again with its Idempotency-Key; where the API
knows none, the client looks before whether its server has an attachment by now.
"""

from collections.abc import Callable, Mapping
import http.client
import json
import threading
import time
from typing import Any, Final, NamedTuple
import urllib.parse

from attachd.tests.soak import phases, volume_model
from attachd.tests.soak.history import History
from attachd.tests.soak.phases import Phase
from attachd.tests.soak.plan import Intention
from attachd.tests.wait import TIMEOUT

VERSION = "volume 3.71"

LOST: Final = 0
"""The status of an answer that never came."""

KEY = "Idempotency-Key"
"""The header; the refusal of a key that is in use names it as well."""

_SECONDS = 60.0
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_UNCLEAR = frozenset({LOST, 409, 500, 502, 503, 504})
_COMPLETABLE = frozenset({Phase.RESERVED, Phase.CONNECTED, Phase.ATTACHED})
_GONE = frozenset({Phase.GONE})

Connector = Mapping[str, Any]


class GaveUp(Exception):
    """A call had no clear answer, or a wrong one."""


class Try(NamedTuple):
    """A request and its answer.

    :ivar status: LOST: nothing
    """

    invoked: float
    answered: float
    status: int
    body: Any


class EndpointDoc(NamedTuple):
    """A call.

    :ivar invoked: when it was sent first
    :ivar last: the try with a clear answer
    :ivar tries: how many there were
    """

    invoked: float
    last: Try
    tries: int


def send(
    url: str, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> Try:
    """Send one request over a connection of its own.

    :param url: http://ADDRESS:PORT/v3
    """
    place = urllib.parse.urlsplit(url)
    sent = {"OpenStack-API-Version": VERSION, "Accept": "application/json", **(headers or {})}
    if body is not None:
        sent["Content-Type"] = "application/json"
    raw = None if body is None else json.dumps(body)
    connection = http.client.HTTPConnection(place.netloc, timeout=_SECONDS)
    invoked = time.monotonic()
    try:
        connection.request(method, f"{place.path}{path}", raw, sent)
        response = connection.getresponse()
        result = response.read()
        return Try(
            invoked, time.monotonic(), response.status, json.loads(result) if result else None
        )
    except (OSError, http.client.HTTPException, ValueError):
        return Try(invoked, time.monotonic(), LOST, None)
    finally:
        connection.close()


class Repeated:
    """Requests that are repeated until there is a clear answer.

    :ivar history: where all of them are counted
    """

    def __init__(self, url: str, history: History) -> None:
        self.history = history
        self._url = url

    def _repeat(
        self,
        verb: str,
        *request: Any,
        clear: frozenset[int] = frozenset(),
    ) -> EndpointDoc:
        """Send a request until there is a clear answer.

        :param request: as of :func:`send`, without the URL
        :param clear: statuses that are a clear answer for this call only
        """
        first: float | None = None
        for tries in self._attempts(" ".join(request[:2])):
            result = self._once(verb, *request)
            first = result.invoked if first is None else first
            if result.status in clear or result.status not in _UNCLEAR:
                return EndpointDoc(first, result, tries)
        raise AssertionError("attempts end by raising")

    def _attempts(self, what: str) -> "_Attempts":
        return _Attempts(lambda: self._give_up(f"no clear answer for {TIMEOUT:.0f} s: {what}"))

    def _once(self, verb: str, *request: Any) -> Try:
        result = send(self._url, *request)
        self.history.count(verb, f"{result.status}" if result.status else "lost")
        return result

    def _expect(self, verb: str, result: Try, *statuses: int) -> None:
        if result.status not in statuses:
            self._give_up(f"{verb} was answered with {result.status}: {result.body}")

    def _give_up(self, sentence: str) -> None:
        self.history.violation(sentence)
        raise GaveUp(sentence)


class Calls(Repeated):
    """The calls of one client for attachments."""

    def __init__(self, url: str, history: History, *, keys: bool) -> None:
        """Prepare.

        :param keys: whether the API knows Idempotency-Key
        """
        super().__init__(url, history)
        self._keys = keys

    def reserve(
        self, volume: str, intention: Intention, connector: Connector | None
    ) -> str | None:
        """Make an attachment, and connect it if there is a connector.

        :returns: its id; None: the volume has another holder
        """
        server, connects = intention.server, connector is not None
        wanted = {"volume_uuid": volume, "instance_uuid": server}
        body = {"attachment": {**wanted, **({"connector": connector} if connector else {})}}
        headers = {KEY: f'"{intention.key}"'} if self._keys else {}
        verb = "create" if connects else "reserve"
        first: float | None = None
        for _ in self._attempts(f"POST of server {server}"):
            result = self._once(verb, "POST", "/attachments", body, headers)
            if first is None:
                first = result.invoked
                if connects or result.status in _UNCLEAR:
                    self.history.note_post(volume, first, server, connects=connects)
            if result.status not in _UNCLEAR:
                return self._posted(volume, server, verb, EndpointDoc(first, result, 1))
            if (not self._keys or result.status != LOST) and (
                attachment := self.list_ids(volume, server)
            ):
                return self._adopt(volume, server, first, attachment)
            if result.status == 409 and KEY not in f"{result.body}":
                self.history.note(volume, first, result.answered, volume_model.Refused(server))
                return None
        raise AssertionError("attempts end by raising")

    def _posted(self, volume: str, server: str, verb: str, result: EndpointDoc) -> str | None:
        last = result.last
        if last.status == 400:
            self.history.note(volume, result.invoked, last.answered, volume_model.Refused(server))
            return None
        self._expect(verb, last, 200)
        made = str(last.body["attachment"]["id"])
        self.history.note_seen(server, made)
        now = Phase.CONNECTED if verb == "create" else Phase.RESERVED
        what = volume_model.Made(server, made, frozenset({now}))
        self.history.note(volume, result.invoked, last.answered, what)
        if verb == "create":
            self.history.note_success(verb, last.invoked, last.answered)
        return made

    def _adopt(self, volume: str, server: str, invoked: float, ids: list[str]) -> str:
        what = volume_model.Made(server, ids[0], phases.PRESENT)
        self.history.note(volume, invoked, time.monotonic(), what)
        for surplus in ids[1:]:
            self.history.count("reserve", "doubled")
            self.delete(volume, surplus)
        return ids[0]

    def list_ids(self, volume: str, server: str) -> list[str]:
        """List the ids of a server's attachments to a volume."""
        return [item["id"] for item in self.listing(volume) if item["instance"] == server]

    def connect(self, volume: str, attachment: str, connector: Connector) -> bool:
        """Connect; return whether it is connected now."""
        body = {"attachment": {"connector": connector}}
        result = self._repeat(
            "connect", "PUT", f"/attachments/{attachment}", body, clear=frozenset({409})
        )
        last = result.last
        sent = volume_model.Sent(attachment, "connect")
        self.history.note(volume, result.invoked, result.invoked, sent)
        if last.status == 409:
            self._note(volume, last, volume_model.NotConnected(attachment))
            return False
        if last.status == 404:
            self._note(volume, last, volume_model.Was(attachment, _GONE))
            return False
        self._expect("connect", last, 200)
        connected = frozenset({Phase.CONNECTED})
        self._note(volume, last, volume_model.Was(attachment, connected))
        self.history.note_success("connect", last.invoked, last.answered)
        return True

    def complete(self, volume: str, attachment: str) -> bool:
        """Complete; return whether it is attached now."""
        path = f"/attachments/{attachment}/action"
        result = self._repeat(
            "complete", "POST", path, {"os-complete": None}, clear=frozenset({409})
        )
        if result.tries > 1:
            sent = volume_model.Sent(attachment, "complete")
            self.history.note(volume, result.invoked, result.invoked, sent)
        others = {404: _GONE, 409: phases.PRESENT - _COMPLETABLE}
        if result.last.status in others:
            was = volume_model.Was(attachment, others[result.last.status])
            self._note(volume, result.last, was)
            return False
        self._expect("complete", result.last, 204)
        self._note(volume, result.last, volume_model.Completed(attachment))
        return True

    def delete(self, volume: str, attachment: str) -> None:
        """Delete, and repeat until it is gone."""
        result = self._repeat("delete", "DELETE", f"/attachments/{attachment}")
        last = result.last
        # A first request that returns 404 has not deleted it.
        if result.tries > 1 or last.status == 200:
            sent = volume_model.Sent(attachment, "delete")
            self.history.note(volume, result.invoked, result.invoked, sent)
        self._note(volume, last, volume_model.Was(attachment, _GONE))
        if last.status != 404:
            self._expect("delete", last, 200)
            self._note_list(volume, last, last.body["attachments"])
            self.history.note_success("delete", last.invoked, last.answered)

    def show(self, volume: str, attachment: str) -> dict[str, Any] | None:
        """Return an attachment; None: it is gone."""
        last = self._repeat("show", "GET", f"/attachments/{attachment}").last
        if last.status == 404:
            self._note(volume, last, volume_model.Was(attachment, _GONE))
            return None
        self._expect("show", last, 200)
        found: dict[str, Any] = last.body["attachment"]
        was = volume_model.Was(attachment, phases.phases_of(found["status"]))
        self._note(volume, last, was)
        return found

    def listing(self, volume: str) -> list[dict[str, Any]]:
        """Return all attachments of a volume."""
        last = self._repeat("list", "GET", f"/attachments?volume_id={volume}").last
        self._expect("list", last, 200)
        found: list[dict[str, Any]] = last.body["attachments"]
        self._note_list(volume, last, found)
        return found

    def check_volume(self, volume: str) -> None:
        """Check status and attachments of a volume."""
        last = self._repeat("check", "GET", f"/volumes/{volume}").last
        self._expect("check", last, 200)
        found = last.body["volume"]
        # The API reads the two one after the other.
        self._note(volume, last, volume_model.HadStatus(found["status"]))
        ids = frozenset(attachment["attachment_id"] for attachment in found["attachments"])
        self._note(volume, last, volume_model.HadAttached(ids))

    def _note(self, volume: str, result: Try, what: Any) -> None:
        self.history.note(volume, result.invoked, result.answered, what)

    def _note_list(self, volume: str, result: Try, found: list[dict[str, Any]]) -> None:
        for item in found:
            self.history.note_seen(item["instance"], item["id"])
        pairs = frozenset((item["id"], item["status"]) for item in found)
        self._note(volume, result, volume_model.Listed(pairs))
        servers = {item["instance"] for item in found}
        if self._keys and len(servers) < len(found):
            self.history.violation(f"attached twice: {found}")


class _Attempts:
    """Counts tries from 1, with growing pauses between them, until a deadline."""

    def __init__(self, give_up: Callable[[], None]) -> None:
        self._give_up = give_up
        self._deadline = time.monotonic() + TIMEOUT
        self._tries = 0

    def __iter__(self) -> "_Attempts":
        return self

    def __next__(self) -> int:
        if self._tries:
            if time.monotonic() > self._deadline:
                self._give_up()
            pause = _FIRST_PAUSE * 2 ** min(self._tries, 10)
            threading.Event().wait(min(pause, _LONGEST_PAUSE))
        self._tries += 1
        return self._tries
