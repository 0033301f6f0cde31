# SPDX-License-Identifier: Apache-2.0
"""Connections to RabbitMQ by kombu, with the options of oslo.messaging.

They are for what oslo.messaging has no function for: queues of other properties than its own,
messages that are acknowledged later than on arrival, and questions about queues and bindings.
"""

from collections import deque
from collections.abc import Iterator
import contextlib
import functools
import os
from pathlib import Path
import random
import socket
import ssl
import sys
import threading
from typing import Any, Final
from urllib import parse
import uuid

from amqp import exceptions as amqp_exceptions  # type: ignore[import-untyped]
from kombu import exceptions as kombu_exceptions
from kombu.connection import Connection
from kombu.messaging import Producer
from oslo_log import log as logging
import oslo_messaging as messaging
from oslo_messaging import opts
from oslo_serialization import jsonutils
from oslo_utils import netutils

from attachd.conf import CONF
from attachd.conf.messaging import RABBIT
from attachd.rpc import received

LOG = logging.getLogger(__name__)

FAILURES: Final = (
    amqp_exceptions.AMQPError,
    kombu_exceptions.OperationalError,
    OSError,
)
"""What an operation raises that the message queue refuses, or does not answer."""

ATTEMPTS: Final = 2
"""How often a message is sent that finds its connection broken."""

_SSL_VERSIONS: Final = {
    "sslv2": "PROTOCOL_SSLv2",
    "sslv3": "PROTOCOL_SSLv3",
    "sslv23": "PROTOCOL_SSLv23",
    "tlsv1": "PROTOCOL_TLSv1",
    "tlsv1_1": "PROTOCOL_TLSv1_1",
    "tlsv1_2": "PROTOCOL_TLSv1_2",
}


@functools.cache
def _options() -> dict[str, Any]:
    return {opt.dest: opt for opt in dict(opts.list_opts())[RABBIT]}


def option(url: messaging.TransportURL, name: str) -> Any:
    """Return an option of [oslo_messaging_rabbit], which the query of a URL may override."""
    if name in url.query:
        return _options()[name].type(url.query[name])
    return CONF[RABBIT][name]


def queue_arguments(url: messaging.TransportURL) -> dict[str, Any]:
    """Return the arguments of a queue that lasts, as oslo.messaging declares it."""
    arguments: dict[str, Any] = {}
    if option(url, "rabbit_ha_queues"):
        arguments["x-ha-policy"] = "all"
    if option(url, "rabbit_quorum_queue"):
        arguments["x-queue-type"] = "quorum"
        for key, name in (
            ("x-delivery-limit", "rabbit_quorum_delivery_limit"),
            ("x-max-in-memory-length", "rabbit_quorum_max_memory_length"),
            ("x-max-in-memory-bytes", "rabbit_quorum_max_memory_bytes"),
        ):
            if limit := option(url, name):
                arguments[key] = limit
    return arguments


def is_durable(url: messaging.TransportURL) -> bool:
    """Return whether exchanges, and queues that last, survive a restart of the broker."""
    return bool(option(url, "amqp_durable_queues") or option(url, "rabbit_quorum_queue"))


def connect(url: messaging.TransportURL, purpose: str, heartbeat: float = 0) -> Connection:
    """Return a new connection, which is open.

    :param purpose: a word for the list of connections of the broker
    :param heartbeat: seconds between two heartbeats; 0: the caller sends none
    :raises MessageDeliveryFailure: the message queue cannot be reached
    """
    received.limit()
    hosts = list(url.hosts) or [messaging.TransportHost("localhost")]  # the account is guest
    random.shuffle(hosts)
    silence = option(url, "heartbeat_timeout_threshold") or None
    name = f"{Path(sys.argv[0]).name}:{os.getpid()}:{purpose}:{uuid.uuid4()}"
    capabilities = dict.fromkeys(
        ("authentication_failure_close", "connection.blocked", "consumer_cancel_notify"), True
    )
    connection = Connection(
        [_address(url, host) for host in hosts],
        ssl=_ssl(url),
        login_method=option(url, "rabbit_login_method"),
        heartbeat=heartbeat,
        failover_strategy=option(url, "kombu_failover_strategy"),
        transport_options={
            "confirm_publish": True,
            "client_properties": {"capabilities": capabilities, "connection_name": name},
            "read_timeout": silence,
            "write_timeout": silence,
            "socket_settings": {socket.TCP_USER_TIMEOUT: int(1000 * (silence or 0))},
        },
    )
    try:
        connection.ensure_connection(
            max_retries=len(hosts), interval_start=0, interval_step=0.2, interval_max=0.2
        )
    except FAILURES as error:
        connection.collect()
        raise messaging.MessageDeliveryFailure(f"{error}") from error
    return connection


