# SPDX-License-Identifier: Apache-2.0
"""A fake of Compute, for tests of who may delete an attachment.

It is a fake because a Nova cannot run without a hypervisor, a placement service and a message
queue, of which none has a say in the answer.  It is a real HTTP server on a free port, so that
silence, refusals and nonsense reach the client as they would from Nova; and it speaks exactly
two calls, as Nova 34 does: the version document, and "show a detail of a volume attachment" as
of 2.89, with Nova's own errors for a token, a microversion, a server or a volume that it does
not accept or know.
"""

from collections.abc import Callable
from http import server
import json
import re
import threading
from typing import Any
import unittest

from attachd.tests.wait import TIMEOUT

_SHOW = re.compile(r"/v2\.1/servers/([^/]+)/os-volume_attachments/([^/]+)")


class Compute:
    """A running fake.

    :ivar url: its API, with the version: http://127.0.0.1:PORT/v2.1
    :ivar asked: (path, headers) of each request so far
    :ivar accepts: which tokens it accepts; all, unless something is put here
    :ivar holder: (server, volume) -> attachment; what was said to has(), unless something is put
        here
    """

    def __init__(self, test: unittest.TestCase) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.accepts: Callable[[str], bool] = lambda _token: True
        self.holder: Callable[[str, str], str | None] = self._holder
        self._held: dict[tuple[str, str], str] = {}
        self._servers: set[str] = set()
        self._instead: tuple[int, bytes] | None = None
        self._silent = False
        self._over = threading.Event()
        self._server = server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v2.1"
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        test.addCleanup(thread.join)
        test.addCleanup(self.close)

    def close(self) -> None:
        """End it: from now on, connections are refused."""
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def has(self, server_id: str, volume_id: str, attachment_id: str) -> None:
        """Let a server have a volume by an attachment."""
        self._servers.add(server_id)
        self._held[server_id, volume_id] = attachment_id

    def knows(self, server_id: str) -> None:
        """Let there be a server, without a volume."""
        self._servers.add(server_id)

    def be_silent(self) -> None:
        """Accept connections and answer nothing."""
        self._silent = True

    def answer(self, status: int, body: bytes = b"<html/>") -> None:
        """Answer this, whatever is asked."""
        self._instead = (status, body)

    def _holder(self, server_id: str, volume_id: str) -> str | None:
        return self._held.get((server_id, volume_id))

    def _handler(self) -> type[server.BaseHTTPRequestHandler]:
        fake = self

        class Handler(server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                fake.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
                if fake._silent:
                    fake._over.wait(TIMEOUT)
                    return
                status, body = fake._instead or fake._result(*fake.asked[-1])
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    def _result(self, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
        if path == "/v2.1/":
            return _encoded(200, "version", {"id": "v2.1", "version": "2.100"})
        found = _SHOW.fullmatch(path)
        if found is None:
            return 404, b"404 Not Found\n\nThe resource could not be found.\n"
        if not self.accepts(headers.get("x-auth-token", "")):
            return _fault(401, "error", "The request you have made requires authentication.")
        if headers.get("openstack-api-version") != "compute 2.89":
            return _fault(406, "computeFault", "This fake speaks 2.89 only.")
        return self._shown(*found.groups())

    def _shown(self, server_id: str, volume_id: str) -> tuple[int, bytes]:
        held = self.holder(server_id, volume_id)
        if held is None and server_id not in self._servers:
            return _fault(404, "itemNotFound", f"Instance {server_id} could not be found.")
        if held is None:
            return _fault(404, "itemNotFound", f"volume_id not found: {volume_id}")
        return _encoded(
            200,
            "volumeAttachment",
            {
                "serverId": server_id,
                "volumeId": volume_id,
                "attachment_id": held,
                "bdm_uuid": "c088db45-92b9-49e8-81e2-81bc4d2b7c2e",
                "device": "/dev/vdb",
                "tag": None,
                "delete_on_termination": False,
            },
        )


def _fault(status: int, key: str, message: str) -> tuple[int, bytes]:
    return _encoded(status, key, {"code": status, "message": message})


def _encoded(status: int, key: str, content: dict[str, Any]) -> tuple[int, bytes]:
    return status, json.dumps({key: content}).encode()
