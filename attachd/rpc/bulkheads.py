# SPDX-License-Identifier: Apache-2.0
"""Turns of the calls that wait for managers and agents in one API process.

A call occupies a thread of the web server until it is answered, and these threads serve all
tenants and all backends.  So the calls in progress at the same time are limited, for each volume,
project and backend.  A call over a limit waits for its turn as long as it can still be answered in
time.  Projects have turns one after the other: one with hundreds of calls delays a call of another
by one call at most.  A call is refused if it gets no turn in time, if too many threads wait, or if
its backend answers nothing.  Calls for a backend that answers nothing hold their threads, and not
the turns of calls for other backends.

A thread has one turn: what it calls meanwhile needs no other one, for which it might wait until
all of its project wait so.
"""

from collections import Counter
from collections.abc import Iterator
import contextlib
from dataclasses import dataclass
import enum
import os
import threading
import time
from typing import Final, NamedTuple

import oslo_messaging as messaging

from attachd import exception
from attachd.conf import CONF
from attachd.rpc.fair_queue import FairQueue, Place
from attachd.telemetry import metrics

DEFAULT_THREADS: Final = 1024
"""Threads of a web server that has not called set_threads(), as in its sample configuration."""

DEFAULT_CALLS: Final = 30
"""Calls in progress of a process with enough threads: two processes keep a manager busy."""

OPEN_AFTER: Final = 10.0
"""Seconds without an answer after which a backend counts as unresponsive."""

OWN_RETRY_AFTER: Final = 1
"""Seconds after which a volume or a project whose limit is reached may retry."""


class Limits(NamedTuple):
    """Largest numbers of calls of this process.

    :ivar process: in progress; of them for one backend, of one project, and for one volume the
        following
    :ivar threads: in progress or waiting for their turn
    :ivar threads_of_project: of them of one project
    :ivar threads_with_turns: as ``threads``, for a call that need not wait
    """

    process: int
    backend: int
    project: int
    volume: int
    threads: int
    threads_of_project: int
    threads_with_turns: int


class _Limit(enum.StrEnum):
    """The limit that a call has reached; a label of metrics."""

    VOLUME = "volume"
    PROJECT = "project"
    BACKEND = "backend"
    PROCESS = "process"
    UNRESPONSIVE = "unresponsive"
    """The backend has answered nothing for OPEN_AFTER."""
    THREADS = "threads"
    THREADS_OF_PROJECT = "threads_of_project"


BACKLOG: Final = "backlog"
"""The limit of asynchronous requests that wait; a label beside those of calls."""


def show_counters() -> None:
    """Show the counters of refusals before the first one."""
    for limit in (*_Limit, BACKLOG):
        metrics.count(metrics.RPC_REFUSED, limit, by=0)


@dataclass(eq=False, slots=True)
class _Call:
    """A call that is in progress, or waits for its turn.

    :ivar has_turn: None: it has not had to wait
    """

    server: str
    volume_id: str
    project_id: str
    has_turn: threading.Event | None = None

    @property
    def place(self) -> Place:
        """Where the call waits."""
        return self.project_id, self.server, self.volume_id

    def counted_as(self) -> list[tuple[str, ...]]:
        """Return what the call counts for."""
        server, project = (*_PROCESS, self.server), ("project", self.project_id)
        return [_PROCESS, server, project, (*project, self.server), ("volume", self.volume_id)]


_PROCESS: Final = ("process",)