def _address(url: messaging.TransportURL, host: messaging.TransportHost) -> str:
    user, password = (parse.quote(part or "", safe="") for part in (host.username, host.password))
    server = f"{netutils.escape_ipv6(host.hostname)}:{host.port or 5672}"
    return f"amqp://{user}:{password}@{server}/{url.virtual_host or ''}"


def _ssl(url: messaging.TransportURL) -> dict[str, Any] | bool:
    if not option(url, "ssl"):
        return False
    parameters: dict[str, Any] = {}
    if version := option(url, "ssl_version"):
        parameters["ssl_version"] = getattr(ssl, _SSL_VERSIONS[version.lower()])
    for key, name in (("keyfile", "ssl_key_file"), ("certfile", "ssl_cert_file")):
        if path := option(url, name):
            parameters[key] = path
    if path := option(url, "ssl_ca_file"):
        parameters["ca_certs"] = path
        parameters["cert_reqs"] = ssl.CERT_REQUIRED
        # None: that of the host to which it connects.
        parameters["server_hostname"] = None
    return parameters or True


def declare_topic(
    url: messaging.TransportURL, connection: Connection, exchange: str, name: str
) -> None:
    """Declare a queue that gets the messages to a topic, as oslo.messaging does.

    :param name: of the queue, which is also the topic
    :raises AMQPError: the message queue refuses it
    """
    durable, auto_delete = is_durable(url), option(url, "amqp_auto_delete")
    # In a channel of its own: an error ends the channel.
    with connection.channel() as channel:
        if not exchange.startswith("amq."):
            channel.exchange_declare(exchange, "topic", durable=durable, auto_delete=auto_delete)
        channel.queue_declare(
            name, durable=durable, auto_delete=auto_delete, arguments=queue_arguments(url)
        )
        channel.queue_bind(name, exchange, name)


def declare_fanout(
    url: messaging.TransportURL, connection: Connection, topic: str, name: str | None
) -> None:
    """Declare a queue that gets the messages to all servers of a topic, as oslo.messaging does.

    :param name: of the queue; None: only the exchange
    :raises AMQPError: the message queue refuses it
    """
    with connection.channel() as channel:
        channel.exchange_declare(
            f"{topic}_fanout",
            "fanout",
            durable=option(url, "rabbit_transient_quorum_queue")
            or option(url, "rabbit_stream_fanout"),
            auto_delete=True,
        )
        if name is not None:
            declare_transient(url, channel, name)
            channel.queue_bind(name, f"{topic}_fanout", topic)


def declare_transient(url: messaging.TransportURL, channel: Any, name: str) -> None:
    """Declare a queue of one process, which the broker deletes some time after its end."""
    durable = option(url, "rabbit_transient_quorum_queue")
    arguments: dict[str, Any] = {"x-queue-type": "quorum"} if durable else {}
    if seconds := option(url, "rabbit_transient_queues_ttl"):
        arguments["x-expires"] = seconds * 1000
    channel.queue_declare(name, durable=durable, auto_delete=False, arguments=arguments)


def declare_server(url: messaging.TransportURL, target: messaging.Target) -> None:
    """Declare what a server of oslo.messaging reads, except for its own queue of its fanout.

    :raises MessageDeliveryFailure: the message queue refuses it, or cannot be reached
    """
    exchange = target.exchange or CONF.control_exchange
    with lend(url, "declare") as connection:
        for name in (target.topic, f"{target.topic}.{target.server}"):
            declare_topic(url, connection, exchange, name)
        declare_fanout(url, connection, target.topic, None)


