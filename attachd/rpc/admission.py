# SPDX-License-Identifier: Apache-2.0
"""What the server for agents accepts, before a thread or the database has work with it.

A host that has been taken over sends any bytes, as fast as it can.  So a message is read only as
far as it has the form that agents send, and each host has a limit of messages a second and of
messages that wait.  A host that exceeds it waits in its own queue of the broker.
"""

import bz2
from collections import Counter
from collections.abc import Mapping
import dataclasses
import inspect
import json
import re
import string
import threading
import time
from typing import Any, Final
import zlib

from oslo_log import log as logging

from attachd.rpc import path_check
from attachd.telemetry import metrics

LOG = logging.getLogger(__name__)

MAX_REPORT_SIZE: Final = 2**18
"""Bytes of a message, before and after decompression."""

MAX_VALUES: Final = 2**15
"""Values in a message.  The largest report has 20,000; so many take up to 7 MB of memory."""

RATE: Final = 25.0
"""How many messages a second one host may send for long, to each manager."""

BURST: Final = 100.0
"""How many it may send at once after a pause."""

SIZE_OF_ONE: Final = 2**13
"""Bytes that count as one more message."""

MAX_WAITING: Final = 16
MAX_WAITING_SIZE: Final = 2**19
"""How many messages of one host, and how many bytes of them, wait for a thread."""

LOG_INTERVAL: Final = 60.0
"""Seconds between two lines about the dropped messages of one host."""

MAX_LOGGED_HOSTS: Final = 1024
"""Of how many hosts drops are counted separately."""

STRANGERS: Final = ""
"""In place of the host of messages from the common queue: any account may have sent them."""

_JSON: Final = "application/json"
_OPEN_STREAM: Final[Mapping[str, Any]] = {
    "application/x-gzip": zlib.decompressobj,
    "application/x-bz2": bz2.BZ2Decompressor,
}
"""The methods of [oslo_messaging_rabbit] kombu_compression."""

_VALUE_MARKS: Final = (b"[", b"{", b",")
"""In the text of a message there is at least one for each two values and keys."""

_ID: Final = re.compile(r"[0-9a-f]{32}")
_VERSION: Final = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}")
_MILLISECONDS: Final = re.compile(r"[0-9]{1,9}")
_REQUEST_ID: Final = re.compile(r"req-[0-9a-f-]{36}")


class Refused(Exception):
    """A message that is dropped.

    :ivar reason: a label of metrics, so one of few
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Budget:
    """How much one host may send: messages a second, and messages that wait.

    :param host: whose messages they are; STRANGERS: of the common queue
    """

    def __init__(self, host: str) -> None:
        self.host = host
        self._lock = threading.Lock()
        self._tokens = BURST
        self._filled_at = time.monotonic()
        self._waiting = 0
        self._waiting_size = 0

    def charge(self, size: int) -> None:
        """Count a received message of so many bytes after decompression."""
        with self._lock:
            self._tokens -= 1 + size / SIZE_OF_ONE

    def add_waiting(self, size: int) -> None:
        """Count a message that waits for a thread, or has one."""
        with self._lock:
            self._waiting += 1
            self._waiting_size += size

    def remove_waiting(self, size: int) -> None:
        """Count the end of a message that was counted by :meth:`add_waiting`."""
        with self._lock:
            self._waiting -= 1
            self._waiting_size -= size

    def may_send(self) -> bool:
        """Return whether the host may send the next message now."""
        with self._lock:
            now = time.monotonic()
            self._tokens = min(BURST, self._tokens + RATE * (now - self._filled_at))
            self._filled_at = now
            return (
                self._tokens >= 1
                and self._waiting < MAX_WAITING
                and self._waiting_size < MAX_WAITING_SIZE
            )


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """A message that has the form of one of an agent.

    :ivar message: method, args and version, as a dispatcher takes them
    :ivar reply_q: where the answer goes; None: a probe
    :ivar timeout: seconds that its sender waits; None: it does not say
    """

    message: dict[str, Any]
    context: dict[str, Any]
    message_id: str | None
    unique_id: str | None
    reply_q: str | None
    timeout: float | None
    size: int


class Reader:
    """Reads messages, and refuses those that no agent sends.

    :param endpoint: whose public methods are the calls
    """

    def __init__(self, endpoint: Any) -> None:
        self._calls = {
            name: {*inspect.signature(method).parameters} - {"_context", "context"}
            for name, method in inspect.getmembers(endpoint, inspect.ismethod)
            if not name.startswith("_")
        }

    def read(self, text: bytes, properties: Mapping[str, Any], host: str) -> Request:
        """Return a request.

        :param text: as of :func:`decompress`
        :param host: whose queue it was in; STRANGERS: the common one
        :raises Refused: no agent sends that
        """
        if len(text) > MAX_REPORT_SIZE or sum(map(text.count, _VALUE_MARKS)) > MAX_VALUES:
            raise Refused("size")
        content = _parse(text)
        method, arguments = content.get("method"), content.get("args")
        if not isinstance(arguments, dict) or not isinstance(method, str):
            raise Refused("form")
        if method == path_check.METHOD:
            probe = {"method": method, "args": arguments}
            return Request(probe, {}, None, None, None, None, len(text))
        if content.get("namespace") is not None or self._calls.get(method) != arguments.keys():
            raise Refused("method")
        caller = arguments["host"]
        if not isinstance(caller, str) or host not in (STRANGERS, caller):
            raise Refused("host")
        version = _match(_VERSION, content.get("version"))
        return Request(
            {"method": method, "args": arguments, "version": version},
            _context(content),
            _match(_ID, content.get("_msg_id")),
            _match(_ID, content.get("_unique_id")),
            _reply_queue(content.get("_reply_q"), caller),
            _timeout(properties.get("expiration")),
            len(text),
        )


REPLY_QUEUES: Final = 16
"""How many names the reply queue of a host may have."""


def reply_queues(host: str) -> list[str]:
    """Return the names that reply queues of a host may have.

    They are few, so that its account can declare no others.  An agent draws one of them at its
    start: the broker may still deliver to a process that was cut off.
    """
    return [f"reply_{host}_{digit}" for digit in string.hexdigits[:REPLY_QUEUES]]


def _reply_queue(name: object, host: str) -> str:
    if name not in reply_queues(host):
        raise Refused("reply")
    return str(name)


def _match(pattern: re.Pattern[str], value: object, reason: str = "form") -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise Refused(reason)
    return value


def _context(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the context of the call: that of an agent, whatever it says of itself."""
    context: dict[str, Any] = {"is_admin": True}
    request_id = content.get("_context_request_id")
    if isinstance(request_id, str) and _REQUEST_ID.fullmatch(request_id):
        context["request_id"] = request_id
    return context


