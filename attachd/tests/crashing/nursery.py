# SPDX-License-Identifier: Apache-2.0
"""A process that has loaded everything and forks: managers and APIs start in no time; for site.py.

``python -m attachd.tests.crashing.nursery CONFIGURATION FOLDER [WITHOUT ...]``

It prints the API's port, then, for each line that it reads, "manager" or "api", the process id of
a new one.  The port stays open while there is no API: whoever connects waits for the next one, as
under a WSGI server whose worker has died.  All of it ends with its standard input.
"""

from collections.abc import Callable
import ctypes
import faulthandler
import gc
import os
from pathlib import Path
import signal
import socket
import sys
import traceback
from typing import NoReturn
from unittest import mock

from oslo_messaging._drivers import impl_rabbit  # noqa: F401  as that
import pymysql  # noqa: F401  loaded here, not by each child
import waitress

from attachd import service
from attachd.api import app
from attachd.manager import backends
from attachd.manager.ha import recovery
from attachd.manager.service import ManagerService
from attachd.tests.crashing import boundaries, points

API_THREADS = 64
_PR_SET_PDEATHSIG = 1


def without_recovery() -> None:
    """Have managers do nothing about what others have left."""
    mock.patch.object(recovery, "recover_all", lambda *_: 0).start()
    mock.patch.object(recovery, "recover_stale", lambda *_: 0).start()


SWITCHES: dict[str, Callable[[], None]] = {"recovery": without_recovery}
"""What the service can be made to do without, to see that the suite notices."""


def main() -> int:
    """Load everything, then fork for each line."""
    configuration, folder, *lacking = sys.argv[1:]
    service.prepare([f"--config-file={configuration}"])
    boundaries.install()
    for each in lacking:
        SWITCHES[each]()
    backends.load()
    application = boundaries.Application(app.make_app())
    door = socket.create_server(("127.0.0.1", 0), backlog=128)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Children share what is here, as long as nobody looks through it for garbage.
    gc.collect()
    gc.freeze()
    _say(door.getsockname()[1])
    roles: dict[str, Callable[[], None]] = {
        "manager": _manage,
        "api": lambda: _serve(application, door),
    }
    for line in sys.stdin:
        assert not boundaries.threads(), boundaries.threads()
        role = line.strip()
        if (pid := os.fork()) == 0:
            _live(roles[role], Path(folder), role)
        _say(pid)
    return 0


def _say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def _live(work: Callable[[], None], folder: Path, role: str) -> NoReturn:
    """Be a child, until it is killed."""
    try:
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY
        log = os.open(folder / f"log.{role}.{os.getpid()}", flags, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        faulthandler.register(signal.SIGUSR1)  # tells in the log what each thread is at
        points.follow(folder, role)
        work()
    except BaseException:  # noqa: BLE001  a child must never return into its parent's code
        traceback.print_exc()
    os._exit(1)


def _manage() -> None:
    ManagerService().start()
    while True:
        signal.pause()


def _serve(application: boundaries.Application, door: socket.socket) -> None:
    waitress.create_server(
        application,
        sockets=[door.dup()],
        threads=API_THREADS,
        clear_untrusted_proxy_headers=True,
        ident=None,
    ).run()


if __name__ == "__main__":
    sys.exit(main())
