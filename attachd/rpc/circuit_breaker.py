# SPDX-License-Identifier: Apache-2.0
"""Circuit breaker: refuse calls to a backend that has stopped answering.

A backend that hangs keeps the thread of each request to it, up to [rpc]attach_timeout.  The
threads of an API process serve all backends: without a limit, one backend that hangs would soon
occupy all of them.  The limit, [rpc]max_calls_unresponsive, applies only to a backend that is
silent, so a healthy backend is never refused to many hosts that attach at once.
"""

from collections.abc import Iterator
import contextlib
import threading
from time import monotonic
from typing import Final

import oslo_messaging as messaging

from attachd import exception
from attachd.conf import CONF
from attachd.telemetry import recorder
from attachd.telemetry.catalogue import RPC_CALLS, RPC_DURATION

OPEN_AFTER: Final = 10.0
"""Seconds without an answer after which the number of calls to a backend is limited."""


class BackendCircuitBreaker:
    """Limits the calls of one process to one backend while the backend is silent.

    :ivar waiting: number of calls in progress
    """

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self.waiting = 0
        self._silent_since: float | None = None  # None: all calls have been answered

    @contextlib.contextmanager
    def guarded_call(self, method: str) -> Iterator[None]:
        """Count and time one call, which is made inside the block.

        :param method: name of the RPC method
        :raises Unavailable: the backend is silent, and the limit of calls is reached
        """
        with recorder.timed(RPC_CALLS, RPC_DURATION, method, outcome_of=_outcome), self._counted():
            yield

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._enter()
        answered = True
        try:
            yield
        except messaging.MessagingTimeout:
            answered = False
            raise
        finally:
            self._leave(answered)

    def _enter(self) -> None:
        now = monotonic()
        with self._lock:
            if self._silent_since is None:
                self._silent_since = now
            silence = now - self._silent_since
            if silence > OPEN_AFTER and self.waiting >= CONF.rpc.max_calls_unresponsive:
                raise exception.Unavailable(
                    reason=f"Backend {self._backend} has answered nothing for {silence:.0f} "
                    f"seconds, and {self.waiting} calls wait for it already. Nothing has been "
                    "done; try again later."
                )
            self.waiting += 1

    def _leave(self, answered: bool) -> None:  # noqa: FBT001  both ways of leaving are one
        with self._lock:
            self.waiting -= 1
            if answered:  # an error is an answer too
                self._silent_since = monotonic() if self.waiting else None


def _outcome(error: Exception) -> str:
    """Return the reason of a failed call as a label for metrics."""
    if isinstance(error, messaging.MessagingTimeout):
        return "timeout"
    if isinstance(error, messaging.MessageDeliveryFailure | messaging.MessageUndeliverable):
        return "unreachable"
    return "refused" if isinstance(error, exception.AttachdError) else "error"
