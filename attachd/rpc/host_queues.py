# SPDX-License-Identifier: Apache-2.0
"""The queue of each host for its calls to managers.

With one queue for all hosts, a host that sends more than managers process would delay all others.
So managers declare a queue for each registered host.  Its account may only bind it to its own
exchange: it can put nothing into the queue of another host, and can neither delete its own one
nor declare it differently.

Managers have one unacknowledged message of each queue at a time.  oslo.messaging acknowledges each
message when it arrives, so that its option for a prefetch count limits nothing; here that depends
on the budget of the host.
"""

from collections import deque
from collections.abc import Callable, Iterable
import contextlib
import functools
import threading
from typing import Any, Final

from amqp import exceptions as amqp_exceptions  # type: ignore[import-untyped]
from kombu import entity
from oslo_log import log as logging
import oslo_messaging as messaging
from oslo_messaging._drivers import amqpdriver, impl_rabbit
from oslo_messaging._drivers import common as rpc_common

from attachd.rpc import admission, path_check, received
from attachd.rpc.fair_dispatch import FairServer

LOG = logging.getLogger(__name__)

AGENT_TOPIC: Final = "attachd-agent"
"""The topic that agents listen on, each host under its own name."""

PREFETCH: Final = 1
"""How many messages of a queue a manager has before it acknowledges one."""

CALLS_PER_HOST: Final = 2
"""How many calls of one host have a thread at the same time."""

MESSAGE_TTL: Final = 30
"""Seconds that a message waits in the broker: agents wait no longer for an answer."""

_LIMITS: Final = {
    "x-max-length": 256,
    "x-max-length-bytes": 2**22,
    "x-message-ttl": MESSAGE_TTL * 1000,
    "x-expires": 24 * 3600 * 1000,
}
"""Of a queue: the broker drops the oldest messages, and a queue without a reader for a day."""


def host_topic(host: str) -> str:
    """Return the topic of a host, which is also the name of its exchange."""
    return f"{AGENT_TOPIC}.{host}"


def queue_name(host: str) -> str:
    """Return the name of the queue for the calls of a host, which is also its routing key."""
    return f"{received.REGISTRY_TOPIC}-calls.{host}"


class _Consumer(impl_rabbit.Consumer):
    """Declares the queue of a host, and no exchange: the host may break that one.

    :param receive: takes a received message of amqp
    """

    def __init__(self, connection: Any, host: str, receive: Callable[[Any], None]) -> None:
        super().__init__(
            exchange_name="",
            queue_name=queue_name(host),
            routing_key="",
            type="direct",
            durable=True,
            exchange_auto_delete=False,
            queue_auto_delete=False,
            callback=None,
            rabbit_quorum_queue=connection.rabbit_quorum_queue,
            rabbit_quorum_queue_config=connection.rabbit_quorum_queue_config,
        )
        self.queue_arguments |= _LIMITS
        self._callback = receive  # type: ignore[method-assign]

    def declare(self, conn: Any) -> None:
        """Declare the queue; one that exists with other properties is used as it is."""
        queue: Any = entity.Queue(
            self.queue_name, durable=self.durable, queue_arguments=self.queue_arguments
        )
        # In a channel of its own: an error ends the channel.
        with conn.connection.channel() as channel:
            try:
                queue(channel).declare()
            except amqp_exceptions.PreconditionFailed as error:
                is_limit = "limit" in str(error)
                remedy = "raise max-queues" if is_limit else "it has other properties: delete it"
                LOG.warning("Queue %s is not declared; %s: %s", queue.name, remedy, error)
        self.queue = queue(conn.channel)
        self._declared_on = conn.channel


class _Operations(amqpdriver.MessageOperationsHandler):
    """What the thread of a listener does between two messages."""

    def __init__(self, name: str, call: Callable[[], None]) -> None:
        super().__init__(name)
        self._call = call

    def process(self) -> None:
        """Do what waits."""
        super().process()
        self._call()


