# SPDX-License-Identifier: Apache-2.0
"""Finds out in half a millisecond that no client has an image open; for the rbd driver.

The command that lists the clients takes 0.1 seconds of a processor, and most images that are
detached are open at no client any more.
"""

import contextlib
import itertools
import json
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from typing import Any, Final

from oslo_config import cfg

from attachd.drivers.rbd import watch_worker
from attachd.drivers.rbd.cluster import Cluster, connection_settings

LOG = logging.getLogger(__name__)

ANSWER_TIMEOUT: Final = 2.0
"""Seconds after which a process that does not answer is replaced."""
RESTART_INTERVAL: Final = 10.0
"""Seconds from the start of one process to that of the next: clients can end it."""
_COMMAND: Final = (sys.executable, "-P", "-W", "ignore", "-m", watch_worker.__name__)


class _Worker:
    """A process of :mod:`watch_worker`, and the requests that it has not answered yet."""

    def __init__(self, settings: watch_worker.Settings) -> None:
        self.started_at = time.monotonic()
        self.has_ended = False
        self._waiting: dict[int, queue.SimpleQueue[bool]] = {}
        self._numbers = itertools.count()
        self._mutex = threading.Lock()
        self._process = subprocess.Popen(  # noqa: S603  a list of arguments, no shell
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
            env={"PATH": os.defpath, "LC_ALL": "C"},
        )
        threading.Thread(target=self._read, name="rbd-watches", daemon=True).start()
        self._write(settings)

    def ask(self, pool: str, name: str) -> bool:
        """Return whether a client may watch an object; True without an answer."""
        answer: queue.SimpleQueue[bool] = queue.SimpleQueue()
        number = next(self._numbers)
        with self._mutex:
            if self.has_ended:
                return True
            self._waiting[number] = answer
            self._write([number, pool, name])
        try:
            return answer.get(timeout=ANSWER_TIMEOUT)
        except queue.Empty:
            self.end()
            return True

    def end(self) -> None:
        """End the process, and answer the requests."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def _write(self, content: Any) -> None:
        assert self._process.stdin
        # The thread below answers for a process that has ended.
        with contextlib.suppress(OSError):
            self._process.stdin.write(f"{json.dumps(content)}\n".encode())
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout
        with self._process:
            for line in self._process.stdout:
                number, is_watched = json.loads(line)
                self._answer(number, is_watched=is_watched)
        with self._mutex:
            self.has_ended = True
            unanswered = list(self._waiting)
        for number in unanswered:
            self._answer(number, is_watched=True)

    def _answer(self, number: int, *, is_watched: bool) -> None:
        with self._mutex:
            answer = self._waiting.pop(number, None)
        if answer:
            answer.put(is_watched)


class WatchRequests:
    """Asks whether clients have images open, by a process that starts with the first request.

    :param cluster: whose user the process has; it makes a connection of its own
    """

    def __init__(self, cluster: Cluster, options: cfg.ConfigOpts.GroupAttr) -> None:
        self._cluster = cluster
        self._options = options
        self._mutex = threading.Lock()
        self._worker: _Worker | None = None

    def may_be_watched(self, pool: str, name: str) -> bool:
        """Return whether a client may watch an object; False: none does, or there is no object."""
        worker = self._get_worker()
        return worker is None or worker.ask(pool, name)

    def close(self) -> None:
        """End the process; the next request starts another one."""
        with self._mutex:
            worker, self._worker = self._worker, None
        if worker:
            worker.end()

    def _get_worker(self) -> _Worker | None:
        with self._mutex:
            worker = self._worker
            if worker and worker.has_ended:
                if time.monotonic() - worker.started_at < RESTART_INTERVAL:
                    return None
                LOG.warning("The process that asks for clients of images has ended; restarting.")
            if worker is None or worker.has_ended:
                self._worker = _Worker(self._settings())
            return self._worker

    def _settings(self) -> watch_worker.Settings:
        return watch_worker.Settings(
            entity=self._cluster.entity,
            conf=self._options.rbd_ceph_conf,
            settings=connection_settings(self._options),
        )
