# SPDX-License-Identifier: Apache-2.0
"""Server-sent events: a response that lasts as long as its client stays connected.

Each event has its revision as its id, which browsers and libraries send back as Last-Event-ID when
they reconnect.  Without events, the id alone is sent as a heartbeat: it shows the client up to
which revision events were read, and detects a client that has disconnected.
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
"""Seconds between two heartbeats."""
RECONNECT_DELAY_MS = 1000
"""Milliseconds that a client waits before it reconnects."""


class EventStream(serialization.StreamingBody):
    """The body of a response; the web server iterates over it and closes it.

    :param revision: events after this one are sent
    :raises Unavailable: the process, the project or the user has too many subscribers
    """

    def __init__(
        self,
        feed: broadcaster.Broadcaster,
        subscriber: broadcaster.Subscriber,
        event_query: EventQuery,
        revision: int,
    ) -> None:
        self._feed = feed
        self._subscriber = subscriber
        self._event_query = event_query
        self._revision = revision
        self._unsubscribed = threading.Lock()
        feed.subscribe(subscriber)

    def __iter__(self) -> Iterator[bytes]:
        """Yield one or more events, or a heartbeat, at a time."""
        try:
            yield from self._chunks()
        except exception.AttachdError as error:
            # The status is already sent: the client reconnects, and gets the error then.
            LOG.warning("Event stream ended: %s", error)
        finally:
            self.close()

    def _chunks(self) -> Iterator[bytes]:
        yield f"retry: {RECONNECT_DELAY_MS}\nid: {self._revision}\n\n".encode()
        until = time.monotonic() + CONF.events.longest_watch
        while not self._feed.closing and (left := until - time.monotonic()) > 0:
            batch = self._feed.read_after(
                self._revision, min(HEARTBEAT, left), self._event_query.project_id
            )
            chunks = [
                self._encode(event)
                for event in batch.events
                if self._event_query.matches(event.row)
            ]
            self._revision = batch.revision
            yield b"".join(chunks) or f"id: {self._revision}\n\n".encode()

    def _encode(self, event: broadcaster.SharedEvent) -> bytes:
        """Return an encoded event; it is kept for all subscribers with the same view."""
        internals = self._event_query.internals
        if internals not in event.encoded:
            head = f"id: {event.row['revision']}\nevent: attachment\ndata: ".encode()
            shown = view.event(event.row, internals=internals)
            event.encoded[internals] = head + serialization.encode(shown) + b"\n\n"
        return event.encoded[internals]

    def close(self) -> None:
        """Unsubscribe; may be called several times."""
        if self._unsubscribed.acquire(blocking=False):
            self._feed.unsubscribe(self._subscriber)
