# SPDX-License-Identifier: Apache-2.0
"""Run one of attachd's commands and report, on a Unix socket, what it has done so far.

For processes whose database and message queue are inside them, where no other process can count:
``python counted.py SOCKET MODULE [ARGUMENT...]``.  Started by started.py.
"""

import collections
import importlib
import json
import socket
import sys
import threading
from typing import Any

_sent: collections.Counter[str] = collections.Counter()


def main() -> int:
    """Count and run."""
    path, module, *arguments = sys.argv[1:]
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
            }
            asking.sendall(json.dumps(counts).encode())


if __name__ == "__main__":
    sys.exit(main())
