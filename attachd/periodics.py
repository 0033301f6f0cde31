# SPDX-License-Identifier: Apache-2.0
"""Threads that call a function periodically, and a backoff for items that have failed."""

from collections.abc import Callable, Collection
import threading
import time
from typing import NamedTuple

MIN_BACKOFF = 5.0
MAX_BACKOFF = 300.0
"""Seconds to wait after a failure; each further failure of the same item doubles them."""


class PeriodicThread(threading.Thread):
    """A thread that calls a function, and calls it again some time after each end.

    The first call is at once.  stop() returns at once, also while a call hangs, and the thread
    does not keep the process from ending.  The libraries promise less: stop() of futurist's
    PeriodicWorker waits for the call in progress (15 s were measured with a call of 8 s), the
    process of an oslo.service looping call waits for it at its end, and neither has wake().

    :param interval: returns the seconds from the end of a call to the next one
    :param on_error: takes the exception of a failed call; the next call follows all the same
    """

    def __init__(
        self,
        name: str,
        call: Callable[[], object],
        interval: Callable[[], float],
        on_error: Callable[[Exception], object],
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._call = call
        self._interval = interval
        self._on_error = on_error
        self._wake = threading.Event()
        self._stop_requested = threading.Event()

    def wake(self) -> None:
        """Begin the next call now."""
        self._wake.set()

    def stop(self) -> None:
        """Begin no further call."""
        self._stop_requested.set()
        self._wake.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread, unless it was never started."""
        if self.ident is not None:
            super().join(timeout)

    def run(self) -> None:
        """Call the function until the thread is stopped."""
        while not self._stop_requested.is_set():
            try:
                self._call()
            except Exception as error:  # noqa: BLE001  on_error logs it
                self._on_error(error)
            self._wake.wait(self._interval())
            self._wake.clear()


class _Failure(NamedTuple):
    pause: float
    retry_at: float


class Backoff:
    """The items that have failed, by id, and when each may be tried again."""

    def __init__(self) -> None:
        self._failures: dict[str, _Failure] = {}

    def has_failed(self, item_id: str) -> bool:
        """Return whether an item has failed, and has not succeeded since."""
        return item_id in self._failures

    def may_retry(self, item_id: str) -> bool:
        """Return whether an item may be tried now."""
        failure = self._failures.get(item_id)
        return failure is None or time.monotonic() >= failure.retry_at

    def record_failure(self, item_id: str) -> float:
        """Delay the next try of an item; return the seconds until then."""
        failure = self._failures.get(item_id)
        pause = MIN_BACKOFF if failure is None else min(2 * failure.pause, MAX_BACKOFF)
        self._failures[item_id] = _Failure(pause, time.monotonic() + pause)
        return pause

    def restart_pause(self, item_id: str) -> None:
        """Let the pause of an item that has failed begin now."""
        if (failure := self._failures.get(item_id)) is not None:
            retry_at = time.monotonic() + failure.pause
            self._failures[item_id] = failure._replace(retry_at=retry_at)

    def record_success(self, item_id: str) -> None:
        """Remove the failures of an item."""
        self._failures.pop(item_id, None)

    def retain(self, item_ids: Collection[str]) -> None:
        """Remove all items but these: the others need no work any more."""
        self._failures = {
            item_id: failure for item_id, failure in self._failures.items() if item_id in item_ids
        }

    def clear(self) -> None:
        """Remove all items: the reason of their failures no longer applies."""
        self._failures.clear()