class _Calls:
    """The calls of this process.

    :ivar threads: of the web server
    :ivar in_progress: number of calls, by kind and name of what they belong to; of the process and
        of projects also by server
    :ivar waiting: those that have no turn yet
    :ivar held: number of threads that both have, by project
    :ivar silent_since: when each server with calls has answered last, or was called first; also
        of servers whose last call was not answered, for a time
    :ivar passed_over: the silent servers when turns were given last, as of silent_since
    """

    def __init__(self, threads: int) -> None:
        self.lock = threading.Lock()
        self.threads = threads
        self.in_progress: Counter[tuple[str, ...]] = Counter()
        self.waiting: FairQueue[_Call] = FairQueue()
        self.held: Counter[str] = Counter()
        self.silent_since: dict[str, float] = {}
        self.passed_over: dict[str, float] = {}

    def check(self, call: _Call) -> _Limit | None:
        """Return the limit for which a call has to wait for its turn; None: it has one.

        :raises TooManyCalls: the project has too many threads
        :raises Unavailable: the backend answers nothing, or too many threads wait
        """
        maximum = limits()
        reached = self._reached(call, maximum)
        is_refused = reached is _Limit.UNRESPONSIVE
        if refused_by := reached if is_refused else self._full(call, maximum, reached):
            raise self._error(refused_by, call, maximum)
        return reached

    def enter(self, call: _Call) -> float:
        """Wait for the turn of a call, and count it as in progress; return the seconds it waited.

        :raises: as :func:`slot`
        """
        with self.lock:
            reached = self.check(call)
            self.held[call.project_id] += 1
            if reached is None:
                self._begin(call)
                return 0.0
            call.has_turn = threading.Event()
            self.waiting.put(call.place, call)
        return self._wait(call, call.has_turn, reached)

    def _wait(self, call: _Call, has_turn: threading.Event, reached: _Limit) -> float:
        started = time.monotonic()
        deadline = started + max_wait()
        while not has_turn.wait(self._until_next_check(deadline)):
            with self.lock:
                self._check_waiting(call, deadline)
        waited = time.monotonic() - started
        if metrics.is_enabled():
            metrics.observe(metrics.RPC_TURN_DURATION, waited, reached)
        return waited

    def end(self, call: _Call, *, answered: bool) -> None:
        """Count a call as ended, and give its turn to others."""
        with self.lock:
            self.in_progress -= Counter(call.counted_as())
            self.held -= Counter([call.project_id])
            if answered and (*_PROCESS, call.server) in self.in_progress:
                self.silent_since[call.server] = time.monotonic()
            elif answered:  # an error is an answer, too
                self.silent_since.pop(call.server, None)
            if self.waiting.length:
                self._give_turns()

    def _begin(self, call: _Call) -> None:
        if (*_PROCESS, call.server) not in self.in_progress:
            self._forget_silent()
        self.silent_since.setdefault(call.server, time.monotonic())
        self.in_progress.update(call.counted_as())

    def _give_turns(self) -> None:
        """Give a turn to each waiting call that the limits allow."""
        maximum = limits()
        self.passed_over = self._list_silent()

        def may_begin(place: Place) -> bool:
            return not self._is_full(place, maximum)

        while not self._is_process_full(maximum):
            if (taken := self.waiting.take(may_begin)) is None:
                return
            call = taken[1]
            self._begin(call)
            if call.has_turn is not None:
                call.has_turn.set()

    def _until_next_check(self, deadline: float) -> float:
        """Return after how many seconds a waiting call may have to be refused, or has a turn."""
        now = time.monotonic()
        with self.lock:
            changes = [since + OPEN_AFTER for since in self.silent_since.values()]
        return max(0.0, min([deadline, *(moment for moment in changes if moment > now)]) - now)

    def _check_waiting(self, call: _Call, deadline: float) -> None:
        """Refuse a waiting call that has no turn in time, or whose backend answers nothing."""
        if self._list_silent() != self.passed_over:
            self._give_turns()
        if call.has_turn is None or call.has_turn.is_set():
            return
        maximum = limits()
        reached = self._reached(call, maximum)
        if reached == _Limit.UNRESPONSIVE or time.monotonic() >= deadline:
            self.waiting.remove(call.place, call)
            self.held -= Counter([call.project_id])
            raise self._error(reached or _Limit.PROCESS, call, maximum)

    def _reached(self, call: _Call, maximum: Limits) -> _Limit | None:
        """Return the limit that a call would exceed, the most specific one of several."""
        if self._is_unresponsive(call.server):
            return _Limit.UNRESPONSIVE
        if self._is_full(call.place, maximum):
            return _Limit.VOLUME
        if self._is_full(call.place[:1], maximum):
            return _Limit.PROJECT
        if self._is_full(call.place[:2], maximum):
            return _Limit.BACKEND
        return _Limit.PROCESS if self._is_process_full(maximum) else None

    def _is_full(self, place: Place, maximum: Limits) -> bool:
        """Return whether no call may begin of a project, for its backend, or for its volume."""
        match place:
            case [project]:
                own, limit = ("project", project), maximum.project
                is_full = self.in_progress[own] >= limit <= self._count_answered(own)
                return bool(project) and is_full
            case [_, server]:
                is_full = self.in_progress[*_PROCESS, server] >= maximum.backend
                return is_full or self._is_unresponsive(server)
        volume = place[-1]
        return bool(volume) and self.in_progress["volume", volume] >= maximum.volume

    def _is_unresponsive(self, server: str) -> bool:
        is_limited = self.in_progress[*_PROCESS, server] >= CONF.rpc.max_calls_unresponsive
        return is_limited and self._silent_for(server) > OPEN_AFTER

    def _is_process_full(self, maximum: Limits) -> bool:
        limit = maximum.process
        return self.in_progress[_PROCESS] >= limit <= self._count_answered(_PROCESS)

    def _count_answered(self, owner: tuple[str, ...]) -> int:
        """Return how many calls an owner has in progress, without those for silent servers."""
        silent = sum(self.in_progress[*owner, server] for server in self._list_silent())
        return self.in_progress[owner] - silent

    def _list_silent(self) -> dict[str, float]:
        """Return the entries of silent_since of servers that are silent for OPEN_AFTER."""
        since = time.monotonic() - OPEN_AFTER
        return {name: moment for name, moment in self.silent_since.items() if moment <= since}

    def _forget_silent(self) -> None:
        """Forget the silence of servers that have had no call for long."""
        since = time.monotonic() - 2 * CONF.rpc.attach_timeout
        for name, moment in list(self.silent_since.items()):
            if moment < since and (*_PROCESS, name) not in self.in_progress:
                del self.silent_since[name]

    def _silent_for(self, server: str) -> float:
        now = time.monotonic()
        return now - self.silent_since.get(server, now)

    def _full(self, call: _Call, maximum: Limits, reached: _Limit | None) -> _Limit | None:
        """Return the limit that one more thread would exceed, also for a call with a turn."""
        if call.project_id and self.held[call.project_id] >= maximum.threads_of_project:
            return _Limit.THREADS_OF_PROJECT
        threads = maximum.threads if reached else maximum.threads_with_turns
        return _Limit.THREADS if self.held.total() >= threads else None

    def _error(self, limit: _Limit, call: _Call, maximum: Limits) -> exception.AttachdError:
        metrics.count(metrics.RPC_REFUSED, limit)
        project = f"Project {call.project_id}"
        no_turn = f"calls in progress, and this one got no turn in {max_wait():.0f} seconds."
        waiting = "calls in progress or waiting already."
        match limit:
            case _Limit.VOLUME:
                return _busy(f"Volume {call.volume_id} has {maximum.volume} {no_turn}")
            case _Limit.PROJECT:
                return _busy(f"{project} has {maximum.project} {no_turn}")
            case _Limit.THREADS_OF_PROJECT:
                return _busy(f"{project} has {maximum.threads_of_project} {waiting}")
            case _Limit.THREADS:
                reason = f"The API has {self.held.total()} {waiting}"
            case _Limit.PROCESS:
                reason = f"The API has {maximum.process} {no_turn}"
            case _Limit.BACKEND:
                reason = f"{_named(call.server)} has {maximum.backend} {no_turn}"
            case _Limit.UNRESPONSIVE:
                seconds = self._silent_for(call.server)
                reason = (
                    f"{_named(call.server)} has answered nothing for {seconds:.0f} seconds, and "
                    f"{self.in_progress[*_PROCESS, call.server]} calls wait for it already."
                )
        return exception.Unavailable(reason=f"{reason} Try again later.")


