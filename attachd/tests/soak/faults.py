# SPDX-License-Identifier: Apache-2.0
"""Kills according to the plan of a soak, and the duration of each recovery."""

from collections.abc import Callable, Iterable, Sequence
import contextlib
import enum
import heapq
import random
import statistics
import threading
import time
from typing import Any, NamedTuple

import sqlalchemy as sa

from attachd.db import models
from attachd.states import AttachmentState, SnapshotState, VolumeState
from attachd.tests.soak import plan
from attachd.tests.soak.deployment import KINDS, Restart, SoakDeployment
from attachd.tests.soak.history import Success
from attachd.tests.wait import wait_until

_POLL_INTERVAL = 0.05
_POLL_EVERY = 0.2
_LONGEST_WAIT = 1.0
_SLOW = 5.0
"""Seconds after which the report names a row that is still in a transitional state."""
Orphans = frozenset[tuple[str, str, int]]
"""Rows in transitional states: id, state, generation, which is 0 for those without one."""


def _in_states(table: sa.Table, *states: enum.StrEnum) -> sa.Select[Any]:
    generation = table.c.get("generation", sa.literal(0))
    found = sa.select(table.c.id, table.c.state, generation)
    return found.where(table.c.state.in_([state.value for state in states]))


_ATTACHING = (
    _in_states(models.attachments, AttachmentState.CONNECTING, AttachmentState.DISCONNECTING),
)
_COPYING = (
    _in_states(models.snapshots, SnapshotState.CREATING, SnapshotState.DELETING),
    _in_states(
        models.volumes,
        *(VolumeState.CREATING, VolumeState.REVERTING, VolumeState.UPLOADING),
    ),
)
_ALL = sa.union_all(*_ATTACHING, *_COPYING)


class Killed(NamedTuple):
    """A kill that was done; moments are of time.monotonic().

    :ivar ready: when what was killed was up again; for a worker, when it was killed
    """

    kind: str
    moment: float
    ready: float


class Recovery(NamedTuple):
    """Durations after a kill, in seconds; None: it did not happen in this run.

    :ivar success: until a call that was sent after it succeeded
    :ivar left: the rows that it left in transitional states
    :ivar rest: until none of them was in that state any more
    :ivar last: those of them that were in that state for longest
    """

    kind: str
    success: float | None
    left: Orphans
    rest: float | None
    last: Orphans


class Wrecker:
    """Kills and restarts processes; its thread has to live as long as the run."""

    def __init__(
        self, stage: SoakDeployment, watch: "Watch", seed: int, say: Callable[[str], None]
    ) -> None:
        self._stage = stage
        self._watch = watch
        self._seed = seed
        self._say = say
        self._started_at = time.monotonic()
        # What is to be started again: (moment, which of two at the same, ...)
        self._down: list[tuple[float, int, Killed, Restart]] = []
        self._coming: list[tuple[Killed, Restart]] = []
        self._back: list[Killed] = []

    def wreak(self, kills: Iterable[plan.Kill], until: float) -> list[Killed]:
        """Kill and restart until a deadline; when it returns, all processes run.

        On a slow machine it ends later, when each kind has been killed once.
        """
        for kill in kills:
            if time.monotonic() > until and kill.number >= len(KINDS):
                break
            self._wait(self._started_at + kill.after)
            if not kill.overlaps:
                self._wait_until_all_is_back()
            self._kill(kill)
        self._wait(until)
        self._wait_until_all_is_back()
        return sorted(self._back, key=lambda item: item.moment)

    def _kill(self, kill: plan.Kill) -> None:
        # By turns, one of the two in progress.
        self._watch.wait_for_work(_ATTACHING if kill.number % 2 else _COPYING, _LONGEST_WAIT)
        killed = Killed(kill.kind, time.monotonic(), 0.0)
        revival = self._stage.kill(kill.kind, random.Random(f"{self._seed}/kill-{kill.number}"))
        self._say(f"{killed.moment - self._started_at:7.1f} s: killed {kill.kind}")
        heapq.heappush(self._down, (killed.moment + kill.outage, kill.number, killed, revival))

    def _wait(self, moment: float) -> None:
        while time.monotonic() < moment:
            time.sleep(_POLL_INTERVAL)  # a soak lasts as long as it is asked to
            self._poll()

    def _wait_until_all_is_back(self) -> None:
        def is_back() -> bool:
            self._poll()
            return not (self._down or self._coming)

        wait_until(
            is_back,
            lambda: f"{[killed.kind for killed, _ in self._coming]} does not come back",
            interval=_POLL_INTERVAL,
        )

    def _poll(self) -> None:
        while self._down and self._down[0][0] <= time.monotonic():
            *_, killed, revival = heapq.heappop(self._down)
            revival.start()
            self._coming.append((killed, revival))
        for item in self._coming[:]:
            killed, revival = item
            if revival.is_ready():
                self._coming.remove(item)
                self._back.append(killed._replace(ready=time.monotonic()))


