# SPDX-License-Identifier: Apache-2.0
"""A thread that receives the messages of some queues of RabbitMQ, and the server that it feeds.

oslo.messaging acknowledges a message before it looks at it.  Here the receiver of a message
decides when, so that a process takes no more than it can work on, and leaves the rest to others.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
import contextlib
import dataclasses
import functools
import queue
import sys
import threading
import time
from typing import Any, Final

from kombu.connection import Connection
from oslo_log import log as logging
import oslo_messaging as messaging
from oslo_messaging.rpc import dispatcher as rpc_dispatcher
from oslo_utils import timeutils

from attachd.rpc import broker
from attachd.rpc.fair_dispatch import FairExecutor
from attachd.telemetry import tracing

LOG = logging.getLogger(__name__)

POLL_INTERVAL: Final = 0.25
"""Seconds until the thread looks for other work than messages."""

_SOON: Final = 0.001
"""Seconds that the thread waits for a message while queues wait to be read; 0 is an error."""

BEGIN_TIME: Final = 0.05
"""Seconds after which the thread receives messages before it begins to read more queues."""

HEARTBEAT_RATE: Final = 2
"""How many heartbeats are sent in the time after which the broker counts a connection as lost."""


@dataclasses.dataclass(frozen=True)
class Queue:
    """A queue that is read.

    :ivar declare: declares what is necessary to read it; takes a connection
    :ivar receive: takes a message of amqp, and acknowledges it
    :ivar give_up: is called if it cannot be declared, and the others are read all the same; such
        queues may be many, so they are begun between messages.  None: nothing is read without it
    """

    name: str
    declare: Callable[[Connection], object]
    receive: Callable[[Any], object]
    give_up: Callable[[], object] | None = None


class Receiver:
    """Receives messages in a thread of its own, and connects again whenever that is necessary.

    :param url: of the message queue
    :param name: for logs
    :param prefetch: how many messages of each queue it has that are not acknowledged; 0: any
    :param on_connected: is called before a new connection reads the first queue
    :param between: is called between two messages
    """

    def __init__(
        self,
        url: messaging.TransportURL,
        name: str,
        queues: Iterable[Queue],
        prefetch: int = 0,
        on_connected: Callable[[], object] = lambda: None,
        between: Callable[[], object] = lambda: None,
    ) -> None:
        self._url = url
        self._name = name
        self._queues = {item.name: item for item in queues}
        self._prefetch = prefetch
        self._on_connected = on_connected
        self._between = between
        self._added: queue.SimpleQueue[Queue] = queue.SimpleQueue()
        self._waiting: deque[Queue] = deque()
        self._connection: Connection | None = None
        self._channel: Any = None
        self._opened_at = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"receive-{name}", daemon=True)

    def start(self) -> None:
        """Begin to receive; return when all queues without ``give_up`` are declared.

        :raises AMQPError: the message queue refuses to declare one
        """
        self._open(self._retry_interval())
        self._thread.start()

    def start_now(self) -> None:
        """Begin to receive.

        :raises MessageDeliveryFailure: the message queue refuses it, or cannot be reached
        """
        self._connect()
        try:
            self._begin_all()
        except broker.FAILURES as error:
            self._collect()
            raise messaging.MessageDeliveryFailure(f"{error}") from error
        self._thread.start()

    def stop(self) -> None:
        """Receive no more; messages without acknowledgement go to other processes."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._close()

    def add(self, added: Queue) -> None:
        """Begin to read another queue; return at once."""
        self._added.put(added)

    def _begin_waiting(self) -> None:
        """Begin to read queues that are not read yet, as many as there is time for."""
        deadline = time.monotonic() + BEGIN_TIME
        while not self._added.empty():
            added = self._added.get()
            self._queues[added.name] = added
            self._waiting.append(added)
        while self._waiting and time.monotonic() < deadline:
            item = self._waiting.popleft()
            if not self._begin(item):
                del self._queues[item.name]

    def _begin(self, item: Queue) -> bool:
        """Declare and read a queue; return whether that was possible, if it is optional."""
        connection = self._current()
        try:
            item.declare(connection)
        except connection.channel_errors as error:
            if item.give_up is None:
                raise
            LOG.warning("Queue %s could not be declared: %s", item.name, error)
            item.give_up()
            return False
        self._channel.basic_consume(
            item.name,
            consumer_tag=item.name,
            nowait=item.give_up is not None,
            callback=functools.partial(self._receive, item.receive),
        )
        return True

    def _receive(self, receive: Callable[[Any], object], message: Any) -> None:
        try:
            receive(message)
        except broker.FAILURES:
            raise
        except Exception:
            LOG.exception("%s drops a message", self._name)
            message.channel.basic_reject(message.delivery_tag, False)

    def _current(self) -> Connection:
        if self._connection is None:
            raise ConnectionError("There is no connection")
        return self._connection

    def _retry_interval(self) -> float:
        return float(broker.option(self._url, "rabbit_retry_interval"))

    def _open(self, pause: float) -> None:
        """Connect, and begin to read all queues; try that again until it is possible."""
        while not self._stopping.is_set():
            try:
                self._connect()
            except messaging.MessageDeliveryFailure as error:
                LOG.warning(
                    "AMQP server of %s is unreachable: %s. Trying again in %d seconds.",
                    self._name,
                    error,
                    pause,
                )
            else:
                try:
                    self._begin_all()
                except (OSError, *self._current().connection_errors) as error:
                    LOG.warning("AMQP server of %s does not answer: %s", self._name, error)
                except BaseException:
                    self._collect()
                    raise
                else:
                    return
                self._collect()
            self._stopping.wait(pause)
            step = float(broker.option(self._url, "rabbit_retry_backoff"))
            pause = min(pause + step, float(broker.option(self._url, "rabbit_interval_max")))

    def _connect(self) -> None:
        seconds = broker.option(self._url, "heartbeat_timeout_threshold")
        self._connection = broker.connect(self._url, f"receive-{self._name}", heartbeat=seconds)

    def _begin_all(self) -> None:
        self._channel = self._current().channel()
        # amqp would decode each body by the codec that its sender names, some in quadratic time.
        self._channel.auto_decode = False
        if self._prefetch:
            self._channel.basic_qos(0, self._prefetch, False)
        self._on_connected()
        for item in self._queues.values():
            if item.give_up is None:
                self._begin(item)
        self._waiting = deque(item for item in self._queues.values() if item.give_up is not None)
        self._opened_at = time.monotonic()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._step()
            except Exception as error:
                if isinstance(error, broker.FAILURES):
                    LOG.warning("AMQP server of %s: %s", self._name, error)
                else:
                    LOG.exception("%s could not receive a message", self._name)
                self._reconnect()

    def _step(self) -> None:
        self._begin_waiting()
        self._between()
        connection = self._current()
        if not connection.connected:
            # kombu would connect again, and read no queue.
            raise ConnectionError("the connection is lost")
        try:
            connection.drain_events(timeout=_SOON if self._waiting else POLL_INTERVAL)
        except TimeoutError:
            connection.heartbeat_check(rate=HEARTBEAT_RATE)

    def _reconnect(self) -> None:
        self._collect()
        pause = self._retry_interval()
        if time.monotonic() - self._opened_at < pause:
            self._stopping.wait(pause)  # what breaks it may do so each time
        while not self._stopping.is_set():
            try:
                self._open(pause)
            except Exception as error:  # noqa: BLE001  what is refused now may be granted later
                LOG.warning("%s cannot read its queues: %s", self._name, error)
                pause = float(broker.option(self._url, "rabbit_interval_max"))
                self._stopping.wait(pause)
            else:
                return

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*broker.FAILURES):
                connection.release()

    def _collect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*broker.FAILURES):
                connection.collect()


