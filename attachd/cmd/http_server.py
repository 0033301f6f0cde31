# SPDX-License-Identifier: Apache-2.0
"""HTTP server within a process, with graceful shutdown; for attachd-all-in-one."""

from collections.abc import Callable, Iterable
import socket
import time
from typing import Any

from waitress import server, wasyncore

from attachd import service
from attachd.rpc import bulkheads

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

THREADS = 512
CONNECTIONS = 2000
LARGEST_BODY = 64 * 1024 * 1024
"""Bytes.  The API has a smaller limit of its own, with a message."""
IDLE_TIMEOUT = 120
"""Seconds after which an idle connection is closed."""
SHUTDOWN_TIMEOUT = 65.0
"""Seconds that requests in progress have to finish: more than a manager may take."""

# Its type is that of one of two classes, without most of what they have.
_create_server: Callable[..., Any] = server.create_server


class Server:
    """Serves a WSGI application until it is stopped."""

    def __init__(self, application: Application, host: str, port: int) -> None:
        """Listen; connections wait until :meth:`run`.

        :param port: 0 for any free one
        :raises OSError: the address is in use, or not of this machine
        """
        bulkheads.set_threads(THREADS)
        self._stopping = False
        self._sockets: dict[int, Any] = {}
        self._server = _create_server(
            application,
            map=self._sockets,
            sockets=[_listen(host, port)],
            threads=THREADS,
            connection_limit=CONNECTIONS,
            channel_timeout=IDLE_TIMEOUT,
            max_request_body_size=LARGEST_BODY,
            asyncore_use_poll=True,
            clear_untrusted_proxy_headers=True,
            ident=None,
        )
        self.port = int(self._server.effective_port)

    def stop(self) -> None:
        """Make :meth:`run` finish requests in progress and return; signal handlers may call it."""
        if not self._stopping:
            self._stopping = True
            self._server.pull_trigger()

    def run(self) -> None:
        """Serve; returns after :meth:`stop`, when all requests are answered."""
        service.tune_garbage_collection()
        while not self._stopping:
            self._turn(timeout=1.0)
        self._server.accepting = False
        wasyncore.dispatcher.close(self._server)
        deadline = time.monotonic() + SHUTDOWN_TIMEOUT
        while self._busy() and time.monotonic() < deadline:
            self._turn(timeout=0.05)
        self._server.task_dispatcher.shutdown(timeout=0.5)
        wasyncore.close_all(self._sockets)

    def _turn(self, timeout: float) -> None:
        wasyncore.loop(timeout=timeout, use_poll=True, map=self._sockets, count=1)

    def _busy(self) -> bool:
        """Close idle connections, and return whether others are left."""
        channels = list(self._server.active_channels.values())
        for channel in channels:
            if not channel.requests:
                channel.close_when_flushed = True
        return bool(channels)


def _listen(host: str, port: int) -> socket.socket:
    """Open a socket at the first address of ``host``."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _type, _protocol, _name, address = found[0]
    return socket.create_server((str(address[0]), port), family=family)
