# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that fails as networks and servers do, for tests of what happens then.

``proxy, url = tcpproxy.before(self, url)`` puts one in front of a server, which itself goes on
undisturbed::

    proxy.refuse()  # as if the server were not running
    proxy.freeze()  # accepts, and says nothing more
    proxy.cut()  # resets the connections that there are
    proxy.drop_responses(0.3)  # resets some instead of handing on what the server answers
    proxy.pass_on()  # as if nothing had happened; what was frozen goes on

Each of them takes the place of the one before.  It listens on one port all its life.
"""

import contextlib
import random
import socket
import struct
import threading
import unittest
import urllib.parse

from attachd.tests.wait import TIMEOUT

_CHUNK = 65536
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: forget what was not sent yet, and tell the other side by a reset."""


class Proxy:
    """Hands bytes on between clients and one server.

    :ivar port: where it listens, on 127.0.0.1
    :ivar connected: how many connections there have been
    :ivar dropped: how many answers it has not handed on
    """

    def __init__(self, test: unittest.TestCase, host: str, port: int, seed: int = 0) -> None:
        """Begin to listen.

        :param host: of the server, as ``port`` is
        :param seed: of what drop_responses() draws
        """
        self._server = (host, port)
        # The port stays ours while nobody listens on it: this socket is bound and no more.
        self._keeper = _bound(0)
        self.port = int(self._keeper.getsockname()[1])
        self._lock = threading.Lock()
        self._draw = random.Random(seed)
        self._probability = 0.0
        self._moving = threading.Event()
        self._links: set[_Link] = set()
        self._listener: socket.socket | None = None
        self.connected = 0
        self.dropped = 0
        test.addCleanup(self.close)
        self.pass_on()

    def url(self, server_url: str) -> str:
        """Return a URL of the server as one that leads through here; all else in it stays."""
        parts = urllib.parse.urlsplit(server_url)
        user, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}").geturl()

    @property
    def open(self) -> int:
        """How many connections there are now."""
        with self._lock:
            return len(self._links)

    def pass_on(self) -> None:
        """Hand everything on."""
        self._probability = 0.0
        self._moving.set()
        self._listen()

    def freeze(self) -> None:
        """Accept connections, and let nothing through, of those that there are neither."""
        self._probability = 0.0
        self._moving.clear()
        self._listen()

    def refuse(self) -> None:
        """Reset what there is, and refuse new connections."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # which wakes who accepts
            listener.close()
        self.cut()

    def cut(self) -> None:
        """Reset the connections that there are; new ones fare as before."""
        with self._lock:
            links = list(self._links)
        for each in links:
            each.reset()

    def drop_responses(self, probability: float) -> None:
        """Reset a connection, by chance, when the server begins to answer on it.

        The server has done then what it was asked.  What is drawn for is each answer, not each
        piece of one.
        """
        self._moving.set()
        self._probability = probability
        self._listen()

    def close(self) -> None:
        """End it."""
        self.refuse()
        self._moving.set()
        self._keeper.close()

    def _listen(self) -> None:
        with self._lock:
            if self._listener is not None:
                return
            self._listener = listener = _bound(self.port)
            listener.listen(512)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._server, timeout=TIMEOUT)
        except OSError:
            _reset(client)
            return
        server.settimeout(None)
        link = _Link(self, client, server)
        with self._lock:
            self.connected += 1
            self._links.add(link)
            refused = self._listener is None
        if refused:  # meanwhile
            link.reset()
        link.start()

    def _wait(self) -> None:
        self._moving.wait()

    def _drops(self) -> bool:
        """Draw for one answer."""
        with self._lock:
            drops = self._probability > 0 and self._draw.random() < self._probability
            self.dropped += drops
            return drops

    def _forget(self, link: "_Link") -> None:
        with self._lock:
            self._links.discard(link)


class _Link:
    """One connection of a client and the one to the server that belongs to it."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._asked = False
        self._ends = 0
        self._lock = threading.Lock()
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        """Begin to hand on, in both directions."""
        for ways in ((self._client, self._server), (self._server, self._client)):
            threading.Thread(target=self._pump, args=ways, daemon=True).start()

    def reset(self) -> None:
        """Reset both sides; its threads notice."""
        for each in (self._client, self._server):
            _reset(each)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            self._hand_on(source, sink)
        except OSError:
            self.reset()  # One side is gone at once: the other one has to hear of it.
        with self._lock:
            self._ends += 1
            over = self._ends == 2
        if over:
            self._proxy._forget(self)
            self._client.close()
            self._server.close()

    def _hand_on(self, source: socket.socket, sink: socket.socket) -> None:
        while chunk := source.recv(_CHUNK):
            self._proxy._wait()
            if source is self._client:
                self._asked = True
            elif self._asked:
                self._asked = False
                if self._proxy._drops():
                    self.reset()
            sink.sendall(chunk)
        self._proxy._wait()
        sink.shutdown(socket.SHUT_WR)


def _bound(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        made.setsockopt(socket.SOL_SOCKET, option, 1)
    made.bind(("127.0.0.1", port))
    return made


def _reset(connection: socket.socket) -> None:
    # shutdown() wakes the thread that reads; close() alone would leave it waiting, and a
    # connection that is shut down already can no longer be reset by it.
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.shutdown(socket.SHUT_RD)
    with contextlib.suppress(OSError):
        connection.close()


def before(test: unittest.TestCase, server_url: str, seed: int = 0) -> tuple[Proxy, str]:
    """Put a proxy before a server.

    :param server_url: with a port
    :returns: the proxy, and the URL that leads through it
    """
    parts = urllib.parse.urlsplit(server_url)
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = Proxy(test, parts.hostname, parts.port, seed)
    return proxy, proxy.url(server_url)