class ReceivingServer:
    """An RPC server that executes what it receives in the order of FairExecutor.

    Subclasses have :attr:`receiver`, and pass messages on to :meth:`submit`.

    :param name: for metrics and reports
    :param per_volume: how many calls for one volume run at the same time
    :param place_of: as of FairExecutor
    :ivar consumers: how many consumers of each queue it has
    """

    consumers: Final = 1
    receiver: Receiver

    def __init__(
        self,
        name: str,
        dispatcher: Any,
        per_volume: int = 1,
        place_of: Callable[[Any], tuple[str, str]] | None = None,
    ) -> None:
        self._name = name
        self._dispatcher = dispatcher
        self._per_volume = per_volume
        self._place_of = place_of
        self._executor: FairExecutor | None = None

    def start(self, override_pool_size: int | None = None) -> None:
        """Begin to receive, with so many threads; return when everything is declared."""
        self._executor = FairExecutor(
            self._name, override_pool_size or 1, self._per_volume, self._place_of
        )
        self.receiver.start()

    def stop(self) -> None:
        """Receive no more messages."""
        self.receiver.stop()

    def wait(self) -> None:
        """Wait until all received messages are processed."""
        if self._executor is not None:
            self._executor.shutdown()

    def execute(self, function: Callable[[], object]) -> None:
        """Execute a function in a thread of the server, before the messages that wait."""
        if self._executor is not None:
            self._executor.execute(function)

    def submit(self, incoming: "Incoming") -> None:
        """Execute a message when its turn comes."""
        if self._executor is not None:
            self._executor.submit(self.process, [incoming])

    def process(self, incoming: Any) -> None:
        """Execute a message in this thread, and answer it."""
        message = incoming[0]
        try:
            with tracing.received(message.message["method"], message.ctxt):
                answer(self._dispatcher, message)
        finally:
            message.end()