def declare_queue(url: messaging.TransportURL, target: messaging.Target) -> None:
    """Declare the queue of a topic, and what it needs.

    :raises MessageDeliveryFailure: the message queue refuses it, or cannot be reached
    """
    with lend(url, "declare") as connection:
        declare_topic(url, connection, target.exchange, target.topic)


@contextlib.contextmanager
def lend(url: messaging.TransportURL, purpose: str) -> Iterator[Connection]:
    """Lend a new connection.

    :raises MessageDeliveryFailure: the message queue cannot be reached, or has stopped to answer
    """
    connection = connect(url, purpose)
    try:
        yield connection
    except FAILURES as error:
        raise messaging.MessageDeliveryFailure(f"{error}") from error
    finally:
        connection.release()


class _Line:
    """A connection that sends messages, one at a time.

    :raises MessageDeliveryFailure: the message queue cannot be reached
    """

    def __init__(self, url: messaging.TransportURL) -> None:
        self.connection = connect(url, "send")
        self._returned: list[tuple[Any, ...]] = []
        self._compression = option(url, "kombu_compression")
        self._limits = [item for item in [option(url, "heartbeat_timeout_threshold")] if item]
        try:
            # Not the default channel: for that kombu would connect without a limit.
            self._producer = Producer(
                self.connection.channel(), serializer="json", on_return=self._record_returned
            )
        except FAILURES as error:
            self.connection.collect()
            raise messaging.MessageDeliveryFailure(f"{error}") from error

    def _record_returned(self, *parts: Any) -> None:
        self._returned.append(parts)

    def publish(
        self, envelope: dict[str, str], exchange: str, key: str, timeout: float | None
    ) -> tuple[Any, ...] | None:
        """Send a message; return what the broker returns if no queue takes it."""
        self._returned.clear()
        limits = [*self._limits, timeout] if timeout else self._limits
        self._producer.publish(
            envelope,
            exchange=exchange,
            routing_key=key,
            mandatory=True,
            expiration=timeout,
            compression=self._compression,
            confirm_timeout=min(limits, default=None),
        )
        return self._returned[0] if self._returned else None


class Sender:
    """Sends messages, each with a confirmation of the broker; safe to share between threads."""

    def __init__(self, url: messaging.TransportURL) -> None:
        self._url = url
        self._idle: deque[_Line] = deque()
        self._free = threading.BoundedSemaphore(option(url, "rpc_conn_pool_size"))

    def send(
        self, content: dict[str, Any], exchange: str, key: str, timeout: float | None = None
    ) -> None:
        """Send a message to a queue.

        :param content: what JSON can say
        :param timeout: seconds after which the broker drops a message that waits, and in which it
            has to confirm it
        :raises MessageUndeliverable: no queue takes it
        :raises MessageDeliveryFailure: the message queue refuses it, or cannot be reached; its
            context is the error of amqp
        """
        envelope = {"oslo.version": "2.0", "oslo.message": jsonutils.dumps(content)}
        with self._free:
            for attempt in range(ATTEMPTS):
                line = self._take()
                try:
                    returned = line.publish(envelope, exchange, key, timeout)
                except amqp_exceptions.MessageNacked as error:
                    self._idle.append(line)
                    raise messaging.MessageDeliveryFailure(f"{key} is full") from error
                except line.connection.channel_errors as error:
                    line.connection.collect()  # Its channel no longer confirms messages.
                    raise messaging.MessageDeliveryFailure(f"{error}") from error
                except FAILURES as error:
                    line.connection.collect()
                    self.close()  # The others were made before, and are likely as broken.
                    if attempt + 1 == ATTEMPTS or isinstance(error, TimeoutError):
                        raise messaging.MessageDeliveryFailure(f"{error}") from error
                else:
                    self._idle.append(line)
                    if returned:
                        raise messaging.MessageUndeliverable(*returned)
                    return

    def _take(self) -> _Line:
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        return _Line(self._url)

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            with contextlib.suppress(IndexError, *FAILURES):
                self._idle.pop().connection.collect()
