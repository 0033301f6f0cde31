# SPDX-License-Identifier: Apache-2.0
"""Send notifications in a thread of its own, in order.

Each process has one queue and one thread, created with the first notification.  While the message
queue refuses them, notifications are kept, and oslo.messaging retries as often as
[oslo_messaging_notifications]retry says.  Each loss is logged and counted: when the queue is full,
when the retries are exhausted, when the payload cannot be built, and when a process ends with
notifications in its queue.

If the start event of an operation is lost, its end event is not sent.

The notification drivers of oslo.messaging are called directly: its Notifier would write the time
of sending instead of that of the event, and would not retry a first connection.
"""

import atexit
from collections.abc import Callable, Iterable, Iterator, Mapping
import contextlib
import datetime
import functools
import logging as std_logging
import os
import queue
import threading
import time
from typing import Any, NamedTuple
import uuid

from oslo_context import context as oslo_context
from oslo_log import log
import oslo_messaging as messaging
from stevedore import named

from attachd import exception
from attachd.conf import CONF
from attachd.conf import messaging as conf_messaging

LOG = log.getLogger(__name__)

conf_messaging.register()
GROUP = conf_messaging.NOTIFICATIONS
_START = ".start"
_END = ".end"
QUEUE_SIZE = 10_000
"""How many notifications a process queues while the message queue refuses them."""

FLUSH_WAIT = 0.25
"""Seconds that a caller may wait for queued notifications."""

_MAX_REMEMBERED = 10_000
_PRIVATE = frozenset({"auth_token", "user_identity", "read_only", "show_deleted", "resource_uuid"})


class Event(NamedTuple):
    """One notification, before its payload is built.

    :ivar kind: the event_type, such as "volume.attach.start"
    :ivar about: the id of its subject
    :ivar payload: builds the payload; called once, in the sender's thread
    :ivar priority: info, warn or error
    :ivar on_end: called with whether it was sent, in any thread; None: nothing is
    """

    kind: str
    about: str
    publisher: str
    payload: Callable[[], Mapping[str, Any]]
    priority: str = "info"
    on_end: Callable[[bool], object] | None = None


class _Queued:
    """A notification in the queue.

    :ivar time: of the event, UTC without a zone
    :ivar done: set when it has been sent or lost
    """

    def __init__(self, event: Event) -> None:
        self.event = event
        self.context = oslo_context.get_current()
        self.time = now()
        self.done = threading.Event()

    def end(self, *, is_sent: bool) -> None:
        """Report the end to the caller that has asked for it."""
        try:
            if self.event.on_end is not None:
                self.event.on_end(is_sent)
        except Exception:
            LOG.exception("Notification %s of %s", self.event.kind, self.event.about)


@functools.cache
def enabled() -> bool:
    """Return whether a notification driver is configured; cached, because each request asks."""
    return any(driver != "noop" for driver in CONF[GROUP].driver)


def send(event: Event) -> None:
    """Queue a notification, after all earlier ones of this process."""
    _get_sender().put(_Queued(event))


def now() -> datetime.datetime:
    """Return the time in UTC without a zone, as in the tables."""
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)


