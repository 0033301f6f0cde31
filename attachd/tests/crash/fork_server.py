# SPDX-License-Identifier: Apache-2.0
"""A fork server of managers and APIs, for crash/deployment.py.

``python -m attachd.tests.crash.fork_server CONFIGURATION FOLDER [WITHOUT ...]``

It prints the API's port, then forks for each line that it reads, "manager" or "api".  The port
stays open while no API runs: a client that connects waits for the next one, as under a WSGI
server whose worker has died.
"""

from collections.abc import Callable
import faulthandler
import os
from pathlib import Path
import signal
import socket
import sys
from unittest import mock

from oslo_messaging._drivers import impl_rabbit  # noqa: F401  as pymysql
import pymysql  # noqa: F401  loaded here, not by each child
from waitress import server

from attachd import service
from attachd.api import app
from attachd.manager import backends
from attachd.manager.periodic_tasks import recovery
from attachd.manager.service import ManagerService
from attachd.tests.crash import instrumentation
from attachd.tests.fixtures import crash_points, fork_server

API_THREADS = 64


def without_recovery() -> None:
    """Make managers ignore what other managers have left unfinished."""
    mock.patch.object(recovery, "recover_all", lambda *_: 0).start()
    mock.patch.object(recovery, "recover_stale", lambda *_: 0).start()


SWITCHES: dict[str, Callable[[], None]] = {"recovery": without_recovery}
"""Parts of the service that can be left out, to show that the tests fail without them."""


def main() -> None:
    """Load manager and API, then fork for each line."""
    configuration, folder, *left_out = sys.argv[1:]
    service.prepare([f"--config-file={configuration}"])
    instrumentation.install()
    for name in left_out:
        SWITCHES[name]()
    backends.load()
    application = instrumentation.Application(app.make_app())
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()

    def run(role: str) -> int:
        faulthandler.register(signal.SIGUSR1)  # writes the stack of each thread to the log
        crash_points.follow(Path(folder), role)
        if role == "manager":
            _run_manager()
        _run_api(application, listener)
        return 1

    fork_server.serve(lambda role: crash_points.service_log(Path(folder), role, os.getpid()), run)


def _run_manager() -> None:
    ManagerService().start()
    while True:
        signal.pause()


def _run_api(application: instrumentation.Application, listener: socket.socket) -> None:
    server.create_server(
        application,
        sockets=[listener.dup()],
        threads=API_THREADS,
        clear_untrusted_proxy_headers=True,
        ident=None,
    ).run()


if __name__ == "__main__":
    main()
