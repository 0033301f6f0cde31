# SPDX-License-Identifier: Apache-2.0
"""oslo.messaging driver for API and manager in one process: ``inprocess://[name][/vhost]``.

oslo.messaging loads it by entry point.  It behaves like RabbitMQ: messages are converted to JSON,
errors are rebuilt from JSON, a message waits in the queue of a server that is away, and is lost if
there was never such a server.

A call costs two switches of threads: the sender puts its message into the server's pool itself,
and waits until a thread of that pool wakes it with the answer.
"""

from collections import deque
from collections.abc import Callable, Sequence
import dataclasses
import queue
import sys
import threading
import time
import traceback
from types import TracebackType
from typing import Any, NoReturn
import weakref

import oslo_messaging as messaging
from oslo_serialization import jsonutils
from oslo_utils import timeutils

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]

Replies = queue.SimpleQueue[str]
"""Messages from a server to a caller: JSON of ``{"result", "failure", "ending"}``."""


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """A message in a queue.

    :ivar text: JSON of ``{"context", "message"}``
    :ivar replies: queue for the answer; None for a cast
    :ivar monitor: seconds within which the sender expects a heartbeat
    :ivar expires: on the monotonic clock; the sender waits no longer
    """

    text: str
    replies: Replies | None = None
    monitor: float | None = None
    expires: float | None = None

    def expired(self) -> bool:
        """Return whether the sender has timed out."""
        return self.expires is not None and self.expires <= time.monotonic()


class Incoming:
    """A message that a server has received.

    :ivar ctxt: the serialized context
    :ivar message: method, arguments and version
    :ivar client_timeout: seconds within which the sender expects a heartbeat
    :ivar reply_q: queue for the answer; None for a cast
    :ivar stopwatch: started on arrival
    """

    def __init__(self, message: Message) -> None:
        content = jsonutils.loads(message.text)
        self.ctxt = content["context"]
        self.message = content["message"]
        self.msg_id = None
        self.client_timeout = message.monitor
        self.reply_q = message.replies
        self.stopwatch = timeutils.StopWatch().start()

    def acknowledge(self) -> None:
        """Do nothing: a message is acknowledged on receipt, as on RabbitMQ."""

    def requeue(self) -> None:
        """Do nothing: a message is acknowledged before it is processed, as on RabbitMQ."""

    def reply(self, reply: Any = None, failure: ExcInfo | None = None) -> None:
        """Answer with a result, or with a ``sys.exc_info()``."""
        self._answer(result=reply, failure=_describe(failure) if failure else None, ending=True)

    def heartbeat(self) -> None:
        """Report to the caller that the work continues."""
        self._answer(result=None, failure=None, ending=False)

    def _answer(self, **content: Any) -> None:
        if self.reply_q is not None:
            self.reply_q.put(jsonutils.dumps(content))


def _describe(failure: ExcInfo) -> dict[str, Any]:
    error = failure[1]
    return {
        "module": type(error).__module__,
        "class": type(error).__name__,
        "args": error.args,
        "kwargs": getattr(error, "kwargs", {}),
        "message": str(error),
        "traceback": traceback.format_exception(*failure),
    }


def _rebuild(failure: dict[str, Any], allowed_modules: Sequence[str]) -> Exception:
    """Rebuild an error: of an allowed module or of Python as it was, any other as RemoteError."""
    name = failure["module"]
    module = sys.modules.get(name) if name in {"builtins", *allowed_modules} else None
    remote: Exception = messaging.RemoteError(
        failure["class"], failure["message"], failure["traceback"]
    )
    try:
        error = getattr(module, failure["class"])(*failure["args"], **failure["kwargs"])
    except (AttributeError, TypeError):
        return remote
    return error if isinstance(error, Exception) else remote