class _LostNotifications:
    """Logs and counts lost notifications, and remembers lost start events."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lost_starts: dict[tuple[str, str], None] = {}
        self.count = 0

    def add(self, event: Event, why: str) -> None:
        """Record the loss of a notification."""
        with self._lock:
            self.count += 1
            if event.kind.endswith(_START):
                self._lost_starts[event.kind.removesuffix(_START), event.about] = None
                if len(self._lost_starts) > _MAX_REMEMBERED:
                    del self._lost_starts[next(iter(self._lost_starts))]
        LOG.error(
            "Notification %s of %s is lost, %d so far: %s",
            event.kind,
            event.about,
            self.count,
            why,
        )

    def lacks_start(self, event: Event) -> bool:
        """Return whether the start event of an end event was lost, and forget it."""
        if not self._lost_starts or not event.kind.endswith(_END):
            return False
        with self._lock:
            key = (event.kind.removesuffix(_END), event.about)
            return self._lost_starts.pop(key, self) is None


class Sender:
    """A queue, and the thread that empties it.

    :ivar sent: number of notifications that were sent
    """

    def __init__(self) -> None:
        self._queue: queue.Queue[_Queued | None] = queue.Queue(QUEUE_SIZE)
        self._losses = _LostNotifications()
        self._lock = threading.Lock()
        self._last: _Queued | None = None
        self._sending: _Queued | None = None
        self._sending_since = 0.0
        self._over = threading.Event()
        self._transport: Any = None
        self._drivers: list[Any] = []
        self.sent = 0
        self._thread = threading.Thread(target=self._run, name="notifications", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """Number of notifications that were lost."""
        return self._losses.count

    def put(self, queued: _Queued) -> None:
        """Queue a notification, or record its loss."""
        try:
            with self._lock:
                self._queue.put_nowait(queued)
                self._last = queued
        except queue.Full:
            self._losses.add(queued.event, "the queue is full")
            queued.end(is_sent=False)

    def flush(self, timeout: float) -> None:
        """Wait until all queued notifications are sent, unless the message queue refuses them."""
        last = self._last
        stuck = self._sending is not None and time.monotonic() - self._sending_since > timeout
        if last is not None and not stuck:
            last.done.wait(timeout)

    def stop(self, timeout: float) -> None:
        """Send the queued notifications; those left after the timeout are recorded as lost."""
        deadline = time.monotonic() + timeout
        with contextlib.suppress(queue.Full):  # then nothing has been sent for all that time
            self._queue.put(None, timeout=timeout)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        self._over.set()
        for queued in self._rest():
            self._losses.add(queued.event, "the process ends")

    def _rest(self) -> Iterator[_Queued]:
        if self._sending is not None:
            yield self._sending
        with contextlib.suppress(queue.Empty):
            while True:
                if (queued := self._queue.get_nowait()) is not None:
                    yield queued

    def _run(self) -> None:
        while not self._over.is_set() and (queued := self._queue.get()) is not None:
            self._sending_since, self._sending = time.monotonic(), queued
            self._send(queued)
            self._sending = None
            queued.done.set()
        if self._transport is not None and not self._over.is_set():
            self._transport.cleanup()

    def _send(self, queued: _Queued) -> None:
        _failures.reasons = reasons = []
        try:
            if self._losses.lacks_start(queued.event):
                reasons.append("its start was lost")
            else:
                self._notify(queued)
        except Exception as error:  # noqa: BLE001  the next one may be sent
            reasons.append(f"{type(error).__name__}: {error}")
        if self._over.is_set():
            return  # It has been counted as lost.
        if reasons:
            self._losses.add(queued.event, "; ".join(reasons))
        else:
            self.sent += 1
        queued.end(is_sent=not reasons)

    def _notify(self, queued: _Queued) -> None:
        if self._transport is None:
            self._load_drivers()
        event, retry = queued.event, CONF[GROUP].retry
        context, priority = _identity(queued.context), event.priority.upper()
        message = {
            "message_id": str(uuid.uuid4()),
            "publisher_id": event.publisher,
            "event_type": event.kind,
            "priority": priority,
            "payload": event.payload(),
            "timestamp": str(queued.time),
        }
        for driver in () if self._over.is_set() else self._drivers:
            # With -1 a driver would not retry its first connection.
            driver.notify(context, message, priority, None if retry < 0 else retry)

    def _load_drivers(self) -> None:
        transport = messaging.get_notification_transport(CONF)
        extensions: Any = named.NamedExtensionManager(
            "oslo.messaging.notify.drivers",
            names=CONF[GROUP].driver,
            invoke_on_load=True,
            invoke_args=(CONF,),
            invoke_kwds={"topics": CONF[GROUP].topics, "transport": transport},
            on_missing_entrypoints_callback=_refuse_drivers,
        )
        self._drivers = [extension.obj for extension in extensions]
        self._transport = transport
        std_logging.getLogger("oslo_messaging.notify.messaging").addFilter(_collect_failure)


def _refuse_drivers(missing: Iterable[str]) -> None:
    names = ", ".join(sorted(missing))
    raise exception.ConfigurationError(reason=f"[{GROUP}]driver: there is no driver {names}")


_failures = threading.local()


def _collect_failure(record: std_logging.LogRecord) -> bool:
    """Collect the error of a driver instead of logging it, because the message has the payload.

    The drivers do not raise such errors: only their log has them.
    """
    reasons = getattr(_failures, "reasons", None)
    if reasons is None or not record.exc_info:
        return True
    error = record.exc_info[1]
    reasons.append(f"{type(error).__name__}: {error}")
    return False


def _identity(context: Any) -> dict[str, Any]:
    """Return who sent the request, without credentials."""
    if not context:
        return {}
    context = context.redacted_copy()
    values = {**context.to_dict(), "user_id": context.user_id}
    return {key: value for key, value in values.items() if key not in _PRIVATE}


_lock = threading.Lock()
_sender: Sender | None = None


def _get_sender() -> Sender:
    global _sender  # noqa: PLW0603  one per process is the point
    sender = _sender
    if sender is None:
        with _lock:
            sender = _sender = _sender or Sender()
    return sender


def flush() -> None:
    """Wait up to FLUSH_WAIT until all queued notifications are sent.

    Another process may notify as soon as it has the answer of this one: listeners get that later
    then.  The wait ends if the message queue refuses notifications.
    """
    sender = _sender
    if sender is not None:
        sender.flush(FLUSH_WAIT)


def stop() -> None:
    """Send queued notifications for [notifications]flush_timeout; called when a process ends."""
    global _sender
    with _lock:
        sender, _sender = _sender, None
    if sender is not None:
        sender.stop(CONF.notifications.flush_timeout)


def reset_after_fork() -> None:
    """Drop queue and thread without touching them: after a fork they are the parent's."""
    global _sender, _lock
    _sender, _lock = None, threading.Lock()
    enabled.cache_clear()


atexit.register(stop)
os.register_at_fork(after_in_child=reset_after_fork)
