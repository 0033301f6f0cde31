# SPDX-License-Identifier: Apache-2.0
"""Server-sent events: an answer that goes on for as long as its client listens.

Each event has its revision for an id, which browsers and libraries send back as Last-Event-ID when
they connect again.  When nothing is to be told, that id alone is sent: it says how far everything
has been looked through, and it finds out whether the client is still there.
"""

from collections.abc import Iterator
import threading
import time

from oslo_log import log

from attachd import exception
from attachd.api import serialization
from attachd.api.events import broadcaster, view
from attachd.api.events.parameters import EventQuery
from attachd.conf import CONF

LOG = log.getLogger(__name__)

CONTENT_TYPE = "text/event-stream"
HEARTBEAT = 10.0
"""Seconds after which something is sent, at the latest."""
RECONNECT_DELAY_MS = 1000
"""Milliseconds that a client should wait before it connects again."""


class EventStream(serialization.StreamingBody):
    """The body of an answer; a web server iterates over it and closes it.

    :param place: where it begins
    :raises Unavailable: too many watch at this process
    """

    def __init__(
        self, feed: broadcaster.Broadcaster, event_query: EventQuery, revision: int
    ) -> None:
        self._feed = feed
        self._event_query = event_query
        self._revision = revision
        self._unsubscribed = threading.Lock()
        feed.subscribe()

    def __iter__(self) -> Iterator[bytes]:
        """Yield one or more events at a time."""
        try:
            yield from self._chunks()
        except exception.AttachdError as error:
            # The status was sent long ago: the client connects again, and hears what is wrong.
            LOG.warning("A stream of events ends: %s", error)
        finally:
            self.close()

    def _chunks(self) -> Iterator[bytes]:
        yield f"retry: {RECONNECT_DELAY_MS}\nid: {self._revision}\n\n".encode()
        until = time.monotonic() + CONF.events.longest_watch
        while not self._feed.closing and (left := until - time.monotonic()) > 0:
            rows = self._feed.read_after(self._revision, min(HEARTBEAT, left))
            told = [self._event(row) for row in rows if self._event_query.wants(row)]
            self._revision += len(rows)
            yield b"".join(told) or f"id: {self._revision}\n\n".encode()

    def _event(self, row: broadcaster.Row) -> bytes:
        """Return what is sent of an event: the same for all who may see as much of it."""
        kept = "sent to administrators" if self._event_query.internals else "sent"
        if kept not in row:
            head = f"id: {row['revision']}\nevent: attachment\ndata: ".encode()
            told = view.event(row, internals=self._event_query.internals)
            row[kept] = head + serialization.encode(told) + b"\n\n"
        sent: bytes = row[kept]
        return sent

    def close(self) -> None:
        """Do not watch any more; may be called several times."""
        if self._unsubscribed.acquire(blocking=False):
            self._feed.unsubscribe()
