# SPDX-License-Identifier: Apache-2.0
"""The queue of each host for its calls to managers.

With one queue for all hosts, a host that sends more than managers process would delay all others.
So managers declare a queue for each registered host.  Its account may only bind it to its own
exchange: it can put nothing into the queue of another host, and can neither delete its own one
nor declare it differently.

Managers have one unacknowledged message of each queue at a time.  oslo.messaging acknowledges each
message when it arrives, so that its option for a prefetch count limits nothing.  So managers read
these queues by kombu, and when a message is acknowledged depends on the budget of the host.
"""

from collections import deque
from collections.abc import Callable, Iterable
import functools
import threading
from typing import Any, Final
import uuid

from amqp import exceptions as amqp_exceptions  # type: ignore[import-untyped]
from kombu.connection import Connection
from oslo_log import log as logging
import oslo_messaging as messaging

from attachd.rpc import admission, broker, path_check, received
from attachd.rpc.answers import AnswerSender
from attachd.rpc.fair_dispatch import place_of_message
from attachd.rpc.receiver import Incoming, Queue, Receiver, ReceivingServer, SeenIds

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


class Intake:
    """Takes the messages that one receiver gets, and decides when each is acknowledged.

    :param submit: executes a message when its turn comes
    :param send: sends an answer; takes reply queue, message id, result and failure
    :param paused: while it is set, no message is acknowledged
    """

    def __init__(
        self,
        submit: Callable[[Incoming], object],
        send: Callable[[str, str | None, Any, Any], object],
        reader: admission.Reader,
        drops: admission.DropLog,
        paused: threading.Event,
    ) -> None:
        self._submit = submit
        self._send = send
        self._reader = reader
        self._drops = drops
        self._paused = paused
        self._is_closed = threading.Event()
        self._seen = SeenIds()
        self._held: deque[tuple[admission.Budget, Any]] = deque()

    def close(self) -> None:
        """Leave the messages that arrive from now on to other managers."""
        self._is_closed.set()

    def forget(self) -> None:
        """Acknowledge none of the messages that arrived by a former connection."""
        self._held.clear()

    def receive(self, budget: admission.Budget, message: Any) -> None:
        """Take a message of amqp; acknowledge it if the host may send the next one."""
        if self._is_closed.is_set():
            return
        if (request := self._read(budget, message)) is not None:
            budget.add_waiting(request.size)
            self._submit(self._to_incoming(request, budget))
        self._acknowledge(budget, message)

    def _acknowledge(self, budget: admission.Budget, message: Any) -> None:
        if budget.may_send() and not self._paused.is_set():
            message.channel.basic_ack(message.delivery_tag)
        else:
            self._held.append((budget, message))

    def _read(self, budget: admission.Budget, message: Any) -> admission.Request | None:
        """Return a request, and charge for the message; None: it is dropped."""
        properties, max_size = message.properties, admission.MAX_REPORT_SIZE
        size = max(message.body_size, max_size)  # so much may have been decompressed
        try:
            text = admission.decompress(message.body, properties, max_size)
            size = max(message.body_size, len(text))
            request = self._reader.read(text, properties, budget.host)
            if self._seen.add(request.unique_id):
                return request
            self._drops.record(budget.host, "repeated")
        except admission.Refused as error:
            self._drops.record(budget.host, error.reason)
        except Exception:
            # Else the message would be dropped without the budget of its host.
            if self._drops.record(budget.host, "form"):
                LOG.exception("A message of host %s could not be read", budget.host)
        finally:
            budget.charge(size)
        return None

    def _to_incoming(self, request: admission.Request, budget: admission.Budget) -> Incoming:
        send = None
        if request.reply_q is not None:
            send = functools.partial(self._send, request.reply_q, request.message_id)
        end = functools.partial(budget.remove_waiting, request.size)
        incoming = Incoming(request.context, request.message, request.reply_q, send, end)
        incoming.share = budget.host
        incoming.sender_timeout = request.timeout
        return incoming

    def acknowledge_held(self) -> None:
        """Acknowledge the messages of the hosts that may send the next one."""
        if not self._paused.is_set():
            for _ in range(len(self._held)):
                self._acknowledge(*self._held.popleft())


class HostQueues:
    """The hosts whose queues the servers of this process read.

    :ivar paused: while it is set, the servers acknowledge nothing, so that each queue gives them
        one more message at most, and the others to other managers
    """

    def __init__(self) -> None:
        self.paused = threading.Event()
        self._lock = threading.Lock()
        self._hosts: dict[str, None] = {}
        self._servers: list[CallServer] = []
        self.drops = admission.DropLog()

    def serve(self, hosts: Iterable[str]) -> None:
        """Read the queues of these hosts from now on."""
        with self._lock:
            self._hosts |= dict.fromkeys(hosts)
            for server in self._servers:
                for host in self._hosts:
                    server.add(host)

    def join(self, server: "CallServer") -> None:
        """Have a new server read the queues."""
        with self._lock:
            self._servers.append(server)
            for host in self._hosts:
                server.add(host)


