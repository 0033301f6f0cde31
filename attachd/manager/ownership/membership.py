# SPDX-License-Identifier: Apache-2.0
"""The membership of this process in the group of managers that serve one database.

A process is alive as long as it has a row in the table of processes: that is the one answer, for
leases, recovery and audit alike.  Each process renews its row by heartbeats.  There are two
reasons to remove the row of another process, and both lead to the same takeover of its work:

* Its heartbeats have stopped for ``member_timeout``.  This is a presumption, which holds for
  processes of every machine.
* Its liveness lock is free.  This is a proof, which needs no timeout, for processes of the same
  machine: each process keeps a file locked, and so do the tools that it runs; a file that is not
  locked belongs to a process that has ended, with all its tools.

Neither test can replace the other.  A suspended process keeps its lock although its heartbeats
have stopped, and the lock of another machine cannot be tested.

A process that was removed although it runs must not go on.  So each change at a backend is
preceded by a check whether the row was renewed recently enough (drivers/base.py), by a clock
that goes on while the process, or the machine, is suspended.
"""

from collections.abc import Callable, Iterator
import datetime
import fcntl
import functools
import os
from pathlib import Path
import threading
from typing import NamedTuple
import uuid

from oslo_log import log

from attachd import exception
from attachd.conf import CONF
from attachd.db.cluster import members
from attachd.drivers import base
from attachd.linux.boot import boot_clock
from attachd.periodics import PeriodicThread
from attachd.telemetry import metrics

LOG = log.getLogger(__name__)

_HEARTBEATS_PER_TIMEOUT = 6
"""How many times a row is renewed in the time after which its process counts as dead."""

_SAFE_FRACTION = 2 / 3
"""The share of that time in which a process can be certain that its row was not removed."""

_NOT_A_MEMBER = -1.0
"""The end of validity of a process that is not, or no longer, a member."""

_POLL_INTERVAL = 0.2
"""Seconds between two looks whether a process that waits to join is to stop."""


class _Observation(NamedTuple):
    """The last heartbeat of another process, and since when, by our clock, it is the last."""

    seen_at: datetime.datetime
    since: float