class Watch(threading.Thread):
    """Polls for the rows in transitional states."""

    def __init__(self, database: str) -> None:
        super().__init__(name="watch", daemon=True)
        self._engine = sa.create_engine(
            database, isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 5}
        )
        self._observed: list[tuple[float, Orphans]] = []
        self._lock = threading.Lock()
        self._stop_asked = threading.Event()

    def run(self) -> None:
        """Poll until stop()."""
        while not self._stop_asked.wait(_POLL_EVERY):
            self._poll()

    def wait_for_work(self, queries: Sequence[sa.Select[Any]], seconds: float) -> None:
        """Wait for a short time until one of some queries finds a row, for a kill to hit."""
        deadline, query = time.monotonic() + seconds, sa.union_all(*queries)
        while not self._poll(query) and time.monotonic() < deadline:
            time.sleep(_POLL_INTERVAL / 10)  # a kill without running work is valid, too
        self._poll()  # for left_at()

    def _poll(self, query: sa.CompoundSelect[Any] = _ALL) -> Orphans:
        with contextlib.suppress(sa.exc.SQLAlchemyError), self._engine.connect() as connection:
            moment = time.monotonic()
            rows = frozenset((a, b, c) for a, b, c in connection.execute(query))
            if query is _ALL:
                with self._lock:
                    self._observed.append((moment, rows))
            return rows
        return frozenset()

    def stop(self) -> None:
        """Stop polling."""
        self._stop_asked.set()
        self.join()
        self._engine.dispose()
        self._observed.sort(key=lambda item: item[0])

    def left_at(self, moment: float) -> Orphans:
        """Return the rows in transitional states at a moment, as far as known."""
        left: Orphans = frozenset()
        for seen, rows in self._observed:
            if seen > moment:
                break
            left = rows
        return left

    def rest_after(self, moment: float) -> float | None:
        """Return when none of the rows of left_at() was in that state any longer."""
        left = self.left_at(moment)
        later = (seen for seen, rows in self._observed if seen > moment and not left & rows)
        return next(later, None)

    def last_after(self, moment: float) -> Orphans:
        """Return those rows of left_at() that were in that state for longest."""
        left = last = self.left_at(moment)
        for seen, rows in self._observed:
            if seen > moment and not left & rows:
                break
            last = left & rows if seen > moment else last
        return last


def recoveries(
    killed: Sequence[Killed], successes: Sequence[Success], watch: Watch
) -> list[Recovery]:
    """Measure each kill."""
    return [
        Recovery(
            item.kind,
            _since(item.moment, _first(item.moment, successes)),
            watch.left_at(item.moment),
            _since(item.moment, watch.rest_after(item.moment)),
            watch.last_after(item.moment),
        )
        for item in killed
    ]


def _first(moment: float, successes: Sequence[Success]) -> float | None:
    after = (success.answered for success in successes if success.invoked >= moment)
    return min(after, default=None)


def _since(moment: float, later: float | None) -> float | None:
    return None if later is None else later - moment


def table(found: Sequence[Recovery], killed: Sequence[Killed]) -> list[str]:
    """Return lines about how often each kind was killed and how long recovery took."""
    lines = []
    for kind in dict.fromkeys(recovery.kind for recovery in found):
        own = [recovery for recovery in found if recovery.kind == kind]
        away = [item.ready - item.moment for item in killed if item.kind == kind]
        resting = [item.rest for item in own if item.left]
        lines.append(
            f"{kind} killed {len(own)} times: away for {_spread(away)}; first success after "
            f"{_spread([item.success for item in own])}; left rows in transition {len(resting)} "
            f"times, for {_spread(resting)}"
        )
    slow = [recovery for recovery in found if recovery.rest is None or recovery.rest > _SLOW]
    lines += [
        f"  {row_id} was {state} (generation {generation}) for {_spread([item.rest])} after the "
        f"kill of {item.kind}"
        for item in slow
        for row_id, state, generation in sorted(item.last)
    ]
    return lines


def _spread(seconds: Sequence[float | None]) -> str:
    known = [second for second in seconds if second is not None]
    missing = len(seconds) - len(known)
    never = f", {missing} not seen" if missing else ""
    if not known:
        return f"-{never}"
    return f"{statistics.median(known):.1f} s (most {max(known):.1f} s{never})"
