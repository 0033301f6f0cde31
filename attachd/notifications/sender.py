# SPDX-License-Identifier: Apache-2.0
"""Send notifications in a thread of its own, in order.

Each process has one queue and one thread, created with the first notification.  While the message
queue refuses them, notifications are kept, and retried as often as
[oslo_messaging_notifications]retry says.  Each loss is logged and counted: when the queue is full,
when the retries are exhausted, when the payload cannot be built, and when a process ends with
notifications in its queue.

If the start event of an operation is lost, its end event is not sent.
"""

import atexit
from collections.abc import Callable, Iterator, Mapping
import contextlib
import datetime
import functools
import itertools
import os
import queue
import threading
import time
from typing import Any, NamedTuple

from kombu import exceptions as kombu_exceptions
from oslo_config import cfg
from oslo_context import context as oslo_context
from oslo_log import log
import oslo_messaging as messaging
from oslo_messaging import opts as messaging_opts

from attachd import exception
from attachd.conf import CONF

LOG = log.getLogger(__name__)

GROUP = "oslo_messaging_notifications"
_START = ".start"
_END = ".end"
LONGEST_PAUSE = 5.0
"""Seconds between two retries."""

FLUSH_WAIT = 0.25
"""Seconds that a caller may wait for queued notifications."""

_OUTAGES = (messaging.MessagingException, kombu_exceptions.OperationalError, OSError)
_MAX_REMEMBERED = 10_000
_PRIVATE = frozenset({"auth_token", "user_identity", "read_only", "show_deleted", "resource_uuid"})


class Event(NamedTuple):
    """One notification, before its payload is built.

    :ivar kind: the event_type, such as "volume.attach.start"
    :ivar about: the id of its subject
    :ivar payload: builds the payload; called once, in the sender's thread
    :ivar priority: info, warn or error
    """

    kind: str
    about: str
    publisher: str
    payload: Callable[[], Mapping[str, Any]]
    priority: str = "info"


class _Queued(NamedTuple):
    event: Event
    context: Any
    at: datetime.datetime


@functools.cache
def enabled() -> bool:
    """Return whether a notification driver is configured; cached, because each request asks."""
    try:
        drivers = CONF[GROUP].driver
    except cfg.NoSuchOptError:
        _register()
        drivers = CONF[GROUP].driver
    return any(driver != "noop" for driver in drivers)


def _register() -> None:
    for group, options in messaging_opts.list_opts():
        if group == GROUP:
            CONF.register_opts(options, group=group)