class Membership:
    """One process; it has an id from the beginning, and is alive for others once it has joined.

    :ivar id: the id in its row; a process that was removed joins again under a new one
    """

    def __init__(self) -> None:
        self.id = str(uuid.uuid4())
        self._valid_until: float | None = None
        self._observing_since = _NOT_A_MEMBER
        self._joined = threading.Event()
        self._liveness_lock: int | None = None
        self._leaving = False
        self._member_lost_callbacks: list[Callable[[], None]] = []
        self._observations: dict[str, _Observation] = {}
        # Two threads: waiting for locks of other rows must not delay our own heartbeat.
        self._threads = [
            PeriodicThread(name, call, _get_interval, functools.partial(_log_failure, subject))
            for name, call, subject in (
                ("membership", self.heartbeat, "The heartbeat of this process"),
                ("member-reaper", self.expire_dead_members, "The search for dead members"),
            )
        ]

    def on_member_lost(self, call: Callable[[], None]) -> None:
        """Register a call for each time when dead members were removed, in the reaper's thread."""
        self._member_lost_callbacks.append(call)

    def start(self) -> None:
        """Join, now or as soon as the database answers, and remain a member until stopped."""
        self._lock_liveness_file()
        if self._valid_until is None:
            self._valid_until = _NOT_A_MEMBER
        for thread in self._threads:
            thread.start()

    def wait_until_joined(self, stop: threading.Event) -> None:
        """Wait until this process has joined or is to stop; without start(), do not wait."""
        while self._valid_until is not None and not stop.is_set():
            if self._joined.wait(_POLL_INTERVAL):
                return

    def stop(self) -> None:
        """Leave, unless a tool that this process has started still runs.

        In that case other members remove this process when the tool has ended.
        """
        self._leaving = True
        for thread in self._threads:
            thread.stop()
        for thread in self._threads:
            thread.join(_get_interval())
        self._valid_until = _NOT_A_MEMBER
        self._unlock_liveness_file()
        try:
            self._expire_if_unlocked(_liveness_dir() / self.id)
        except exception.AttachdError as error:
            LOG.warning("Process %s: not removed, left to other members: %s", self.id, error)

    def is_oldest(self) -> bool:
        """Return whether this process has joined before all other members.

        :raises Unavailable: the database does not answer
        """
        if self._valid_until is None:
            return True  # It was never started, and there are no other members.
        return [row["id"] for row in members.list_living()][:1] == [self.id]

    def check(self, holder: str) -> None:
        """Check that this process is surely still the member that began some work.

        :param holder: its id at that time
        :raises BackendUnreachable: it may have been removed; never final
        """
        # Read before the id, which changes first when this process joins again.
        valid_until = self._valid_until
        if valid_until is None:
            return  # It was never started, and there are no other members.
        if holder != self.id or boot_clock() > valid_until:
            raise exception.BackendUnreachable(
                "This manager may have been removed from the group while it worked; the others "
                "finish the operation. Repeat the call."
            )

    def heartbeat(self) -> None:
        """Renew the row, or join.

        :raises Unavailable: the database does not answer
        """
        started = boot_clock()
        if self._joined.is_set():
            if not members.heartbeat(self.id):
                self._rejoin()
                return
            self._extend_validity(started)
            return
        self._join()
        # Callers that wait for us to join read rows next, and must not find dead members in them.
        self._expire_unlocked()
        self._joined.set()

    def expire_dead_members(self) -> None:
        """Remove the members that are surely dead, and those whose heartbeats have stopped.

        :raises Unavailable: the database does not answer
        """
        if expired := self._expire_unlocked() + self._expire_stale():
            metrics.count(metrics.RECOVERED, "", "remove_member", by=expired)
            self._notify_member_lost()

    def _rejoin(self) -> None:
        if self._leaving:
            return  # This process has removed its row itself.
        LOG.warning("Process %s: removed by another member, joins again under a new id", self.id)
        (_liveness_dir() / self.id).unlink(missing_ok=True)
        self._unlock_liveness_file()
        self._valid_until = _NOT_A_MEMBER  # before the id changes: no check may pass in between
        self.id = str(uuid.uuid4())
        self._lock_liveness_file()
        self._join()
        self._notify_member_lost()  # of the former id

    def _join(self) -> None:
        started = boot_clock()
        members.join(self.id, f"{os.uname().nodename}:{os.getpid()}")
        self._extend_validity(started)

    def _extend_validity(self, started: float) -> None:
        """Be certain of the membership for some time after the start of a heartbeat."""
        if self._valid_until is not None and started > self._valid_until:
            # First this: a process that was suspended or cut off has not observed the others.
            self._observing_since = boot_clock()
        self._valid_until = started + CONF.manager.member_timeout * _SAFE_FRACTION

    def _notify_member_lost(self) -> None:
        for call in self._member_lost_callbacks:
            call()

    def _expire_unlocked(self) -> int:
        """Remove the members of this machine whose liveness lock is free; return how many."""
        others = [path for path in _liveness_files() if path.name != self.id]
        return sum(self._expire_if_unlocked(path) for path in others)

    def _expire_stale(self) -> int:
        """Remove the members whose rows have not changed for too long, by our own clock.

        Only a process that has run all that time can judge; one that is not certain of its own
        membership removes no member.
        """
        asked, timeout = boot_clock(), CONF.manager.member_timeout
        if self._valid_until is not None and asked > self._valid_until:
            return 0
        rows = members.list_living()
        previous, self._observations = self._observations, {}
        answered = boot_clock()
        dead = 0
        for row in rows:
            before = previous.get(row["id"])
            if row["id"] == self.id:
                continue
            if before is None or before.seen_at != row["seen_at"]:
                self._observations[row["id"]] = _Observation(row["seen_at"], answered)
            elif asked - max(before.since, self._observing_since) <= timeout:
                self._observations[row["id"]] = before
            else:
                dead += members.expire(row["id"], row["seen_at"])
        return dead

    def _expire_if_unlocked(self, path: Path) -> bool:
        """Remove a process of this machine if neither it nor one of its tools runs."""
        file = _try_lock(path)
        if file is None:
            return False
        try:
            was_member = members.expire(path.name)
            path.unlink(missing_ok=True)
        finally:
            os.close(file)
        return was_member

    def _lock_liveness_file(self) -> None:
        path = _liveness_dir() / self.id
        while self._liveness_lock is None:
            file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_same_file(path, file):
                self._liveness_lock = file
                base.add_liveness_fd(file)
            else:  # Another member removed it as that of a dead process before it was locked.
                os.close(file)

    def _unlock_liveness_file(self) -> None:
        if self._liveness_lock is not None:
            base.remove_liveness_fd(self._liveness_lock)
            os.close(self._liveness_lock)
            self._liveness_lock = None


def _get_interval() -> float:
    return float(CONF.manager.member_timeout / _HEARTBEATS_PER_TIMEOUT)


def _log_failure(subject: str, error: Exception) -> None:
    foreseen = isinstance(error, exception.AttachdError)
    log_it = LOG.warning if foreseen else LOG.error
    log_it("%s failed: %s", subject, error, exc_info=None if foreseen else error)


def _liveness_dir() -> Path:
    folder = Path(CONF.state_path) / "processes"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _liveness_files() -> Iterator[Path]:
    return _liveness_dir().iterdir()


def _try_lock(path: Path) -> int | None:
    """Return a lock on a file that no process has locked, or None."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        LOG.debug("Liveness file %s: not readable: %s", path, error)
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def _is_same_file(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False
