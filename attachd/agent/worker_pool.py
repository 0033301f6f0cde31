# SPDX-License-Identifier: Apache-2.0
"""The threads of an agent: a pool with backoff, a concurrency limit, and calls with a timeout.

A command of the host, or os-brick itself, may hang.  The attachment keeps its slot until the work
is killed, see linux/child_process.py; the agent reports it, and all other work continues.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
import contextlib
import dataclasses
import datetime
import math
import threading
from time import monotonic
from typing import Generic, TypeVar

from oslo_log import log

from attachd import exception
from attachd.periodics import Backoff
from attachd.rpc.agent_manager_api import HostReport

LOG = log.getLogger(__name__)

T = TypeVar("T")

MAX_NAMED = 10
"""How many attachments a message names."""

DEFAULT_TIMEOUT = 10.0
"""Seconds that a report waits for the host."""


class WorkerPool:
    """Threads that reconcile attachments; a failed one is retried with exponential backoff.

    :param reconcile: as Reconciler.reconcile()
    """

    def __init__(self, reconcile: Callable[[str], None], threads: int) -> None:
        self._reconcile = reconcile
        self._pool = futures.ThreadPoolExecutor(threads, thread_name_prefix="reconcile")
        self._lock = threading.Lock()
        self._stopped = False
        self._in_progress: dict[str, futures.Future[None]] = {}
        self._backoff = Backoff()

    def submit(self, attachment_ids: Iterable[str]) -> None:
        """Reconcile attachments, except those in progress and those that wait for a retry."""
        for attachment_id in attachment_ids:
            with self._lock:
                waiting = not self._backoff.may_retry(attachment_id)
                if not (waiting or self._stopped or attachment_id in self._in_progress):
                    self._in_progress[attachment_id] = self._pool.submit(self._run, attachment_id)

    def reset_others(self, attachment_ids: Iterable[str]) -> None:
        """Reset the backoff of all attachments but these."""
        kept = set(attachment_ids)
        with self._lock:
            self._backoff.retain(kept)

    def reconcile_now(self, attachment_id: str) -> None:
        """Reconcile an attachment in this thread, without backoff; raises what it raises."""
        self._reconcile(attachment_id)
        with self._lock:
            self._backoff.record_success(attachment_id)

    def stop(self, timeout: float) -> bool:
        """Start no further work and wait for what is in progress; False: some goes on."""
        with self._lock:
            self._stopped = True
            in_progress = list(self._in_progress.values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        return not futures.wait(in_progress, timeout).not_done

    def _run(self, attachment_id: str) -> None:
        try:
            self.reconcile_now(attachment_id)
        except exception.Unavailable as error:
            LOG.debug("Attachment %s: not reconciled yet: %s", attachment_id, error)
        except exception.AttachdError as error:
            delay = self._increase_backoff(attachment_id)
            LOG.warning("Attachment %s: retry in %d s: %s", attachment_id, delay, error)
        except Exception:
            delay = self._increase_backoff(attachment_id)
            LOG.exception("Attachment %s: retry in %d s", attachment_id, delay)
        finally:
            with self._lock:
                self._in_progress.pop(attachment_id, None)

    def _increase_backoff(self, attachment_id: str) -> float:
        with self._lock:
            return self._backoff.record_failure(attachment_id)


@dataclasses.dataclass(frozen=True)
class InFlight:
    """An attachment that has a slot.

    :ivar since: the time when it got the slot, in UTC
    :ivar started: the same on the monotonic clock, in seconds
    """

    attachment_id: str
    since: datetime.datetime
    started: float


class ConcurrencyLimiter:
    """Lets a number of attachments be worked on at the same time, and finds those that hang.

    :param slots: how many
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._free = threading.BoundedSemaphore(slots)
        self._lock = threading.Lock()
        self._in_flight: list[InFlight] = []
        self._warned_of: list[InFlight] = []

    @contextlib.contextmanager
    def slot(self, attachment_id: str) -> Iterator[None]:
        """Take a slot for an attachment; waits for a free one."""
        with self._free:
            work = InFlight(attachment_id, datetime.datetime.now(datetime.UTC), monotonic())
            with self._lock:
                self._in_flight.append(work)
            try:
                yield
            finally:
                with self._lock:
                    self._in_flight.remove(work)

    def stuck(self, seconds: float) -> list[InFlight]:
        """Return what has had a slot for longer than some seconds, longest first."""
        now = monotonic()
        with self._lock:
            return [work for work in self._in_flight if now - work.started > seconds]

    def add_to_report(self, report: HostReport, seconds: float) -> HostReport:
        """Return a report of the host with an error about what is stuck, and log it once.

        Where all slots are stuck, the report has no connector: nothing can be attached.
        """
        stuck = self.stuck(seconds)
        if stuck and stuck != self._warned_of:
            LOG.warning("%s", self.describe_stuck(stuck))
        self._warned_of = stuck
        if not stuck or report["error"]:
            return report
        connector = None if len(stuck) >= self.slots else report["connector"]
        return {**report, "connector": connector, "error": self.describe_stuck(stuck)}

    def describe_stuck(self, stuck: Sequence[InFlight]) -> str:
        """Return a message about what is stuck."""
        names = [f"{work.attachment_id} (since {work.since:%Y-%m-%d %H:%M} UTC)" for work in stuck]
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        return (
            f"{len(stuck)} of {self.slots} places for work hang: a command of this host, such "
            "as iscsiadm or multipathd, or its kernel does not answer. Check its processes. "
            f"Attachments: {', '.join(names[:MAX_NAMED])}{more}."
        )


class CallTimeout(exception.HostError):
    """The call has not ended yet; it goes on."""

    msg_fmt = (
        "This host has not answered within %(seconds)d s: a command of it hangs, such as "
        "iscsiadm or multipathd. Check its processes."
    )


class TimeboxedCall(Generic[T]):
    """A call in a thread of its own, with a timeout; it starts anew only after its last end.

    :param timeout: in seconds; None: :data:`DEFAULT_TIMEOUT`
    :ivar timeout: the usual one, in seconds
    """

    def __init__(self, timeout: float | None = None) -> None:
        self.timeout = DEFAULT_TIMEOUT if timeout is None else timeout
        self._started: futures.Future[T] | None = None

    def run(self, function: Callable[[], T], timeout: float | None = None) -> T:
        """Return the result of this call, or of an earlier one that was still in progress.

        Used by one thread only.

        :param timeout: a shorter one for this call; None: the usual one
        :raises CallTimeout: the call goes on
        :raises: what the call raises
        """
        if self._started is None:
            self._started = futures.Future()
            # A daemon thread: the process can end while the call hangs.
            threading.Thread(target=_call, args=(function, self._started), daemon=True).start()
        seconds = self.timeout if timeout is None else min(timeout, self.timeout)
        if not futures.wait([self._started], seconds).done:
            raise CallTimeout(seconds=math.ceil(seconds))
        ended, self._started = self._started, None
        return ended.result()


def _call(function: Callable[[], T], result: futures.Future[T]) -> None:
    try:
        result.set_result(function())
    except BaseException as error:  # noqa: BLE001  the waiting thread raises it
        result.set_exception(error)
