# SPDX-License-Identifier: Apache-2.0
"""Who waits for a backend, and whether there is any sense in joining them; used by service.

A backend that hangs holds the thread of each request that waits for it, up to
[rpc]attach_timeout.  An API process has a number of threads for all backends: without a limit,
one that hangs would soon have all of them.  A limit for everybody would refuse many hosts that
come at once to a backend that is well; so there is one for a backend that has fallen silent.
"""

from collections.abc import Iterator
import contextlib
import threading
from time import monotonic
from typing import Final

import oslo_messaging as messaging

from attachd import exception
from attachd.conf import CONF
from attachd.metrics import recording
from attachd.metrics.catalogue import RPC_CALLS, RPC_DURATION

SILENCE: Final = 10.0
"""Seconds without any answer after which a backend counts as silent."""


class Queue:
    """The calls of one process that wait for one backend.

    :ivar waiting: how many there are
    """

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self.waiting = 0
        self._silent_since: float | None = None  # None: all calls have been answered

    @contextlib.contextmanager
    def joined(self, method: str) -> Iterator[None]:
        """Wait with the others, inside the block, for the answer to one call.

        :param method: which is called
        :raises Unavailable: the backend is silent, and as many as may wait for it already
        """
        with recording.timed(RPC_CALLS, RPC_DURATION, method, judge=_outcome), self._counted():
            yield

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._enter()
        heard = True
        try:
            yield
        except messaging.MessagingTimeout:
            heard = False
            raise
        finally:
            self._leave(heard)

    def _enter(self) -> None:
        now = monotonic()
        with self._lock:
            if self._silent_since is None:
                self._silent_since = now
            silence = now - self._silent_since
            if silence > SILENCE and self.waiting >= CONF.rpc.calls_to_silent_backend:
                raise exception.Unavailable(
                    reason=f"Backend {self._backend} has answered nothing for {silence:.0f} "
                    f"seconds, and {self.waiting} calls wait for it already. Nothing has been "
                    "done; try again later."
                )
            self.waiting += 1

    def _leave(self, heard: bool) -> None:  # noqa: FBT001  both ways of leaving are one
        with self._lock:
            self.waiting -= 1
            if heard:  # an error is an answer too
                self._silent_since = monotonic() if self.waiting else None


def _outcome(error: Exception) -> str:
    """Tell in one word, for the metrics, why a call has failed."""
    if isinstance(error, messaging.MessagingTimeout):
        return "timeout"
    if isinstance(error, messaging.MessageDeliveryFailure | messaging.MessageUndeliverable):
        return "unreachable"
    return "refused" if isinstance(error, exception.AttachdError) else "error"