def send(event: Event) -> None:
    """Queue a notification, after all earlier ones of this process."""
    _get_sender().put(_Queued(event, oslo_context.get_current(), now()))


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
        self._queue: queue.Queue[_Queued | None] = queue.Queue(CONF.notifications.queue_size)
        self._losses = _LostNotifications()
        self._sending: _Queued | None = None
        self._errors: list[str] = []
        self._notifier: Any = None
        self._over = threading.Event()
        self._progress = threading.Condition()
        self._taken = self._done = 0
        self._refused = False
        self.sent = 0
        self._thread = threading.Thread(target=self._run, name="notifications", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """Number of notifications that were lost."""
        return self._losses.count

    def put(self, queued: _Queued) -> None:
        """Queue a notification, or record its loss."""
        with self._progress:
            try:
                self._queue.put_nowait(queued)
            except queue.Full:
                full = True
            else:
                full = False
                self._taken += 1
        if full:
            self._losses.add(queued.event, "the queue is full")

    def flush(self, timeout: float) -> None:
        """Wait until all queued notifications are sent, unless the message queue refuses them."""
        with self._progress:
            last = self._taken
            self._progress.wait_for(lambda: self._done >= last or self._refused, timeout)

    def stop(self, timeout: float) -> None:
        """Send the queued notifications; those left after the timeout are recorded as lost."""
        deadline = time.monotonic() + timeout
        with contextlib.suppress(queue.Full):  # then nothing has gone for all that time
            self._queue.put(None, timeout=timeout)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        self._over.set()
        for each in self._rest():
            self._losses.add(each.event, "the process ends")

    def _rest(self) -> Iterator[_Queued]:
        if self._sending is not None:
            yield self._sending
        with contextlib.suppress(queue.Empty):
            while True:
                each = self._queue.get_nowait()
                if each is not None:
                    yield each

    def _run(self) -> None:
        while not self._over.is_set():
            self._sending = self._queue.get()
            if self._sending is None:
                break
            self._send(self._sending)
            self._sending = None
            self._notify_progress(1)
        if self._notifier is not None and not self._over.is_set():
            self._notifier.transport.cleanup()

    def _notify_progress(self, done: int, *, refused: bool = False) -> None:
        with self._progress:
            self._done += done
            self._refused = refused
            self._progress.notify_all()

    def _send(self, queued: _Queued) -> None:
        event = queued.event
        self._errors.clear()
        try:
            if self._losses.lacks_start(event):
                self._errors.append("its beginning was lost")
            else:
                self._notify(queued)
        except Exception as error:  # noqa: BLE001  the next one may be sent
            self._errors.append(f"{type(error).__name__}: {error}")
        if self._over.is_set():
            return  # It has been counted as lost.
        if self._errors:
            self._losses.add(event, "; ".join(self._errors))
        else:
            self.sent += 1

    def _notify(self, queued: _Queued) -> None:
        if self._notifier is None:
            self._notifier = self._make_notifier()
        event = queued.event
        notifier = self._notifier.prepare(publisher_id=event.publisher)
        payload = event.payload()
        if not self._over.is_set():
            getattr(notifier, event.priority)(queued.context, event.kind, payload)

    def _make_notifier(self) -> Any:
        """Create oslo.messaging's notifier, whose drivers all send through its transport."""
        transport = messaging.get_notification_transport(CONF)
        transport._send_notification = functools.partial(  # noqa: SLF001  pinned by test_sender.py
            self._send_with_retry,
            transport._send_notification,  # noqa: SLF001
        )
        notifier = messaging.Notifier(transport, serializer=_Contexts())
        missing = set(CONF[GROUP].driver) - set(notifier._driver_mgr.names())  # noqa: SLF001
        if missing:
            raise exception.ConfigurationError(
                reason=f"[{GROUP}]driver names what is not there: {', '.join(sorted(missing))}"
            )
        return notifier

    def _send_with_retry(
        self,
        send: Callable[..., None],
        target: Any,
        context: Any,
        message: dict[str, Any],
        **options: Any,
    ) -> None:
        """Send until success, or until the retries are exhausted; never raise.

        oslo.messaging would log an exception with the payload.  Its own retries begin only after a
        first connection.
        """
        if self._sending is not None:
            message["timestamp"] = str(self._sending.at)
        for tried in itertools.count():
            try:
                send(target, context, message, **{**options, "retry": 0})
            except Exception as error:  # noqa: BLE001  noted, and logged with the event's id
                if self._is_final(error, tried):
                    self._errors.append(f"{target.topic}: {type(error).__name__}: {error}")
                    return
                if tried == 0:
                    LOG.warning("Notifications are kept, the message queue refuses: %s", error)
                    self._notify_progress(0, refused=True)
                self._over.wait(min(LONGEST_PAUSE, 0.1 * 2**tried))
            else:
                if tried:
                    LOG.warning("The message queue takes notifications again")
                return

    def _is_final(self, error: Exception, tried: int) -> bool:
        allowed = CONF[GROUP].retry
        often = allowed is not None and 0 <= allowed <= tried
        return often or self._over.is_set() or not isinstance(error, _OUTAGES)


class _Contexts(messaging.NoOpSerializer):
    """Serializes the identity in a context, without credentials."""

    @staticmethod
    def serialize_context(context: Any) -> dict[str, Any]:
        """Convert the rest of a context to JSON values."""
        if not context:
            return {}
        values = {**context.to_dict(), "user_id": context.user_id}
        return {key: value for key, value in values.items() if key not in _PRIVATE}


_lock = threading.Lock()
_sender: Sender | None = None


def _get_sender() -> Sender:
    global _sender  # noqa: PLW0603  one per process is the point
    found = _sender
    if found is None:
        with _lock:
            found = _sender = _sender or Sender()
    return found


def flush() -> None:
    """Wait up to FLUSH_WAIT until all queued notifications are sent.

    Another process may notify as soon as it has the answer of this one: listeners get that later
    then.  The wait ends if the message queue refuses notifications.
    """
    found = _sender
    if found is not None:
        found.flush(FLUSH_WAIT)


def stop() -> None:
    """Send queued notifications for [notifications]flush_timeout; called when a process ends."""
    global _sender
    with _lock:
        found, _sender = _sender, None
    if found is not None:
        found.stop(CONF.notifications.flush_timeout)


def reset_after_fork() -> None:
    """Drop queue and thread without touching them: after a fork they are the parent's."""
    global _sender, _lock
    _sender, _lock = None, threading.Lock()
    enabled.cache_clear()


atexit.register(stop)
os.register_at_fork(after_in_child=reset_after_fork)