class _QuietCache(amqpdriver.ObsoleteReplyQueuesCache):
    """Reply queues that are missing, without a line of the log for each answer."""

    def _no_reply_log(self, reply_q: str, msg_id: str) -> None:
        LOG.debug("Reply queue %s is missing; the answer to %s is dropped", reply_q, msg_id)


class Intake:
    """Receives the messages of one listener, as its only callback.

    :param listener: of oslo.messaging, which has not begun to receive
    """

    def __init__(self, listener: Any, reader: admission.Reader, drops: admission.DropLog) -> None:
        self._listener = listener
        self._connection = listener.conn.connection
        self._reader = reader
        self._drops = drops
        self._is_closed = threading.Event()
        self._hosts: set[str] = set()
        self._held: deque[tuple[admission.Budget, Any]] = deque()
        self._connection.rabbit_qos_prefetch_count = PREFETCH
        self._connection.channel.basic_qos(0, PREFETCH, False)
        listener._message_operations_handler = _Operations("agents", self._acknowledge_held)  # noqa: SLF001
        listener._obsolete_reply_queues = _QuietCache()  # noqa: SLF001
        for consumer in self._connection._consumers:  # noqa: SLF001
            budget = admission.Budget(admission.STRANGERS)
            consumer._callback = functools.partial(self._receive, budget)  # noqa: SLF001

    def add(self, host: str) -> None:
        """Begin to receive what a host sends; return at once."""
        if host not in self._hosts:
            self._hosts.add(host)
            declare = functools.partial(self._declare, host)
            self._listener._message_operations_handler.do(declare)  # noqa: SLF001

    def close(self) -> None:
        """Leave the messages that arrive from now on to other managers."""
        self._is_closed.set()

    def _declare(self, host: str) -> None:
        try:
            receive = functools.partial(self._receive, admission.Budget(host))
            self._connection.declare_consumer(_Consumer(self._connection, host, receive))
        except Exception:
            LOG.exception("Host %s: its queue could not be declared", host)
            self._hosts.discard(host)

    def _receive(self, budget: admission.Budget, message: Any) -> None:
        """Take a message of amqp; acknowledge it if the host may send the next one."""
        if self._is_closed.is_set():
            return
        budget.charge(message.body_size)
        try:
            request = self._reader.read(message.body, message.properties, budget.host)
            self._check_new(request)
        except admission.Refused as error:
            self._drops.record(budget.host, error.reason)
        else:
            budget.add_waiting(request.size)
            self._listener.incoming.append(self._to_incoming(request, budget))
        if budget.may_send():
            message.channel.basic_ack(message.delivery_tag)
        else:
            self._held.append((budget, message))

    def _check_new(self, request: admission.Request) -> None:
        cache = self._listener.msg_id_cache
        if request.unique_id in cache.prev_msgids:
            raise admission.Refused("repeated")
        cache.add(request.unique_id)

    def _to_incoming(self, request: admission.Request, budget: admission.Budget) -> Any:
        listener = self._listener
        incoming: Any = amqpdriver.AMQPIncomingMessage(
            listener,
            request.context,
            request.message,
            request.unique_id,
            request.message_id,
            request.reply_q,
            None,
            listener._obsolete_reply_queues,  # noqa: SLF001
            listener._message_operations_handler,  # noqa: SLF001
        )
        incoming.share = budget.host
        incoming.sender_timeout = request.timeout
        incoming.end = functools.partial(budget.remove_waiting, request.size)
        return incoming

    def _acknowledge_held(self) -> None:
        for _ in range(len(self._held)):
            budget, message = self._held.popleft()
            if not budget.may_send() and not self._is_closed.is_set():
                self._held.append((budget, message))
                continue
            # After a new connection, the broker delivers it again.
            with contextlib.suppress(*self._connection.connection.connection_errors):
                message.channel.basic_ack(message.delivery_tag)


