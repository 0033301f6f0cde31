# SPDX-License-Identifier: Apache-2.0
"""The lease of a host, as its agent knows it: when it is over, writers are stopped.

The clock is monotonic and goes on while the host is suspended, so that a host that wakes up finds
its lease over.  No time of day is used.  A lease begins when the report was sent that renewed it;
for the managers it begins later, when they have stored the report.  The agent ends it after two
thirds, so that writers have been stopped when the managers fence the host.
"""

from collections.abc import Callable
import contextlib
import functools
import json
from pathlib import Path
import threading
from typing import Final, NamedTuple

from oslo_log import log

from attachd import exception
from attachd.agent.host import Host
from attachd.agent.journal import Entry, Owner
from attachd.linux import boot
from attachd.linux.boot import boot_clock
from attachd.lost_agents import HEARTBEATS_PER_LEASE, STOP_AFTER
from attachd.periodics import PeriodicThread

LOG = log.getLogger(__name__)

INTERVAL: Final = 0.5
"""Seconds between two looks at the clock."""
MIN_BACKOFF: Final = 0.5
MAX_BACKOFF: Final = 10.0
"""Seconds until writers are stopped again after a failure; each further one doubles them."""
REPEAT_INTERVAL: Final = 5.0
"""Seconds until writers are stopped again that were stopped: a path to the disk may be new."""
_IDLE_INTERVAL: Final = 5.0
"""Seconds between two looks of an agent that has no lease."""
_MIN_TIMEOUT: Final = 2.0
"""The least number of seconds that a report waits for its answer."""
_FILE: Final = "agent.lease"


class HostLease:
    """The lease of a host; used by any number of threads.

    It is kept in a file, so that the next process of the agent knows it.  After a reboot there are
    neither devices nor a lease.

    :param state_path: the directory of the host's state
    :param clock: as boot_clock()
    """

    def __init__(self, state_path: Path, clock: Callable[[], float] = boot_clock) -> None:
        self._path = state_path / _FILE
        self._clock = clock
        self._lock = threading.Lock()
        self._boot_id = boot.read_id()
        self._length: float | None = None
        self._until: float | None = None
        self._load()

    def _load(self) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            stored = json.loads(self._path.read_text(encoding="ascii"))
            if stored["boot_id"] == self._boot_id:
                self._length, self._until = float(stored["length"]), float(stored["until"])

    def now(self) -> float:
        """Return the present by the clock of the lease."""
        return self._clock()

    def renew(self, sent_at: float, length: float | None) -> None:
        """Record that a report was accepted.

        :param sent_at: before the report was sent, as of :meth:`now`
        :param length: in seconds; None: writers may go on without a limit
        """
        until = None if length is None else sent_at + length * STOP_AFTER
        self._set(length, until)

    def end(self) -> None:
        """Record that the host is fenced."""
        self._set(self._length or 0.0, 0.0)

    def _set(self, length: float | None, until: float | None) -> None:
        with self._lock:
            if (length, until) == (self._length, self._until):
                return
            self._length, self._until = length, until
            values = {"boot_id": self._boot_id, "length": length, "until": until}
            new = self._path.with_suffix(".new")
            try:
                new.write_text(json.dumps(values), encoding="ascii")
                new.rename(self._path)
            except OSError as error:
                LOG.warning("%s cannot be written: %s", self._path, error.strerror)

    def get_length(self) -> int | None:
        """Return how many seconds it lasts; None: there is none."""
        return None if self._length is None else int(self._length)

    def exists(self) -> bool:
        """Return whether there is a limit for writers."""
        return self._until is not None

    def is_over(self) -> bool:
        """Return whether writers have to be stopped."""
        until = self._until
        return until is not None and self.now() >= until

    def check(self) -> None:
        """Check that a device may be made.

        :raises HostError: the lease is over
        """
        if self.is_over():
            raise exception.HostError(
                reason="The lease of this host is over: its reports do not reach a manager, or it "
                "is fenced. Another host may have the volume. No device is made until a report is "
                "accepted."
            )

    def shorten(self, seconds: float) -> float:
        """Return an interval between reports that renews the lease often enough.

        :param seconds: the interval without a lease
        """
        return seconds if not self._length else min(seconds, self._length / HEARTBEATS_PER_LEASE)

    def get_timeout(self, seconds: float) -> float:
        """Return how long a report may wait for its answer, before it is sent again.

        :param seconds: the timeout without a lease
        """
        return max(_MIN_TIMEOUT, self.shorten(seconds))


