# SPDX-License-Identifier: Apache-2.0
"""This process among those that serve the same database: alive, and known to be; for service.py.

Each process renews its row in the table of processes.  Who is silent for ``member_timeout`` is
removed from it by the others, and is dead from then on: what it was at is anybody's.  On one
machine nobody has to wait for that.  Each process keeps a file locked, and so do the tools that it
runs; a file that is free belongs to a process that is gone, with all its tools.

A process that was only thought to be dead must not go on.  So each change at a backend is
preceded by the question whether the row was renewed lately enough (drivers/fencing.py), by a clock
that goes on while the process, or the machine, sleeps.
"""

from collections.abc import Callable, Iterator
import datetime
import fcntl
import os
from pathlib import Path
import threading
import time
from typing import NamedTuple
import uuid

from oslo_log import log

from attachd import exception
from attachd.conf import CONF
from attachd.db import processes
from attachd.drivers import fencing
from attachd.telemetry import recorder
from attachd.telemetry.catalogue import RECOVERED

LOG = log.getLogger(__name__)

_BEATS = 6
"""How many times a row is renewed in the time after which its process counts as dead."""

_SURE = 2 / 3
"""The share of that time in which a process knows that nobody can have taken it for dead."""

_NEVER = -1.0
"""Until when a process is sure of it that is not, or not any more, among the others."""

_GLANCE = 0.2
"""Seconds between two looks whether a process that waits to join is to stop."""