def _timeout(expiration: object) -> float | None:
    """Return the time to live of a message in seconds: oslo.messaging sets its timeout."""
    is_number = isinstance(expiration, str) and _MILLISECONDS.fullmatch(expiration)
    return int(str(expiration)) / 1000 if is_number else None


def parse(body: object, properties: Mapping[str, Any], max_size: int) -> dict[str, Any]:
    """Return the content of a message in an envelope of oslo.messaging.

    :param max_size: bytes of the body, before and after decompression
    :raises Refused: it has none, or too much
    """
    text = decompress(body, properties, max_size)
    if len(text) > max_size:
        raise Refused("size")
    return _parse(text)


def decompress(body: object, properties: Mapping[str, Any], max_size: int) -> bytes:
    """Return the text of a message: if it is too large, the first ``max_size + 1`` bytes.

    :param body: bytes; amqp has a str instead if there is none
    :raises Refused: it has none, or too much before decompression
    """
    headers = properties.get("application_headers")
    name = headers.get("compression") if isinstance(headers, dict) else None
    if properties.get("content_type") != _JSON or not isinstance(body, bytes):
        raise Refused("form")
    if len(body) > max_size:
        raise Refused("size")
    if name is None:
        return body
    if not isinstance(name, str) or name not in _OPEN_STREAM:
        raise Refused("form")
    try:
        text: bytes = _OPEN_STREAM[name]().decompress(body, max_size + 1)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise Refused("form") from error
    return text


def _parse(text: bytes) -> dict[str, Any]:
    """Return the message in an envelope of oslo.messaging."""
    try:
        envelope = json.loads(text)
        message = envelope["oslo.message"] if envelope["oslo.version"] == "2.0" else None
        content = json.loads(message) if isinstance(message, str) else None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Refused("form") from error
    if not isinstance(content, dict):
        raise Refused("form")
    return content


DROP_REASONS: Final = (
    *("form", "size", "method", "host", "reply", "repeated", "expired", "version", "error"),
    "answer",
)
"""Why messages to managers are dropped; labels of metrics."""


class DropLog:
    """Counts dropped messages, and logs one line a minute for each host that sent some."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[str]] = {}
        self._logged_at: dict[str, float] = {}

    def record(self, host: str, reason: str) -> bool:
        """Count a dropped message; log the first one of a minute, and return whether it is.

        :param host: whose queue it was in; STRANGERS: the common one
        :param reason: a label of metrics
        """
        metrics.count(metrics.AGENT_MESSAGES_DROPPED, reason)
        with self._lock:
            if host not in self._logged_at and len(self._logged_at) >= MAX_LOGGED_HOSTS:
                host = STRANGERS
            self._counts.setdefault(host, Counter())[reason] += 1
            return self._log(host)

    def flush(self) -> None:
        """Log the counts of hosts whose last line is a minute old."""
        with self._lock:
            for host in [*self._counts]:
                self._log(host)

    def _log(self, host: str) -> bool:
        now = time.monotonic()
        if now - self._logged_at.get(host, -LOG_INTERVAL) < LOG_INTERVAL:
            return False
        self._logged_at[host] = now
        counts = self._counts.pop(host)
        LOG.warning(
            "%s: %d messages to managers were dropped (%s)",
            f"Host {host}" if host else "Hosts without a queue of their own",
            counts.total(),
            ", ".join(f"{reason}: {count}" for reason, count in sorted(counts.items())),
        )
        return True
