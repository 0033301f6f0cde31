# SPDX-License-Identifier: Apache-2.0
"""Reads events once for all who watch at this process; used by polls and streams.

One thread looks for what is new as long as anybody watches, and keeps the last events in memory.
Who has fallen behind those reads from the database until it has caught up.
"""

from collections import deque
from collections.abc import Iterator, Sequence
import contextlib
import itertools
import os
import threading
import time
from typing import Any

from oslo_log import log

from attachd import exception
from attachd.conf import CONF
from attachd.db import events

LOG = log.getLogger(__name__)

Row = dict[str, Any]

PAGE = 500
"""How many events are read from the database at once."""
KEPT = 4 * PAGE
"""How many are kept in memory."""
_LINGERING = 5.0
"""Seconds that the thread goes on when nobody watches: most come back at once."""


class Hub:
    """What the watchers of one process share."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._watchers = 0
        self._thread: threading.Thread | None = None
        self._recent: deque[Row] = deque(maxlen=KEPT)
        # The place before the first one in memory; places have no gaps.
        self._begin = 0
        self._closing = False
        self._complaint = ""  # what was wrong when the thread looked last

    @property
    def closing(self) -> bool:
        """Whether the process is about to end: nobody should go on watching."""
        return self._closing

    def enter(self) -> None:
        """Begin to watch; ends with :meth:`leave`.

        :raises Unavailable: too many do already
        """
        with self._news:
            if self._watchers >= CONF.events.max_watchers:
                raise exception.Unavailable(
                    reason=f"{CONF.events.max_watchers} watch at this process, and no more may "
                    "([events]max_watchers). Try again later, or ask without wait.",
                    retry_after=1,
                )
            self._watchers += 1

    def leave(self) -> None:
        """Do not watch any more."""
        with self._news:
            self._watchers -= 1

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch for the time of a block."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def behind(self, place: int, seconds: float) -> Sequence[Row]:
        """Return the next events behind a place, and wait for them if there are none.

        :param seconds: how long at most
        :returns: at most PAGE, in order and without gaps; none if nothing happened
        :raises EventsForgotten: they are not kept any more
        """
        deadline = time.monotonic() + seconds
        if self._thread is None:
            self._make_thread(events.give_places().given)
        with self._news:
            while self._thread is not None and place >= self._end:
                left = deadline - time.monotonic()
                if left <= 0 or self._closing or not self._news.wait(left):
                    return ()
            if self._begin <= place < self._end:
                start = place - self._begin
                return list(itertools.islice(self._recent, start, start + PAGE))
            end = self._end
        rows = events.after(place, PAGE)
        if place < end and (not rows or rows[0]["revision"] != place + 1):
            raise exception.EventsForgotten(since=place, given=end)
        return rows

    @property
    def _end(self) -> int:
        return self._begin + len(self._recent)

    def _make_thread(self, given: int) -> None:
        """Begin to look for news behind a place, unless somebody else has."""
        with self._news:
            if self._thread is None:
                self._begin_at(given)
                self._thread = threading.Thread(target=self._look, daemon=True, name="events")
                self._thread.start()

    def _begin_at(self, place: int) -> None:
        """Have nothing in memory, and go on behind a place."""
        with self._news:
            self._recent.clear()
            self._begin = place

    def _look(self) -> None:
        """Look for news until nobody has watched for some time."""
        watched = time.monotonic()
        while time.monotonic() < watched + _LINGERING and not self._closing:
            time.sleep(CONF.events.interval)
            if self._watchers:
                watched = time.monotonic()
                self._read()
        with self._news:
            self._thread = None
            self._news.notify_all()

    def _read(self) -> None:
        try:
            given = events.give_places().given
            if given < self._end:  # After a failover the database may have lost the last ones.
                self._begin_at(given)
            while self._end < given:
                self._add(events.after(self._end, PAGE), given)
        except Exception as error:  # noqa: BLE001  logged there
            self._complain(error)
        else:
            self._complaint = ""

    def _complain(self, error: Exception) -> None:
        """Log what is wrong, once as long as it is the same."""
        if self._complaint == (said := str(error)):
            return
        self._complaint = said
        foreseen = isinstance(error, exception.Unavailable)
        LOG.warning(
            "Watchers hear nothing at present: %s", said, exc_info=None if foreseen else error
        )

    def _add(self, rows: Sequence[Row], given: int) -> None:
        with self._news:
            first = rows[0]["revision"] - 1 if rows else given
            if first != self._end:  # What nobody here had read is not kept any more.
                self._begin_at(first)
            dropped = max(0, len(self._recent) + len(rows) - KEPT)
            self._recent.extend(rows)
            self._begin += dropped
            self._news.notify_all()

    def close(self) -> None:
        """Let nobody wait any longer: the process ends."""
        with self._news:
            self._closing = True
            self._news.notify_all()


_hub = Hub()


def the() -> Hub:
    """Return this process's hub."""
    return _hub


def _forget() -> None:
    """Begin anew: threads and locks are the parent's."""
    global _hub  # noqa: PLW0603  one hub per process is the point
    _hub = Hub()


os.register_at_fork(after_in_child=_forget)