class Queue:
    """Messages in order, distributed round robin to consumers."""

    def __init__(self) -> None:
        self._waiting: deque[Message] = deque()
        self._consumers: deque[Listener] = deque()

    def put(self, message: Message) -> None:
        """Give the message to a consumer, or keep it for the next one."""
        if not self._consumers:
            self._waiting.append(message)
            return
        self._consumers.rotate(-1)
        self._consumers[0].take(message)

    def join(self, consumer: "Listener") -> None:
        """Add a consumer; it gets the waiting messages."""
        self._consumers.append(consumer)
        while self._waiting:
            message = self._waiting.popleft()
            if not message.expired():
                consumer.take(message)

    def leave(self, consumer: "Listener") -> None:
        """Remove a consumer."""
        if consumer in self._consumers:
            self._consumers.remove(consumer)


class Broker:
    """The queues of one virtual host; shared by all transports with the same URL."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[tuple[str, str], Queue] = {}
        self._fanouts: dict[str, list[Queue]] = {}

    def publish(self, exchange: str, key: str, message: Message) -> bool:
        """Put a message into one queue; False if there is no such queue."""
        with self._lock:
            found = self._queues.get((exchange, key))
            if found is not None:
                found.put(message)
        return found is not None

    def publish_to_all(self, topic: str, message: Message) -> bool:
        """Give a message to each listener of a topic; False if there is none."""
        with self._lock:
            found = self._fanouts.get(topic, ())
            for listener in found:
                listener.put(message)
        return bool(found)

    def declare(self, exchange: str, keys: Sequence[str], fanout: str | None) -> list[Queue]:
        """Return the queues of these keys, and one of the caller's own for the fanout topic."""
        with self._lock:
            queues = [self._queues.setdefault((exchange, key), Queue()) for key in keys]
            if fanout is not None:
                queues.append(Queue())
                self._fanouts.setdefault(fanout, []).append(queues[-1])
        return queues

    def forget(self, queues: Sequence[Queue]) -> None:
        """Remove the fanout queues among these; the others outlive their listeners."""
        with self._lock:
            for topic in self._fanouts:
                self._fanouts[topic] = [
                    fanout for fanout in self._fanouts[topic] if fanout not in queues
                ]

    def connect(self, consumer: "Listener", queues: Sequence[Queue]) -> None:
        """Start to deliver the queues' messages to a consumer."""
        with self._lock:
            for receiver in queues:
                receiver.join(consumer)

    def disconnect(self, consumer: "Listener", queues: Sequence[Queue]) -> None:
        """Stop that; the consumer gets nothing after this has returned."""
        with self._lock:
            for receiver in queues:
                receiver.leave(consumer)


_brokers: weakref.WeakValueDictionary[str, Broker] = weakref.WeakValueDictionary()
_brokers_lock = threading.Lock()


def broker_of(name: str) -> Broker:
    """Return the one broker of that name; it lives as long as it is referenced."""
    with _brokers_lock:
        broker = _brokers.get(name)
        if broker is None:
            broker = _brokers[name] = Broker()
        return broker


class Listener:
    """The receiver of a server: the sender's thread puts messages into the server's pool."""

    def __init__(self, broker: Broker, queues: Sequence[Queue]) -> None:
        self._broker = broker
        self._queues = queues
        self._on_incoming: Callable[[list[Incoming]], None] = _ignore

    def take(self, message: Message) -> None:
        """Accept a message; called under the broker's lock, between start and stop only."""
        self._on_incoming([Incoming(message)])

    def start(self, on_incoming_callback: Callable[[list[Incoming]], None]) -> None:
        """Begin to receive."""
        self._on_incoming = on_incoming_callback
        self._broker.connect(self, self._queues)

    def stop(self) -> None:
        """Stop receiving; received messages are still processed."""
        self._broker.disconnect(self, self._queues)

    def cleanup(self) -> None:
        """Release queues that no other listener can use."""
        self._broker.forget(self._queues)


def _ignore(_messages: list[Incoming]) -> None:
    """Take the place of the server's callback until the listener is started."""