class HostQueues:
    """The hosts whose queues the servers of this process read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hosts: dict[str, None] = {}
        self._intakes: list[Intake] = []
        self.drops = admission.DropLog()

    def serve(self, hosts: Iterable[str]) -> None:
        """Read the queues of these hosts from now on."""
        with self._lock:
            self._hosts |= dict.fromkeys(hosts)
            for intake in self._intakes:
                for host in self._hosts:
                    intake.add(host)

    def join(self, intake: Intake) -> None:
        """Have a new listener read the queues."""
        with self._lock:
            self._intakes.append(intake)
            for host in self._hosts:
                intake.add(host)


class CallServer(FairServer):
    """The RPC server for the calls of agents.

    :param queues: the hosts whose queues it reads, beside the common queue
    """

    def __init__(
        self,
        transport: Any,
        target: messaging.Target,
        dispatcher: Any,
        reader: admission.Reader,
        queues: HostQueues,
    ) -> None:
        super().__init__(transport, target, dispatcher, CALLS_PER_HOST)
        self._reader = reader
        self._queues = queues

    def _create_listener(self) -> Any:
        adapter = super()._create_listener()
        listener = getattr(adapter, "_poll_style_listener", None)
        if listener is None:
            return adapter  # Messages of this process come from no broker.
        intake = Intake(listener, self._reader, self._queues.drops)
        end = adapter.stop

        def stop() -> None:
            intake.close()
            end()

        adapter.stop = stop
        self._queues.join(intake)
        return adapter

    def _place_of(self, message: Any) -> tuple[str, str]:
        """Return the host, whatever the message says, as its share and as what it works on."""
        share = getattr(message, "share", None)
        return super()._place_of(message) if share is None else (share, f"host {share}")

    def _process_incoming(self, incoming: Any) -> None:
        try:
            super()._process_incoming(incoming)
        finally:
            if end := getattr(incoming[0], "end", None):
                end()


_REFUSALS: Final = {
    403: "the account of the host lacks rights that the guide gives it",
    404: "no manager reads a queue of this host: register it, and start a manager",
    406: "the exchange of the host has another type, or other properties; delete it",
}
"""Errors of AMQP for a binding, by their codes."""


def bind(connection_of: Callable[..., Any], host: str) -> None:
    """Bind the queue of a host to its exchange, with the account of the host.

    :param connection_of: of the driver of oslo.messaging: returns a connection for a purpose
    :raises PathCut: no manager has declared the queue, or the account lacks rights
    :raises MessageDeliveryFailure: the message queue cannot be reached
    """
    name = queue_name(host)
    refusals: list[Any] = []
    with connection_of(rpc_common.PURPOSE_SEND, retry=path_check.RETRIES) as context:
        connection = context.connection

        def declare() -> None:
            try:
                connection.channel.exchange_declare(
                    host_topic(host),
                    "topic",
                    durable=connection.durable,
                    auto_delete=connection.amqp_auto_delete,
                )
                connection.channel.queue_bind(name, host_topic(host), name)
            except connection.connection.channel_errors as error:
                # oslo.messaging would log it as an outage.
                refusals.append(error)

        with path_check.path_errors(), connection._connection_lock:  # noqa: SLF001
            connection.ensure(declare, retry=path_check.RETRIES)
    if refusals:
        raise path_check.PathCut(_REFUSALS.get(refusals[0].code, str(refusals[0])))


def is_read(connection_of: Callable[..., Any], name: str) -> bool:
    """Return whether a process reads a queue; not if the queue is missing.

    :param connection_of: as of :func:`bind`
    :raises MessageDeliveryFailure: the message queue cannot be reached
    """
    readers: list[int] = []
    with connection_of(rpc_common.PURPOSE_SEND, retry=path_check.RETRIES) as context:
        connection = context.connection

        def read() -> None:
            with contextlib.suppress(*connection.connection.channel_errors):
                declared = connection.channel.queue_declare(name, passive=True)
                readers.append(declared.consumer_count)

        with path_check.path_errors(), connection._connection_lock:  # noqa: SLF001
            connection.ensure(read, retry=path_check.RETRIES)
    return sum(readers) > 0