class CallServer(ReceivingServer):
    """The RPC server for the calls of agents.

    :param queues: the hosts whose queues it reads, beside the common queue
    """

    def __init__(
        self,
        url: messaging.TransportURL,
        target: messaging.Target,
        dispatcher: Any,
        reader: admission.Reader,
        queues: HostQueues,
    ) -> None:
        super().__init__(target.server, dispatcher, CALLS_PER_HOST, place_of)
        self._url = url
        self._queues = queues
        timeout = broker.option(url, "kombu_missing_consumer_retry_timeout")
        self._sender = AnswerSender(broker.Sender(url), timeout)
        self._intake = Intake(self.submit, self._sender.send, reader, queues.drops, queues.paused)
        self._declarer = CallQueues(url)
        self._lock = threading.Lock()
        self._hosts: set[str] = set()
        fanout = f"{target.topic}_fanout_{uuid.uuid4().hex}"
        self.receiver = Receiver(
            url,
            target.topic,
            [
                *(
                    self._common(
                        name,
                        functools.partial(
                            broker.declare_topic, url, exchange=target.exchange, name=name
                        ),
                    )
                    for name in (target.topic, f"{target.topic}.{target.server}")
                ),
                self._common(
                    fanout,
                    functools.partial(broker.declare_fanout, url, topic=target.topic, name=fanout),
                ),
            ],
            PREFETCH,
            self._intake.forget,
            self._intake.acknowledge_held,
        )

    def _common(self, name: str, declare: Callable[[Connection], object]) -> Queue:
        budget = admission.Budget(admission.STRANGERS)
        return Queue(name, declare, functools.partial(self._intake.receive, budget))

    def start(self, override_pool_size: int | None = None) -> None:
        """Begin to receive, with so many threads; return when everything is declared."""
        super().start(override_pool_size)
        self._queues.join(self)

    def stop(self) -> None:
        """Receive no more messages."""
        self._intake.close()
        super().stop()

    def wait(self) -> None:
        """Wait until all received messages are processed."""
        super().wait()
        self._sender.close()

    def add(self, host: str) -> None:
        """Begin to read the queue of a host; return at once."""
        with self._lock:
            if host in self._hosts:
                return
            self._hosts.add(host)
        receive = functools.partial(self._intake.receive, admission.Budget(host))
        declare = functools.partial(self._declarer.declare, host)
        give_up = functools.partial(self._give_up, host)
        self.receiver.add(Queue(queue_name(host), declare, receive, give_up))

    def _give_up(self, host: str) -> None:
        """Have a host be added once more whose queue could not be declared."""
        with self._lock:
            self._hosts.discard(host)


def place_of(message: Any) -> tuple[str, str]:
    """Return the host, not what the message says, as its share and as what it works on."""
    share = getattr(message, "share", None)
    return place_of_message(message) if share is None else (share, f"host {share}")


class CallQueues:
    """Declares queues of hosts for their calls; used by one thread.

    There may be thousands of them, so they have one channel, and another one after an error, which
    ends a channel.
    """

    def __init__(self, url: messaging.TransportURL) -> None:
        self._durable = broker.is_durable(url)
        self._arguments = broker.queue_arguments(url) | _LIMITS
        self._connection: Connection | None = None
        self._channel: Any = None

    def declare(self, host: str, connection: Connection) -> None:
        """Declare the queue of a host, and no exchange: the host may break that one.

        A queue that exists with other properties is used as it is.

        :raises AMQPError: the message queue refuses it
        """
        name = queue_name(host)
        try:
            self._declare(connection, name, durable=self._durable, arguments=self._arguments)
        except amqp_exceptions.PreconditionFailed as error:
            is_limit = "limit" in str(error)
            remedy = "raise max-queues" if is_limit else "it has other properties: delete it"
            LOG.warning("Queue %s is not declared; %s: %s", name, remedy, error)
            self._declare(connection, name, passive=True)

    def _declare(self, connection: Connection, name: str, **properties: Any) -> None:
        if self._connection is not connection:
            self._connection, self._channel = connection, connection.channel()
        try:
            self._channel.queue_declare(name, auto_delete=False, **properties)
        except amqp_exceptions.ChannelError:
            self._connection = None
            self._channel.close()
            raise


_REFUSALS: Final = {
    403: "the account of the host lacks rights that the guide gives it",
    404: "no manager reads a queue of this host: register it, and start a manager",
    406: "the exchange of the host has another type, or other properties; delete it",
}
"""Errors of AMQP for a binding, by their codes."""


def bind(url: messaging.TransportURL, host: str) -> None:
    """Bind the queue of a host to its exchange, with the account of the host.

    :raises PathCut: no manager has declared the queue, or the account lacks rights
    :raises MessageDeliveryFailure: the message queue cannot be reached
    """
    name = queue_name(host)
    with broker.lend(url, "bind") as connection:
        channel = connection.channel()
        try:
            channel.exchange_declare(
                host_topic(host),
                "topic",
                durable=broker.is_durable(url),
                auto_delete=broker.option(url, "amqp_auto_delete"),
            )
            channel.queue_bind(name, host_topic(host), name)
        except connection.channel_errors as error:
            reason = _REFUSALS.get(error.code, f"{error}")
            raise path_check.PathCut(reason) from error


def count_consumers(url: messaging.TransportURL, name: str) -> int:
    """Return how many processes read a queue.

    :raises PathCut: there is none, or it may not be looked at
    :raises MessageDeliveryFailure: the message queue cannot be reached
    """
    with broker.lend(url, "count") as connection:
        try:
            declared = connection.channel().queue_declare(name, passive=True)
        except connection.channel_errors as error:
            raise path_check.PathCut(f"{error}") from error
    return int(declared.consumer_count)
