# SPDX-License-Identifier: Apache-2.0
"""A client for HTTP/1.1 that costs next to nothing; used by load.py.

The load generator shares the machine with what it measures.  A general client spends more time
on an answer than the server's database does, so this one reads a status and a body and little
else.
"""

import socket
from typing import NamedTuple
from urllib.parse import urlsplit

_CHUNK = 65536
TIMEOUT = 120.0
"""Seconds of silence after which a server counts as dead."""


class Answer(NamedTuple):
    """A status and a body."""

    status: int
    body: bytes


class BadAnswer(Exception):
    """What came back is no HTTP."""


class Connection:
    """One connection, kept alive for as long as the server likes.

    :ivar opened: how many times it had to be opened
    :ivar retry_after: seconds in the header Retry-After of the last answer; 0.0: it has none
    """

    def __init__(self, endpoint: str, headers: dict[str, str]) -> None:
        """Prepare; nothing is sent.

        :param endpoint: ``http://HOST[:PORT][/PATH]``: PATH is put before that of each request
        """
        parts = urlsplit(endpoint)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{endpoint} is not like http://HOST:PORT/PATH")
        self._address = (parts.hostname, parts.port or 80)
        self._prefix = parts.path.rstrip("/")
        lines = [f"Host: {parts.netloc}", *(f"{key}: {value}" for key, value in headers.items())]
        self._headers = "".join(f"{line}\r\n" for line in lines)
        self._socket: socket.socket | None = None
        self._rest = b""
        self.opened = 0
        self.retry_after = 0.0

    def request(self, method: str, path: str, body: bytes = b"") -> Answer:
        """Send a request and wait for the answer.

        :raises OSError: the server cannot be reached, or hung up
        """
        length = f"Content-Length: {len(body)}\r\n" if body or method == "POST" else ""
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._headers}{length}\r\n"
        message = head.encode() + body
        fresh = self._socket is None
        try:
            return self._exchange(message)
        except ConnectionError:
            self.close()
            if fresh:
                raise
            # A server may close an idle connection at any time, also at this moment.
            return self._exchange(message)

    def close(self) -> None:
        """Hang up; the next request opens the connection again."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._rest = b""

    def _exchange(self, message: bytes) -> Answer:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=TIMEOUT)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.opened += 1
        self._socket.sendall(message)
        head = self._until(b"\r\n\r\n")
        status = int(head[9:12])
        # Only headers are looked at from here on, and their names may have any case.
        lowered = head.lower()
        self.retry_after = _seconds(lowered, b"\r\nretry-after:")
        body = b"" if status in {204, 304} else self._body(lowered)
        if b"\r\nconnection: close" in lowered or head.startswith(b"HTTP/1.0"):
            self.close()
        return Answer(status, body)

    def _body(self, head: bytes) -> bytes:
        if b"\r\ntransfer-encoding: chunked" in head:
            return self._chunks()
        start = head.find(b"\r\ncontent-length:")
        if start >= 0:
            end = head.index(b"\r\n", start + 2)
            return self._take(int(head[start + len(b"\r\ncontent-length:") : end]))
        return self._until_closed()

    def _chunks(self) -> bytes:
        found = []
        while size := int(self._until(b"\r\n").split(b";")[0], 16):
            found.append(self._take(size))
            self._take(2)
        self._until(b"\r\n")
        return b"".join(found)

    def _until_closed(self) -> bytes:
        found = self._rest
        while more := self._receive():
            found += more
        self.close()
        return found

    def _until(self, mark: bytes) -> bytes:
        """Take what comes up to ``mark``, with it."""
        while (end := self._rest.find(mark)) < 0:
            self._rest += self._more()
        end += len(mark)
        found, self._rest = self._rest[:end], self._rest[end:]
        if mark == b"\r\n\r\n" and not found.startswith(b"HTTP/1."):
            raise BadAnswer(repr(found[:80]))
        return found

    def _take(self, size: int) -> bytes:
        while len(self._rest) < size:
            self._rest += self._more()
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    def _more(self) -> bytes:
        received = self._receive()
        if not received:
            raise ConnectionResetError("The server hung up.")
        return received

    def _receive(self) -> bytes:
        assert self._socket is not None
        return self._socket.recv(_CHUNK)


def _seconds(head: bytes, name: bytes) -> float:
    """Return the number in a header; 0.0 if the answer does not have it."""
    _before, found, after = head.partition(name)
    return float(after.split(b"\r\n", 1)[0]) if found else 0.0
