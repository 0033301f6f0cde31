# SPDX-License-Identifier: Apache-2.0
"""Limits of the calls that wait for managers and agents at the same time in one API process.

A call occupies a thread of the web server until it is answered, and these threads serve all
tenants and all backends.  Without limits, one volume whose backend is slow would soon occupy all
of them.  The limits leave threads for requests that wait for no manager, and for calls to other
backends, of other projects and of other volumes.  An unresponsive backend has a lower limit.
"""

from collections import Counter
from collections.abc import Iterator
import contextlib
from dataclasses import dataclass
import os
import threading
import time
from typing import Final, NamedTuple

import oslo_messaging as messaging

from attachd import exception
from attachd.conf import CONF
from attachd.telemetry import metrics

DEFAULT_THREADS: Final = 48
"""Threads of a web server that has not called set_threads(), as in its sample configuration."""

OPEN_AFTER: Final = 10.0
"""Seconds without an answer after which a backend counts as unresponsive."""

OWN_RETRY_AFTER: Final = 1
"""Seconds after which a volume or a project whose limit is reached may retry."""


class Limits(NamedTuple):
    """Largest numbers of calls that wait at the same time in this process."""

    process: int
    backend: int
    project: int
    volume: int


class _State:
    """Waiting calls of this process.

    :ivar threads: of the web server
    :ivar waiting: number of calls, by kind and name of what they belong to
    :ivar silent_since: when each server with waiting calls has answered last, or was called first
    """

    def __init__(self, threads: int) -> None:
        self.lock = threading.Lock()
        self.threads = threads
        self.waiting: Counter[tuple[str, str]] = Counter()
        self.silent_since: dict[str, float] = {}


_state = _State(DEFAULT_THREADS)


def _reset_after_fork() -> None:
    global _state  # noqa: PLW0603  one state per process
    _state = _State(_state.threads)


os.register_at_fork(after_in_child=_reset_after_fork)


def set_threads(threads: int) -> None:
    """Set how many requests the web server of this process serves at the same time."""
    _state.threads = threads


def limits() -> Limits:
    """Return the limits, from the options or from the number of threads.

    The rest of the threads remains for event watchers and for requests that wait for no manager.
    """
    options = CONF.rpc
    process = options.max_calls or max(1, _state.threads * 5 // 8)
    return Limits(
        process,
        options.max_calls_per_backend or max(1, process * 2 // 3),
        options.max_calls_per_project or max(1, process // 2),
        options.max_calls_per_volume or max(1, process // 3),
    )


def waiting_calls() -> int:
    """Return how many calls wait in this process."""
    return _state.waiting[_PROCESS]


def check(server: str, volume_id: str | None, project_id: str | None) -> None:
    """Check that a call could wait now; for callers that first do work that it needs.

    :raises: as :func:`slot`
    """
    with _state.lock:
        _check(_Call(server, volume_id, project_id))


@contextlib.contextmanager
def slot(server: str, volume_id: str | None, project_id: str | None) -> Iterator[None]:
    """Count a call as waiting, which is made inside the block.

    :param server: name of the backend or the agent, for messages
    :param volume_id: None: the call concerns no volume
    :param project_id: of the caller
    :raises TooManyCalls: the volume or the project has too many waiting calls
    :raises Unavailable: the backend or this process has too many waiting calls
    """
    call = _Call(server, volume_id, project_id)
    with _state.lock:
        _check(call)
        _state.silent_since.setdefault(server, time.monotonic())
        _state.waiting.update(call.counted_as())
    answered = True
    try:
        yield
    except (messaging.MessagingTimeout, exception.AgentTimeout):
        answered = False
        raise
    finally:
        _end(call, answered=answered)


@dataclass(frozen=True, slots=True)
class _Call:
    server: str
    volume_id: str | None
    project_id: str | None

    def counted_as(self) -> list[tuple[str, str]]:
        """Return what the call counts for."""
        keys = [_PROCESS, ("backend", self.server)]
        if self.project_id:
            keys.append(("project", self.project_id))
        if self.volume_id:
            keys.append(("volume", self.volume_id))
        return keys


_PROCESS: Final = ("process", "")


def _end(call: _Call, *, answered: bool) -> None:
    with _state.lock:
        for key in call.counted_as():
            _state.waiting[key] -= 1
            if not _state.waiting[key]:
                del _state.waiting[key]
        if answered and ("backend", call.server) in _state.waiting:
            _state.silent_since[call.server] = time.monotonic()
        elif answered:  # an error is an answer, too
            _state.silent_since.pop(call.server, None)


def _check(call: _Call) -> None:
    """Check the limits, that of the volume first: its message is the most specific one."""
    maximum = limits()
    waiting = _state.waiting
    if call.volume_id and waiting["volume", call.volume_id] >= maximum.volume:
        raise _too_many_calls("volume", f"Volume {call.volume_id}", call.server, maximum.volume)
    if call.project_id and waiting["project", call.project_id] >= maximum.project:
        raise _too_many_calls(
            "project", f"Project {call.project_id}", call.server, maximum.project
        )
    calls = waiting["backend", call.server]
    silent_for = time.monotonic() - _state.silent_since.get(call.server, time.monotonic())
    if silent_for > OPEN_AFTER and calls >= CONF.rpc.max_calls_unresponsive:
        raise _unavailable(
            "unresponsive",
            f"{_named(call.server)} has answered nothing for {silent_for:.0f} seconds, and "
            f"{calls} calls wait for it already. Try again later.",
        )
    if calls >= maximum.backend:
        raise _unavailable(
            "backend",
            f"{_named(call.server)} is busy: {calls} calls wait for it already. Try again later.",
        )
    if waiting[_PROCESS] >= maximum.process:
        raise _unavailable(
            "process",
            f"The API is busy: {waiting[_PROCESS]} calls wait for backends already. Try again "
            "later.",
        )


def _named(server: str) -> str:
    return f"T{server[1:]}" if server.startswith("the ") else f"Backend {server}"


def _too_many_calls(kind: str, who: str, server: str, limit: int) -> exception.TooManyCalls:
    metrics.count(metrics.RPC_REFUSED, kind)
    return exception.TooManyCalls(
        reason=f"{who} is busy: {limit} of its calls wait already, and this one would wait for "
        f"{server}. Try again later, with fewer calls at the same time.",
        retry_after=OWN_RETRY_AFTER,
    )


def _unavailable(kind: str, reason: str) -> exception.Unavailable:
    metrics.count(metrics.RPC_REFUSED, kind)
    return exception.Unavailable(reason=reason)
