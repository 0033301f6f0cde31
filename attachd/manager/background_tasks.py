# SPDX-License-Identifier: Apache-2.0
"""Background tasks of a backend: long operations, beside the threads that answer RPC calls.

Copying a volume may take hours: in the threads that answer calls, a few copies would block all
attaches.  A background task is given up when the process ends, and recovery of another process
starts it again: the row still says that it has to be done.

Projects take turns, and none has all places: the many copies of one project do not delay the only
one of another.  A task that has to wait for something gives its place up meanwhile.
"""

from collections import Counter
from collections.abc import Callable, Iterator
import contextlib
import contextvars
import heapq
import itertools
import threading
import time
from typing import Any, Final, NamedTuple

from oslo_context import context as oslo_context
from oslo_log import log

from attachd.rpc.fair_queue import FairQueue, Place

LOG = log.getLogger(__name__)

_project: Final = contextvars.ContextVar[str | None]("_project", default=None)


class Later(NamedTuple):
    """What a task returns that has to wait: it is called again after so many seconds."""

    seconds: float


class _Task(NamedTuple):
    """An operation on one volume, its project, and the context of its request."""

    project_id: str
    volume_id: str
    call: Callable[[], object]
    context: Any


@contextlib.contextmanager
def of_project(project_id: str) -> Iterator[None]:
    """Count the tasks that are submitted in the block for a project, not for that of a request."""
    token = _project.set(project_id)
    try:
        yield
    finally:
        _project.reset(token)


class BackgroundTasks:
    """The background tasks of one backend in one process.

    :param max_running: how many run at the same time, of one project three quarters of them; the
        others wait
    """

    def __init__(self, name: str, max_running: int) -> None:
        self._name = name
        self._max_running = max_running
        self._max_of_project = max_running - max_running // 4
        self._changed = threading.Condition()
        self._waiting: FairQueue[_Task] = FairQueue()
        self._postponed: list[tuple[float, int, _Task]] = []
        self._numbers = itertools.count()
        self._volume_ids: set[str] = set()
        self._running: Counter[str] = Counter()  # By project.
        self._threads = 0

    def submit(self, volume_id: str, call: Callable[[], object]) -> None:
        """Queue a task and return at once; a volume that has a task already gets no second one.

        :param call: the task; it is ended when it returns something else than :class:`Later`
        """
        context = oslo_context.get_current()
        project_id = _project.get() or getattr(context, "project_id", None) or ""
        with self._changed:
            if volume_id in self._volume_ids:
                return
            self._volume_ids.add(volume_id)
            self._put(_Task(project_id, volume_id, call, context))
            if self._threads == self._max_running:
                self._changed.notify()
                return
            self._threads += 1
        name = f"background-{self._name}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def has_task(self, volume_id: str) -> bool:
        """Return whether the task of a volume runs, or waits."""
        with self._changed:
            return volume_id in self._volume_ids

    @property
    def is_busy(self) -> bool:
        """Whether a task runs, or waits."""
        with self._changed:
            return bool(self._volume_ids)

    def _run(self) -> None:
        while (task := self._next_task()) is not None:
            result: object = None
            try:
                if task.context is not None:
                    task.context.update_store()
                result = task.call()
            except Exception:
                LOG.exception("Volume %s: background task failed for now", task.volume_id)
            finally:
                self._end(task, result)

    def _end(self, task: _Task, result: object) -> None:
        with self._changed:
            self._running -= Counter([task.project_id])
            if isinstance(result, Later):
                again_at = time.monotonic() + result.seconds
                heapq.heappush(self._postponed, (again_at, next(self._numbers), task))
            else:
                self._volume_ids.discard(task.volume_id)

    def _next_task(self) -> _Task | None:
        """Return the next task, for which this thread may have to wait; None: there is none."""
        with self._changed:
            while True:
                while self._postponed and self._postponed[0][0] <= time.monotonic():
                    self._put(heapq.heappop(self._postponed)[2])
                taken = self._waiting.take(self._is_within_share)
                if taken is not None:
                    self._running[taken[1].project_id] += 1
                    return taken[1]
                if not self._postponed:
                    self._threads -= 1
                    return None
                self._changed.wait(self._postponed[0][0] - time.monotonic())

    def _is_within_share(self, place: Place) -> bool:
        return self._running[place[0]] < self._max_of_project

    def _put(self, task: _Task) -> None:
        self._waiting.put((task.project_id,), task)
