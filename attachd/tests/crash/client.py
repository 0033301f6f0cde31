# SPDX-License-Identifier: Apache-2.0
"""An HTTP client of an API that may be killed while it handles a request."""

import contextlib
import http.client
import socket
import threading

from attachd.tests.fixtures import http_client
from attachd.tests.fixtures.http_client import Request, Response
from attachd.tests.wait import TIMEOUT

NO_RESPONSE = 0
"""The status of a response that never came."""


class Client(http_client.Client):
    """A client that returns NO_RESPONSE where a connection breaks."""

    def send(self, connection: http.client.HTTPConnection, request: Request) -> Response:
        """Send a request and return the response, or that there is none."""
        try:
            return super().send(connection, request)
        except (OSError, http.client.HTTPException):
            return Response(NO_RESPONSE)

    def start(self, request: Request) -> "PendingRequest":
        """Send a request without waiting for the response."""
        return PendingRequest(self, request)


class PendingRequest:
    """A request in progress, in its own thread."""

    def __init__(self, client: Client, request: Request) -> None:
        self.response: Response | None = None
        self._connection = client.connect()
        self._thread = threading.Thread(target=self._run, args=(client, request), daemon=True)
        self._thread.start()

    def _run(self, client: Client, request: Request) -> None:
        self.response = client.send(self._connection, request)

    @property
    def is_over(self) -> bool:
        """Whether there is a response, or the connection is broken."""
        return self.response is not None

    def wait(self) -> Response:
        """Wait for the response."""
        self._thread.join()
        assert self.response is not None
        return self.response

    def abort(self) -> Response:
        """Close the connection, and return the response that arrived before."""
        if (channel := self._connection.sock) is not None and not self.is_over:
            with contextlib.suppress(OSError):  # It may be closed already.
                channel.shutdown(socket.SHUT_RDWR)
        self._thread.join(TIMEOUT)
        assert self.response is not None
        return self.response