class _Attempt(NamedTuple):
    """The last stop of the writers of a volume.

    :ivar entry: as it was read then
    :ivar pause: in seconds
    :ivar repeat_at: by the clock of the lease
    """

    entry: Entry
    pause: float
    repeat_at: float


class HostLeaseGuard(PeriodicThread):
    """Stops the writers of a host whose lease is over, until it is renewed."""

    def __init__(self, host: Host, host_lease: HostLease) -> None:
        super().__init__("lease-guard", self.run_once, self._get_interval, self._log_failure)
        self._host = host
        self._lease = host_lease
        self._stopping: dict[str, threading.Thread] = {}
        self._attempts: dict[str, _Attempt] = {}
        self._is_over = False

    def _get_interval(self) -> float:
        return INTERVAL if self._lease.exists() else _IDLE_INTERVAL

    @staticmethod
    def _log_failure(error: Exception) -> None:
        LOG.error("Writers could not be stopped, trying again: %s", error)

    def run_once(self) -> None:
        """Stop all writers if the lease is over, each in a thread: one may hang.

        What has failed is tried again with backoff.  A device whose writers are stopped is left
        alone for some seconds, unless its entry changes: it may have been made again.

        :raises HostError: the journal cannot be read
        """
        if not self._lease.is_over():
            self._is_over = False
            self._attempts = {}
            return
        if not self._is_over:
            LOG.warning(
                "The lease of this host is over: all writers are stopped. What was written and "
                "not synced is lost"
            )
        self._is_over = True
        entries = [item for item in self._host.journal.list_entries() if _may_write(item)]
        for entry in entries:
            if self._may_stop(entry):
                call = functools.partial(self._stop_writers, entry)
                self._stopping[entry.id] = threading.Thread(target=call, daemon=True)
                self._stopping[entry.id].start()
        known = {entry.id for entry in entries}
        self._stopping = {id_: one for id_, one in self._stopping.items() if id_ in known}

    def _may_stop(self, entry: Entry) -> bool:
        """Return whether writers have to be stopped now."""
        running, last = self._stopping.get(entry.id), self._attempts.get(entry.id)
        if running is not None and running.is_alive():
            return False
        return last is None or last.entry != entry or self._lease.now() >= last.repeat_at

    def _stop_writers(self, entry: Entry) -> None:
        try:
            self._host.stop_writers(entry)
        except exception.HostError as error:
            LOG.warning("Volume %s: its writers are not stopped: %s", entry.volume_id, error)
        except Exception:
            LOG.exception("Volume %s: its writers are not stopped", entry.volume_id)
        else:
            # A device that the entry does not know may be about to be made.
            self._record(entry, 0.0 if entry.device is None else REPEAT_INTERVAL)
            return
        last = self._attempts.get(entry.id)
        pause = last.pause if last is not None and last.entry == entry else 0.0
        self._record(entry, min(max(2 * pause, MIN_BACKOFF), MAX_BACKOFF))

    def _record(self, entry: Entry, pause: float) -> None:
        self._attempts[entry.id] = _Attempt(entry, pause, self._lease.now() + pause)


def _may_write(entry: Entry) -> bool:
    return (
        entry.owner is Owner.AGENT
        and entry.connection_info is not None
        and entry.connection_info.get("access_mode") != "ro"
    )
