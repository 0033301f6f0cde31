# SPDX-License-Identifier: Apache-2.0
"""Probes that may be slow or hang, cached for many callers; for health checks and metrics.

A caller gets an answer in bounded time: the last one while it is fresh, otherwise "no answer for
so many seconds".  At most one thread runs a probe, so many simultaneous callers cost one run.
"""

from collections.abc import Callable
import os
import threading
import time
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Answer(NamedTuple, Generic[T]):
    """Result of a probe.

    :ivar value: the last value, however old; None: there never was one
    :ivar error: error of the last run, or :class:`ProbeTimeout`; None: it succeeded
    :ivar since: seconds since that state began
    :ivar age: age of the value in seconds; 0 if there is none
    """

    value: T | None
    error: Exception | None
    since: float
    age: float


class ProbeTimeout(Exception):
    """The probe is still running."""


class Probe(Generic[T]):
    """One probe.

    :param ask: returns the value, and may take any time
    :param fresh_for: seconds for which a value is cached
    :param timeout: seconds that a caller waits at most
    """

    def __init__(self, ask: Callable[[], T], fresh_for: float, timeout: float) -> None:
        self._ask = ask
        self._fresh_for = fresh_for
        self._timeout = timeout
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._asking_since: float | None = None
        self._asked_at = float("-inf")  # start of the last run that has ended
        self._value: T | None = None
        self._valued_at = 0.0
        self._error: Exception | None = None
        self._so_since = time.monotonic()

    def answer(self) -> Answer[T]:
        """Return the state of the probe after ``timeout`` seconds at the latest."""
        if self._pid != os.getpid():
            self._forget()  # the running thread belongs to the parent
        with self._changed:
            now = time.monotonic()
            if now - self._asked_at > self._fresh_for:
                self._begin(now)
                # A later caller of a probe that hangs does not wait again.
                left = (self._asking_since or now) + self._timeout - now
                if left > 0:
                    self._changed.wait_for(lambda: self._asking_since is None, left)
            return self._known()

    def _begin(self, now: float) -> None:
        if self._asking_since is None:
            # A thread that cannot be started must not count as running.
            threading.Thread(target=self._run, name="probe", daemon=True).start()
            self._asking_since = now

    def _known(self) -> Answer[T]:
        now = time.monotonic()
        age = now - self._valued_at if self._value is not None else 0.0
        began = self._asking_since
        if began is not None and now - began >= self._timeout:
            silent = ProbeTimeout(f"no answer for {now - began:.0f} seconds")
            since = now - (self._so_since if self._error is not None else began)
            return Answer(self._value, silent, since, age)
        return Answer(self._value, self._error, now - self._so_since, age)

    def _run(self) -> None:
        value: T | None = None
        error: Exception | None = None
        try:
            value = self._ask()
        except Exception as found:  # noqa: BLE001  it is the answer
            error = found
        with self._changed:
            now = time.monotonic()
            if (error is None) != (self._error is None) or self._asked_at == float("-inf"):
                self._so_since = self._asking_since or now
            if error is None:
                self._value, self._valued_at = value, now
            self._error, self._asked_at, self._asking_since = error, now, None
            self._changed.notify_all()
