# SPDX-License-Identifier: Apache-2.0
"""Background tasks of a backend: long operations, beside the threads that answer RPC calls.

Copying a volume may take hours: in the threads that answer calls, a few copies would block all
attaches.  A background task is given up when the process ends, and recovery of another process
starts it again: the row still says that it has to be done.
"""

from collections import deque
from collections.abc import Callable
import threading
from typing import Any, NamedTuple

from oslo_context import context as oslo_context
from oslo_log import log

LOG = log.getLogger(__name__)


class _Task(NamedTuple):
    """An operation on one volume, and the context of its request."""

    volume_id: str
    call: Callable[[], None]
    context: Any


class BackgroundTasks:
    """The background tasks of one backend in one process.

    :param max_running: how many run at the same time; the others wait
    """

    def __init__(self, name: str, max_running: int) -> None:
        self._name = name
        self._max_running = max_running
        self._mutex = threading.Lock()
        self._waiting: deque[_Task] = deque()
        self._volume_ids: set[str] = set()
        self._threads = 0

    def submit(self, volume_id: str, call: Callable[[], None]) -> None:
        """Queue a task and return at once; a volume that has a task already gets no second one."""
        with self._mutex:
            if volume_id in self._volume_ids:
                return
            self._volume_ids.add(volume_id)
            self._waiting.append(_Task(volume_id, call, oslo_context.get_current()))
            if self._threads == self._max_running:
                return
            self._threads += 1
        name = f"background-{self._name}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def is_busy(self) -> bool:
        """Whether a task runs, or waits."""
        with self._mutex:
            return bool(self._volume_ids)

    def _run(self) -> None:
        while (task := self._next_task()) is not None:
            try:
                if task.context is not None:
                    task.context.update_store()
                task.call()
            except Exception:
                LOG.exception("Volume %s: background task failed for now", task.volume_id)
            finally:
                with self._mutex:
                    self._volume_ids.discard(task.volume_id)

    def _next_task(self) -> _Task | None:
        with self._mutex:
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None
