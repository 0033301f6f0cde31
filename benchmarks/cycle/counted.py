# SPDX-License-Identifier: Apache-2.0
"""Run one of attachd's commands and report, on a Unix socket, what it has done so far.

For processes whose database and message queue are inside them, where no other process can count:
``python counted.py [--functions] SOCKET MODULE [ARGUMENT...]``.  Started by started.py.
"""

import collections
import cProfile
import importlib
import json
import socket
import sys
import threading
from typing import Any

_sent: collections.Counter[str] = collections.Counter()

_profiles: list[tuple[str, cProfile.Profile]] = []
"""The profilers of threads, each with the name of the thread."""
_WORKERS = {"waitress": "function calls of the API", "rpc-": "function calls of the manager"}
"""What the calls of functions count as, by the begin of the names of threads."""


def main() -> int:
    """Count and run."""
    arguments = sys.argv[1:]
    if arguments[0] == "--functions":
        threading.setprofile(_count_functions)
        del arguments[0]
    path, module, *arguments = arguments
    _count_messages()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen()
    threading.Thread(target=_serve_counts, args=(listening,), daemon=True).start()
    command = importlib.import_module(module)
    sys.argv = [module, *arguments]
    return int(command.main() or 0)


def _count_messages() -> None:
    inprocess = importlib.import_module("attachd.rpc.inprocess_driver")
    driver = inprocess.InProcessDriver
    original = driver.send

    def send(*args: Any, **kwargs: Any) -> Any:
        waits = kwargs.get("wait_for_reply") or (len(args) > 4 and args[4])  # noqa: PLR2004
        _sent["rpc calls" if waits else "rpc casts"] += 1
        return original(*args, **kwargs)

    driver.send = send


def _count_functions(_frame: Any, _event: str, _argument: Any) -> None:
    """Count the calls of this thread from now on; called at its first one."""
    profile = cProfile.Profile()
    _profiles.append((threading.current_thread().name, profile))
    profile.enable()


def _function_calls() -> dict[str, int]:
    counts: collections.Counter[str] = collections.Counter()
    for name, profile in _profiles.copy():
        for begin, kind in _WORKERS.items():
            if name.startswith(begin):
                counts[kind] += sum(entry.callcount for entry in profile.getstats())
    return dict(counts)


def _serve_counts(listening: socket.socket) -> None:
    api = importlib.import_module("attachd.db.engine.session")
    while True:
        asking, _address = listening.accept()
        with asking:
            done = api.counters()
            counts = {
                "sql statements": done.statements,
                "writing transactions": done.writing_transactions,
                "rpc calls": _sent["rpc calls"],
                "rpc casts": _sent["rpc casts"],
                **_function_calls(),
            }
            asking.sendall(json.dumps(counts).encode())


if __name__ == "__main__":
    sys.exit(main())
