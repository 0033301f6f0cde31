# SPDX-License-Identifier: Apache-2.0
"""HTTP on a unix socket, as Docker calls its plugins: each call is a POST of JSON to its name."""

from collections.abc import Callable, Mapping
import http
from http import server
import json
import logging
import select
import socket
import socketserver
import sys
import threading
import time
from typing import Any, Final, NamedTuple, Protocol

from attachd.linux import unix_sockets

LOG = logging.getLogger(__name__)

MAX_REQUEST: Final = 64 * 1024
"""Bytes of the body of a request."""
REQUEST_TIMEOUT: Final = 10.0
"""Seconds that a caller may take to send its request, and to read each part of the response."""
MAX_CONNECTIONS: Final = 256
"""Callers that are served, wait for that, or send their requests; more of them wait."""
GRACE: Final = 20.0
"""Seconds that calls in progress get at the end."""
_POLL_INTERVAL: Final = 0.2
_CONTENT_TYPE: Final = "application/vnd.docker.plugins.v1.1+json"


class Caller(NamedTuple):
    """The other end of a connection.

    :ivar process: 0 if it is in another PID namespace
    :ivar is_waiting: returns whether it still waits for the response
    """

    process: int
    is_waiting: Callable[[], bool]


class Calls(Protocol):
    """Serves calls, in any number of threads."""

    def serve(self, call_name: str, fields: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Return the response of a call, or its error as ``Err``."""


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Serves some calls until it is stopped; each caller has a thread.

    :param listener: the socket
    :param workers: number of calls that are served at the same time; more of them wait
    :ivar free: workers; a caller that sends its request has none yet
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, plugin: Calls, workers: int) -> None:
        super().__init__("", _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.plugin = plugin
        self.free = threading.BoundedSemaphore(workers)
        self._workers = workers
        self._connections = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._is_stopped = threading.Event()

    def start(self) -> None:
        """Accept callers."""
        threading.Thread(
            target=self.serve_forever, args=(_POLL_INTERVAL,), name="docker-socket", daemon=True
        ).start()

    def stop(self) -> None:
        """Accept no more callers, and wait for the calls in progress."""
        self._is_stopped.set()
        self.shutdown()
        deadline = time.monotonic() + GRACE
        for _ in range(self._workers):
            if not self.free.acquire(timeout=max(deadline - time.monotonic(), 0.0)):
                LOG.warning("Calls in progress are given up; attachd goes on with their work")
                break
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a caller when there is a free thread."""
        while not self._connections.acquire(timeout=_POLL_INTERVAL):
            if self._is_stopped.is_set():
                self.shutdown_request(request)
                return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._connections.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a caller in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  inherited
        """Log an error of a connection; a caller may leave without the response."""
        LOG.debug("A caller has left: %r", sys.exception())


class _Handler(server.BaseHTTPRequestHandler):
    """One connection with one call."""

    server: Server
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        """Bound the time of the request as a whole."""
        super().setup()
        self.rfile.close()
        self.rfile = unix_sockets.open_request(self.connection, REQUEST_TIMEOUT)

    def do_POST(self) -> None:
        """Answer a call."""
        length = self.headers.get("Content-Length") or "0"
        if not length.isdecimal() or int(length) > MAX_REQUEST:
            reason = f"A request has at most {MAX_REQUEST} bytes, and their number."
            self._answer({"Err": reason}, http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        fields = _parse(self.rfile.read(int(length)))
        if fields is None:
            reason = "The request is not an object of JSON."
            self._answer({"Err": reason}, http.HTTPStatus.BAD_REQUEST)
            return
        caller = Caller(unix_sockets.get_peer(self.connection).pid, self._is_open)
        with self.server.free:
            answer = self.server.plugin.serve(self.path.removeprefix("/"), fields, caller)
            # Podman sees an error by the status alone.
            failed = http.HTTPStatus.INTERNAL_SERVER_ERROR
            self._answer(answer, failed if answer.get("Err") else http.HTTPStatus.OK)

    def _is_open(self) -> bool:
        poll = select.poll()
        poll.register(self.connection, select.POLLRDHUP)
        return not poll.poll(0)

    def _answer(self, answer: Mapping[str, Any], status: http.HTTPStatus) -> None:
        self.connection.settimeout(REQUEST_TIMEOUT)
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", _CONTENT_TYPE)
        self.send_header("Content-Length", f"{len(body)}")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  inherited
        """Log a line of the library."""
        LOG.debug(format, *args)


def _parse(body: bytes) -> dict[str, Any] | None:
    """Return the fields of a request; None: it is malformed.  Without a body it has no fields."""
    try:
        fields = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