class Incoming:
    """A message as dispatchers take it.

    :param send: sends a result, or the sys.exc_info() of a failure; None: it is a cast
    :param end: is called when the message is processed
    :ivar share: the host whose queue had the message
    :ivar sender_timeout: seconds that the sender waits; None: it does not say
    """

    client_timeout: Final = None

    def __init__(
        self,
        context: dict[str, Any],
        message: dict[str, Any],
        reply_q: str | None = None,
        send: Callable[[Any, Any], object] | None = None,
        end: Callable[[], object] = lambda: None,
    ) -> None:
        self.ctxt = context
        self.message = message
        self.reply_q = reply_q
        self.end = end
        self.share: str | None = None
        self.sender_timeout: float | None = None
        self.stopwatch = timeutils.StopWatch().start()
        self.reply = functools.partial(_reply, send)


def _reply(
    send: Callable[[Any, Any], object] | None, reply: Any = None, failure: Any = None
) -> None:
    if send is not None:
        send(reply, failure)


def answer(dispatcher: Any, incoming: Incoming) -> None:
    """Execute a message, and answer it."""
    result, failure = None, None
    try:
        result = dispatcher.dispatch(incoming)
    except rpc_dispatcher.ExpectedException as error:
        failure = error.exc_info
    except Exception:
        failure = sys.exc_info()
        LOG.exception("%s failed", incoming.message.get("method"))
    try:
        incoming.reply(result, failure)
    except Exception:
        LOG.exception("%s was not answered", incoming.message.get("method"))


class SeenIds:
    """The ids of the last messages: after an outage, the broker delivers some once more."""

    MAX: Final = 4096

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def add(self, name: object) -> bool:
        """Add the id of a message; return whether it is new; one without an id always is."""
        if not isinstance(name, str):
            return True
        is_new = name not in self._ids
        self._ids[name] = None
        if len(self._ids) > self.MAX:
            self._ids.popitem(last=False)
        return is_new
