# SPDX-License-Identifier: Apache-2.0
"""Files for guests, which fetch them over HTTP: that costs them less than ssh."""

from collections.abc import Callable
import functools
import http.server
from pathlib import Path
import threading
from typing import Any

from attachd.tests.lab import guests


def start(add_cleanup: Callable[..., Any], folder: Path) -> str:
    """Serve a folder, and return its URL for guests.

    :param add_cleanup: as TestCase.addClassCleanup()
    """
    handler = functools.partial(_Handler, directory=f"{folder}")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    add_cleanup(server.server_close)
    add_cleanup(server.shutdown)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://{guests.MACHINE}:{server.server_port}"


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        """Do not log requests."""
