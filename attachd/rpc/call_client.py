# SPDX-License-Identifier: Apache-2.0
"""Calls whose answers arrive in a queue of a known name.

oslo.messaging draws a random name for the queue of a process, and no option sets another one.
The account of a host may declare only queues of known names.
"""

from collections.abc import Callable
import contextlib
import functools
import queue
import threading
import time
from typing import Any, Final
import uuid

from kombu.connection import Connection
import oslo_messaging as messaging

from attachd import exception
from attachd.context import RequestContext
from attachd.rpc import admission, answers, broker, received
from attachd.rpc.receiver import Queue, Receiver
from attachd.telemetry import tracing

MODULES: Final = frozenset({exception.__name__})
"""Whose errors are raised as they were."""


class Replies:
    """Receives the answers to the calls of this process, from the first call on.

    :param draw: returns the name of the queue; it may ask the message queue
    """

    def __init__(self, url: messaging.TransportURL, draw: Callable[[], str]) -> None:
        self._url = url
        self._draw = draw
        self._lock = threading.Lock()
        self._receiver: Receiver | None = None
        self._name = ""
        self._waiting: dict[str, queue.SimpleQueue[dict[str, Any]]] = {}

    def start(self) -> str:
        """Begin to receive, unless it does; return the name of the queue.

        :raises MessageDeliveryFailure: the message queue refuses it, or cannot be reached
        """
        with self._lock:
            if self._receiver is None:
                name = self._draw()
                source = Queue(name, functools.partial(self._declare, name), self._receive)
                receiver = Receiver(self._url, name, [source])
                receiver.start_now()
                self._receiver, self._name = receiver, name
            return self._name

    @contextlib.contextmanager
    def expect(self, message_id: str) -> Any:
        """Return a queue that gets the answer to a message."""
        self._waiting[message_id] = queue.SimpleQueue()
        try:
            yield self._waiting[message_id]
        finally:
            del self._waiting[message_id]

    def _declare(self, name: str, connection: Connection) -> None:
        with connection.channel() as channel:
            broker.declare_transient(self._url, channel, name)

    def _receive(self, message: Any) -> None:
        message.channel.basic_ack(message.delivery_tag)
        with contextlib.suppress(admission.Refused):
            content = admission.parse(message.body, message.properties, received.MAX_SIZE)
            if waiting := self._waiting.get(str(content.get("_msg_id"))):
                waiting.put(content)

    def stop(self) -> None:
        """Receive no more answers."""
        with self._lock:
            receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.stop()


def get_answer(
    waiting: "queue.SimpleQueue[dict[str, Any]]", deadline: float, method: str
) -> dict[str, Any]:
    """Return the answer to a call.

    :param deadline: on the monotonic clock
    :raises MessagingTimeout: there is none in time
    """
    try:
        return waiting.get(timeout=max(0.0, deadline - time.monotonic()))
    except queue.Empty:
        raise messaging.MessagingTimeout(f"No answer to {method} in time") from None


class CallClient:
    """A client of a topic, in place of one of oslo.messaging.

    :param target: exchange, topic, which is the key of messages, and version of the contract
    :param timeout: seconds to wait for an answer
    :param serializer: of contexts and arguments
    """

    def __init__(
        self,
        sender: broker.Sender,
        replies: Replies,
        target: messaging.Target,
        timeout: float,
        serializer: Any,
    ) -> None:
        self._sender = sender
        self._replies = replies
        self._target = target
        self._timeout = timeout
        self._serializer = serializer

    def call(self, context: RequestContext, method: str, **arguments: Any) -> Any:
        """Call a method and return its answer.

        :raises AttachdError: the manager raised it
        :raises RemoteError: the manager raised anything else
        :raises MessagingTimeout: no answer in time
        :raises MessageUndeliverable: no queue takes it
        :raises MessageDeliveryFailure: the message queue cannot be reached
        """
        message_id, deadline = uuid.uuid4().hex, time.monotonic() + self._timeout
        packed = self._serializer.serialize_context(context)
        with tracing.sent(f"{self._target.topic}.{method}", packed):
            content = {
                "method": method,
                "args": {
                    name: self._serializer.serialize_entity(context, value)
                    for name, value in arguments.items()
                },
                "version": self._target.version,
                "_msg_id": message_id,
                "_reply_q": self._replies.start(),
                "_timeout": None,
                "_unique_id": uuid.uuid4().hex,
                **{f"_context_{name}": value for name, value in packed.items()},
            }
            with self._replies.expect(message_id) as waiting:
                self._sender.send(
                    content, self._target.exchange, self._target.topic, self._timeout
                )
                answered = get_answer(waiting, deadline, method)
        result = answers.unpack(answered, MODULES)
        return self._serializer.deserialize_entity(context, result)