def _busy(reason: str) -> exception.TooManyCalls:
    return exception.TooManyCalls(
        reason=f"{reason} Try again later, with fewer calls at the same time.",
        retry_after=OWN_RETRY_AFTER,
    )


def _named(server: str) -> str:
    return f"T{server[1:]}" if server.startswith("the ") else f"Backend {server}"


class _Thread(threading.local):
    """What a thread of the web server has.

    :ivar has_turn: whether it is inside of :func:`slot`
    """

    has_turn = False


_calls = _Calls(DEFAULT_THREADS)
_thread = _Thread()


def _reset_after_fork() -> None:
    global _calls  # noqa: PLW0603  one per process
    _calls = _Calls(_calls.threads)


os.register_at_fork(after_in_child=_reset_after_fork)


def set_threads(threads: int) -> None:
    """Set how many requests the web server of this process serves at the same time."""
    _calls.threads = threads


def limits() -> Limits:
    """Return the limits, from the options or from the number of threads.

    An eighth of the threads remains for other requests; half of it also for calls with a turn.
    """
    options, threads = CONF.rpc, max(1, _calls.threads * 7 // 8)
    process = options.max_calls or min(DEFAULT_CALLS, max(1, _calls.threads * 5 // 8))
    return Limits(
        process,
        options.max_calls_per_backend or max(1, process * 2 // 3),
        options.max_calls_per_project or max(1, process // 2),
        options.max_calls_per_volume or max(1, process // 3),
        max(threads, process),
        max(1, threads * 7 // 8),
        max(_calls.threads * 15 // 16, threads, process),
    )


def max_wait() -> float:
    """Return the seconds that a call waits for its turn: it needs the others to be answered."""
    return float(CONF.rpc.attach_timeout) * 3 / 4


def calls_in_progress() -> int:
    """Return how many calls are in progress in this process."""
    return _calls.in_progress[_PROCESS]


def check(server: str, volume_id: str | None, project_id: str | None) -> None:
    """Check that a call could wait for its turn now; for callers that first do work it needs.

    :raises: as :func:`slot`, for what is so now
    """
    with _calls.lock:
        _calls.check(_Call(server, volume_id or "", project_id or ""))


@contextlib.contextmanager
def slot(server: str, volume_id: str | None, project_id: str | None) -> Iterator[float]:
    """Wait for the turn of a call, which is made inside of the block.

    :param server: name of the backend or the agent, for messages
    :param volume_id: None: the call concerns no volume
    :param project_id: of the caller
    :returns: the seconds that it has waited
    :raises TooManyCalls: the volume or the project has too many calls
    :raises Unavailable: the backend or this process has, or the backend answers nothing
    """
    if _thread.has_turn:
        yield 0.0
        return
    call = _Call(server, volume_id or "", project_id or "")
    waited = _calls.enter(call)
    answered = _thread.has_turn = True
    try:
        yield waited
    except (messaging.MessagingTimeout, exception.AgentTimeout):
        answered = False
        raise
    finally:
        _thread.has_turn = False
        _calls.end(call, answered=answered)
