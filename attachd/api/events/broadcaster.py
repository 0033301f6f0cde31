# SPDX-License-Identifier: Apache-2.0
"""The broadcaster: reads new events once for all subscribers of a process.

One thread polls the database as long as there are subscribers, and caches the latest events.  A
subscriber that has fallen behind the cache reads from the database until it has caught up.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
import contextlib
import dataclasses
import itertools
import os
import threading
import time
from typing import NamedTuple

from oslo_log import log

from attachd import exception
from attachd.conf import CONF
from attachd.db.attachments import events
from attachd.db.row_types import NumberedEventRow

LOG = log.getLogger(__name__)

PAGE_SIZE = 500
"""Number of events that are read from the database at once."""
CACHE_SIZE = 4 * PAGE_SIZE
"""Number of events in the cache."""
_IDLE_TIMEOUT = 5.0
"""Seconds that the thread continues without subscribers: most of them return at once."""


class Subscriber(NamedTuple):
    """On whose behalf a client watches."""

    project_id: str | None
    user_id: str | None


@dataclasses.dataclass(slots=True)
class SharedEvent:
    """An event of the cache, which several subscribers send.

    :ivar encoded: what is sent: False is the key of the view of users, True of administrators
    """

    row: NumberedEventRow
    encoded: dict[bool, bytes] = dataclasses.field(default_factory=dict)


class Batch(NamedTuple):
    """Some events, in order.

    :ivar revision: up to which they are complete
    """

    events: Sequence[SharedEvent]
    revision: int


class Broadcaster:
    """The event source that the subscribers of one process share."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._subscribers: Counter[Subscriber] = Counter()
        self._thread: threading.Thread | None = None
        self._cache: deque[SharedEvent] = deque(maxlen=CACHE_SIZE)
        # The revision before the first one in the cache; revisions have no gaps.
        self._start = 0
        self._closing = False
        self._last_error = ""  # of the last poll, to log it once

    @property
    def closing(self) -> bool:
        """Whether the process is about to end, so that subscribers have to stop."""
        return self._closing

    def subscribe(self, subscriber: Subscriber) -> None:
        """Add a subscriber; ends with :meth:`unsubscribe`.

        :raises Unavailable: the process, the project or the user has too many
        """
        with self._changed:
            self._check_limits(subscriber)
            self._subscribers[subscriber] += 1

    def _check_limits(self, new: Subscriber) -> None:
        counts = self._subscribers
        of_project = sum(counts[item] for item in counts if item.project_id == new.project_id)
        of_user = sum(counts[item] for item in counts if item.user_id == new.user_id)
        for owner, count, option in (
            ("This process", counts.total(), "max_watchers"),
            (f"Project {new.project_id}", of_project, "max_watchers_per_project"),
            (f"User {new.user_id}", of_user, "max_watchers_per_user"),
        ):
            if count >= (limit := CONF.events[option]):
                raise exception.Unavailable(
                    reason=f"{owner} has {limit} watchers at this process, as many as "
                    f"[events]{option} allows. Try again later, or without wait.",
                    retry_after=1,
                )

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Remove a subscriber."""
        with self._changed:
            self._subscribers[subscriber] -= 1
            if not self._subscribers[subscriber]:
                del self._subscribers[subscriber]

    @contextlib.contextmanager
    def subscribed(self, subscriber: Subscriber) -> Iterator[None]:
        """Subscribe for the time of a block."""
        self.subscribe(subscriber)
        try:
            yield
        finally:
            self.unsubscribe(subscriber)

    def read_after(self, revision: int, seconds: float, project_id: str | None = None) -> Batch:
        """Return the next events after a revision; wait for one if there are none.

        :param seconds: the timeout
        :param project_id: of which events are needed; None: of all
        :returns: at most PAGE_SIZE, also of other projects if they are in the cache; none at the
            timeout
        :raises EventsExpired: they are not stored any more
        """
        deadline = time.monotonic() + seconds
        if self._thread is None:
            self._start_thread(events.assign_sequence().assigned)
        with self._changed:
            while self._thread is not None and revision >= self._last:
                left = deadline - time.monotonic()
                if left <= 0 or self._closing or not self._changed.wait(left):
                    return Batch((), revision)
            if self._start <= revision < self._last:
                start = revision - self._start
                cached = list(itertools.islice(self._cache, start, start + PAGE_SIZE))
                return Batch(cached, revision + len(cached))
            end = self._last
        return _read_stored(revision, end, project_id)

    @property
    def _last(self) -> int:
        return self._start + len(self._cache)

    def _start_thread(self, given: int) -> None:
        """Start to poll for events after a revision, unless the thread runs already."""
        with self._changed:
            if self._thread is None:
                self._restart_at(given)
                self._thread = threading.Thread(target=self._run, daemon=True, name="events")
                self._thread.start()

    def _restart_at(self, revision: int) -> None:
        """Clear the cache, and continue after a revision."""
        with self._changed:
            self._cache.clear()
            self._start = revision

    def _run(self) -> None:
        """Poll until there were no subscribers for some time."""
        watched = time.monotonic()
        while time.monotonic() < watched + _IDLE_TIMEOUT and not self._closing:
            time.sleep(CONF.events.interval)
            if self._subscribers:
                watched = time.monotonic()
                self._poll()
        with self._changed:
            self._thread = None
            self._changed.notify_all()

    def _poll(self) -> None:
        try:
            given = events.assign_sequence().assigned
            if given < self._last:  # After a failover the database may have lost the last ones.
                self._restart_at(given)
            while self._last < given:
                self._append(events.list_after(self._last, PAGE_SIZE), given)
        except Exception as error:  # noqa: BLE001  _log_once() logs it
            self._log_once(error)
        else:
            self._last_error = ""

    def _log_once(self, error: Exception) -> None:
        """Log an error, once as long as it stays the same."""
        if self._last_error == (said := str(error)):
            return
        self._last_error = said
        foreseen = isinstance(error, exception.Unavailable)
        LOG.warning("Watch: reading events failed: %s", said, exc_info=None if foreseen else error)

    def _append(self, rows: Sequence[NumberedEventRow], given: int) -> None:
        with self._changed:
            first = rows[0]["revision"] - 1 if rows else given
            if first != self._last:  # Events were purged before this process read them.
                self._restart_at(first)
            dropped = max(0, len(self._cache) + len(rows) - CACHE_SIZE)
            self._cache.extend(map(SharedEvent, rows))
            self._start += dropped
            self._changed.notify_all()

    def close(self) -> None:
        """Wake up all subscribers, because the process ends."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()


def _read_stored(revision: int, end: int, project_id: str | None) -> Batch:
    """Read events that are not in the cache.

    :param end: a revision that was assigned before
    """
    rows = events.list_after(revision, PAGE_SIZE, project_id)
    # Some may have been purged before or during the read.
    if revision < events.sequence().purged:
        raise exception.EventsExpired(since=revision, given=end)
    last = rows[-1]["revision"] if rows else revision
    shared = [SharedEvent(row) for row in rows]
    return Batch(shared, last if len(rows) == PAGE_SIZE else max(last, end))


_broadcaster = Broadcaster()


def get() -> Broadcaster:
    """Return the broadcaster of this process."""
    return _broadcaster


def _reset_after_fork() -> None:
    """Replace the broadcaster, whose threads and locks are those of the parent process."""
    global _broadcaster  # noqa: PLW0603  one broadcaster per process
    _broadcaster = Broadcaster()


os.register_at_fork(after_in_child=_reset_after_fork)
