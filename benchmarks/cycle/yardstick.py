# SPDX-License-Identifier: Apache-2.0
"""What an empty RPC call costs on this machine, here and now; used by attach_cycle.py.

Milliseconds of CPU are those of one machine, and of one hour where others share it.  The same
call, by the same library and over the same broker, is what they can be compared by.
``python yardstick.py URL`` makes calls in a process of its own, and prints what one costs.
"""

import importlib
import json
import logging
import os
from pathlib import Path
import signal
import subprocess
import sys
import time
from typing import Any
import uuid

CALLS = 500
WARMUP = 50
TIMEOUT = 60.0

HOW = (
    f"client and server together, of {CALLS} oslo.messaging calls that do nothing over the same "
    "broker, before and after each run"
)


def call_ms(rabbit: str) -> float:
    """Return the milliseconds of CPU of an empty call, in its client and its server.

    :raises ValueError: it could not be made
    """
    command = [sys.executable, "-W", "ignore", str(Path(__file__)), rabbit]
    done = subprocess.run(  # noqa: S603  ourselves
        command, capture_output=True, text=True, timeout=2 * TIMEOUT, check=False
    )
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or ["it was killed"]
        raise ValueError(f"No empty call could be made: {why[0]}")
    return float(json.loads(done.stdout))


def _main(url: str) -> None:
    _reach(url)
    topic = f"yardstick-{uuid.uuid4().hex}"
    ready, started = os.pipe()
    server = os.fork()
    if not server:
        _serve(url, topic, started)
    os.close(started)
    try:
        os.read(ready, 1)
        print(json.dumps(_cost(url, topic, server)))
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)


def _reach(url: str) -> None:
    """Fail at once if no broker answers; oslo.messaging would retry without end."""
    messaging, conf = _libraries()
    parsed = messaging.TransportURL.parse(conf, url)
    first = parsed.hosts[0]
    kombu = importlib.import_module("kombu")
    with kombu.Connection(
        hostname=first.hostname,
        port=first.port,
        userid=first.username,
        password=first.password,
        virtual_host=parsed.virtual_host or "/",
        connect_timeout=TIMEOUT,
    ) as broker:
        broker.connect()


def _serve(url: str, topic: str, started: int) -> None:
    """Answer until killed."""
    messaging, transport = _transport(url)
    target = messaging.Target(topic=topic, server="yardstick")
    messaging.get_rpc_server(transport, target, [_Endpoint()]).start()
    os.write(started, b".")
    signal.pause()


class _Endpoint:
    """What is called."""

    @staticmethod
    def nothing(_context: dict[str, Any]) -> None:
        """Do nothing."""


def _cost(url: str, topic: str, server: int) -> float:
    messaging, transport = _transport(url)
    client = messaging.get_rpc_client(
        transport, messaging.Target(topic=topic, server="yardstick"), timeout=TIMEOUT
    ).prepare()
    for _ in range(WARMUP):
        client.call({}, "nothing")
    before = time.process_time() + _used(server)
    for _ in range(CALLS):
        client.call({}, "nothing")
    return 1000 * (time.process_time() + _used(server) - before) / CALLS


def _transport(url: str) -> tuple[Any, Any]:
    messaging, conf = _libraries()
    return messaging, messaging.get_rpc_transport(conf, url)


def _libraries() -> tuple[Any, Any]:
    # First of all: attachd has the libraries use threads.
    importlib.import_module("attachd")
    conf = importlib.import_module("oslo_config.cfg").CONF
    messaging = importlib.import_module("oslo_messaging")
    logging.disable(logging.CRITICAL)
    conf([], project="yardstick")
    return messaging, conf


def _used(pid: int) -> float:
    return float(importlib.import_module("processes").cpu_seconds({"server": pid})["server"])


if __name__ == "__main__":
    _main(sys.argv[1])