class InProcessDriver:
    """The driver; its parameters are oslo.messaging's."""

    def __init__(
        self,
        conf: Any,
        url: messaging.TransportURL,
        default_exchange: str = "",
        allowed_remote_exmods: Sequence[str] = (),
    ) -> None:
        self.conf = conf
        self._default_exchange = default_exchange
        self._allowed_modules = allowed_remote_exmods
        names = [host.hostname or "" for host in url.hosts]
        self._broker = broker_of("/".join([*names, url.virtual_host or ""]))

    def send(
        self,
        target: messaging.Target,
        ctxt: dict[str, Any],
        message: dict[str, Any],
        wait_for_reply: bool | None = None,  # noqa: FBT001  the signature of oslo.messaging
        timeout: float | None = None,
        call_monitor_timeout: float | None = None,
        retry: int | None = None,  # noqa: ARG002  no failure here can be retried
        transport_options: messaging.TransportOptions | None = None,
    ) -> Any:
        """Deliver a message; after a call, wait for the answer.

        :raises MessagingTimeout: no answer in time
        :raises MessageUndeliverable: no such queue exists, and the sender requires one
        """
        replies: Replies | None = queue.SimpleQueue() if wait_for_reply else None
        expires = time.monotonic() + timeout if timeout is not None else None
        sent = Message(_pack(ctxt, message), replies, call_monitor_timeout, expires)
        if not self._deliver(target, sent) and _must_arrive(transport_options):
            raise messaging.MessageUndeliverable(
                None, self._exchange(target), _key(target), message
            )
        if replies is None:
            return None
        return self._await(replies, target, expires, call_monitor_timeout)

    def _deliver(self, target: messaging.Target, message: Message) -> bool:
        if target.fanout:
            return self._broker.publish_to_all(target.topic, message)
        return self._broker.publish(self._exchange(target), _key(target), message)

    def _exchange(self, target: messaging.Target) -> str:
        return target.exchange or self._default_exchange or ""

    def _await(
        self,
        replies: Replies,
        target: messaging.Target,
        expires: float | None,
        monitor: float | None,
    ) -> Any:
        while True:
            left = None if expires is None else max(0.0, expires - time.monotonic())
            limits = [seconds for seconds in (left, monitor) if seconds is not None]
            try:
                answer = jsonutils.loads(replies.get(timeout=min(limits, default=None)))
            except queue.Empty:
                raise messaging.MessagingTimeout(
                    f"Timed out waiting for a reply from {_key(target)}"
                ) from None
            if answer["failure"]:
                raise _rebuild(answer["failure"], self._allowed_modules)
            if answer["ending"]:
                return answer["result"]

    def send_notification(
        self,
        target: messaging.Target,
        ctxt: dict[str, Any],
        message: dict[str, Any],
        version: float,
        retry: int | None = None,
    ) -> None:
        """Drop a notification: its listeners are other processes."""

    def listen(
        self,
        target: messaging.Target,
        batch_size: int,  # noqa: ARG002  the RPC server asks for one at a time
        batch_timeout: float | None,  # noqa: ARG002
    ) -> Listener:
        """Create the queues of a server: its topic's, its own, and one for fanout messages."""
        keys = [target.topic, _key(target)]
        queues = self._broker.declare(self._exchange(target), keys, target.topic)
        return Listener(self._broker, queues)

    def listen_for_notifications(
        self,
        targets_and_priorities: Sequence[tuple[messaging.Target, str]],
        pool: str | None,
        batch_size: int,
        batch_timeout: float | None,
    ) -> NoReturn:
        """Refuse listeners to notifications: they are other processes."""
        raise NotImplementedError("inprocess:// has no listeners to notifications")

    def require_features(self, requeue: bool = False) -> None:  # noqa: FBT001, FBT002  as theirs
        """Refuse listeners that put messages back into their queue."""
        if requeue:
            raise NotImplementedError("inprocess:// cannot requeue messages")

    def cleanup(self) -> None:
        """Do nothing: the broker ends with its last user."""


def _key(target: messaging.Target) -> str:
    return f"{target.topic}.{target.server}" if target.server else target.topic


def _pack(ctxt: dict[str, Any], message: dict[str, Any]) -> str:
    text: str = jsonutils.dumps({"context": ctxt, "message": message})
    return text


def _must_arrive(options: messaging.TransportOptions | None) -> bool:
    return options is not None and bool(options.at_least_once)