def boot_clock() -> float:
    """Return seconds of a clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class _Observation(NamedTuple):
    """Since when, by our clock, a process has not been seen again."""

    seen_at: datetime.datetime
    since: float


class Presence:
    """One process; it has an id from the beginning, and is alive for others once it has joined.

    :ivar id: as others know it; another one after it was taken for dead
    """

    def __init__(self) -> None:
        self.id = str(uuid.uuid4())
        self._sure_until: float | None = None
        self._awake_since = _NEVER
        self._joined = threading.Event()
        self._lifeline: int | None = None
        self._stop = threading.Event()
        self._bereaved: list[Callable[[], None]] = []
        self._observed: dict[str, _Observation] = {}
        # Apart from each other: who waits for the rows of others must not miss its own beat.
        self._threads = [
            threading.Thread(target=self._for_ever, args=(do, trouble), name=name, daemon=True)
            for name, do, trouble in (
                ("presence", self.beat, "Nobody can be told that this process lives"),
                ("undertaker", self.bury_the_dead, "Nobody can be found dead"),
            )
        ]

    def when_others_die(self, call: Callable[[], None]) -> None:
        """Have something called whenever others were found dead, by the thread that found it."""
        self._bereaved.append(call)

    def start(self) -> None:
        """Join the others, now or as soon as the database answers, and stay until told to stop."""
        self._hold_lifeline()
        if self._sure_until is None:
            self._sure_until = _NEVER
        for thread in self._threads:
            thread.start()

    def wait_until_joined(self, stop: threading.Event) -> None:
        """Wait until others know of this process, or it is to stop; one that is alone does not."""
        while self._sure_until is not None and not stop.is_set():
            if self._joined.wait(_GLANCE):
                return

    def stop(self) -> None:
        """Leave, unless a tool that this process has started still runs.

        In that case others find out when it has ended.
        """
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(CONF.manager.member_timeout / _BEATS)
        self._sure_until = _NEVER
        self._let_go_of_lifeline()
        try:
            self._bury_if_gone(_folder() / self.id)
        except exception.AttachdError as error:
            LOG.warning("Others have to find out by themselves that we are gone: %s", error)

    def check(self, holder: str) -> None:
        """Raise unless this process surely lives for others, as when work was begun.

        :param holder: its id at that time
        :raises BackendError: never final
        """
        # Read before the id, which changes first when this process comes back as another one.
        sure_until = self._sure_until
        if sure_until is None:
            return  # It was never to join others, and is alone.
        if holder != self.id or boot_clock() > sure_until:
            raise exception.BackendError(
                "This manager may have been taken for dead while it worked, so it has to leave "
                "the rest to others. Repeat the call."
            )

    def beat(self) -> None:
        """Renew the row, or join.

        :raises Unavailable: the database does not answer
        """
        begun = boot_clock()
        if self._joined.is_set():
            if not processes.renew(self.id):
                self._come_back()
                return
            self._be_sure(begun)
            return
        self._join()
        # Whoever waits for us to join looks at rows then, and is to see who is dead.
        self._bury_proven()
        self._joined.set()

    def bury_the_dead(self) -> None:
        """Remove those who are surely dead, or have been silent for too long.

        :raises Unavailable: the database does not answer
        """
        if buried := self._bury_proven() + self._bury_silent():
            recorder.count(RECOVERED, "", "bury", by=buried)
            self._tell_of_deaths()

    def _come_back(self) -> None:
        if self._stop.is_set():
            return  # It was us who removed it.
        LOG.warning("Process %s was taken for dead and goes on as another one", self.id)
        (_folder() / self.id).unlink(missing_ok=True)
        self._let_go_of_lifeline()
        self._sure_until = _NEVER  # before the id changes: nothing may pass in between
        self.id = str(uuid.uuid4())
        self._hold_lifeline()
        self._join()
        self._tell_of_deaths()  # of our former self

    def _join(self) -> None:
        begun = boot_clock()
        processes.join(self.id, f"{os.uname().nodename}:{os.getpid()}")
        self._be_sure(begun)

    def _be_sure(self, begun: float) -> None:
        """Know that nobody takes us for dead for a while after the beginning of a beat."""
        if self._sure_until is not None and begun > self._sure_until:
            # First this: whoever was asleep or cut off has not seen the others meanwhile.
            self._awake_since = boot_clock()
        self._sure_until = begun + CONF.manager.member_timeout * _SURE

    def _tell_of_deaths(self) -> None:
        for call in self._bereaved:
            call()

    def _for_ever(self, do: Callable[[], None], trouble: str) -> None:
        while True:
            try:
                do()
            except exception.AttachdError as error:
                LOG.warning("%s: %s", trouble, error)
            except Exception:
                LOG.exception(trouble)
            if self._stop.wait(CONF.manager.member_timeout / _BEATS):
                return

    def _bury_proven(self) -> int:
        """Remove those of this machine who are surely dead, and return how many."""
        others = [path for path in _lifelines() if path.name != self.id]
        return sum(self._bury_if_gone(path) for path in others)

    def _bury_silent(self) -> int:
        """Remove those whose rows have not changed for too long, by our own clock.

        Only who has been awake all that time can tell; a process that is not sure of its own
        life judges nobody.
        """
        asked, patience = boot_clock(), CONF.manager.member_timeout
        if self._sure_until is not None and asked > self._sure_until:
            return 0
        rows = processes.living()
        known, self._observed = self._observed, {}
        answered = boot_clock()
        dead = 0
        for row in rows:
            before = known.get(row["id"])
            if row["id"] == self.id:
                continue
            if before is None or before.seen_at != row["seen_at"]:
                self._observed[row["id"]] = _Observation(row["seen_at"], answered)
            elif asked - max(before.since, self._awake_since) <= patience:
                self._observed[row["id"]] = before
            else:
                dead += processes.bury(row["id"], row["seen_at"])
        return dead

    def _bury_if_gone(self, path: Path) -> bool:
        """Remove a process of this machine if neither it nor a tool of it is left."""
        file = _locked(path)
        if file is None:
            return False
        try:
            was_there = processes.bury(path.name)
            path.unlink(missing_ok=True)
        finally:
            os.close(file)
        return was_there

    def _hold_lifeline(self) -> None:
        path = _folder() / self.id
        while self._lifeline is None:
            file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_file_of(path, file):
                self._lifeline = file
                fencing.add_liveness_fd(file)
            else:  # Somebody took it for that of a dead one before it was locked.
                os.close(file)

    def _let_go_of_lifeline(self) -> None:
        if self._lifeline is not None:
            fencing.remove_liveness_fd(self._lifeline)
            os.close(self._lifeline)
            self._lifeline = None


def _folder() -> Path:
    folder = Path(CONF.state_path) / "processes"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _lifelines() -> Iterator[Path]:
    return _folder().iterdir()


def _locked(path: Path) -> int | None:
    """Return a lock on a file that nobody else has locked, or None."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        LOG.debug("%s tells nothing: %s", path, error)
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def _is_file_of(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False
