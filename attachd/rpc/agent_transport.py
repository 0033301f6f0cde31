# SPDX-License-Identifier: Apache-2.0
"""RPC in the virtual host of the agents: clients and servers of the registry and of hosts.

Each host has an account of the message queue, and may have been taken over.  So nothing that
commands the service, or answers it, is in this virtual host:

* Managers listen there on one topic, the registry, at an exchange that no account can delete.
  They check the key of the host in each call, and answer only into a queue of this host.
* Each host has an exchange and queues of its own name.  The API and managers only cast to it, so
  that they have no reply queue there, and an agent answers no call.
"""

from collections import deque
from collections.abc import Callable
import functools
import re
import threading
from typing import Any, Final
import uuid

from oslo_log import log as logging
import oslo_messaging as messaging

from attachd import exception
from attachd.conf import CONF
from attachd.rpc import path_check, received, transport
from attachd.rpc.fair_dispatch import FairServer

LOG = logging.getLogger(__name__)

HOST_SERVER: Final = "agent"
"""The name of the server of each host."""

_NAMER: Final = "_get_reply_queue_name"
"""The method of oslo.messaging's drivers that names the reply queue of a process."""


class CastDispatcher(transport.Dispatcher):
    """Dispatch casts, and drop calls: the sender would choose the queue of the answer."""

    def dispatch(self, incoming: Any) -> Any:
        """Dispatch a message."""
        if incoming.reply_q:
            _drop(incoming, "agents answer no calls")
            return None
        return super().dispatch(incoming)


class RegistryDispatcher(transport.Dispatcher):
    """Dispatch calls of agents, and answer only into a reply queue of the calling host."""

    def dispatch(self, incoming: Any) -> Any:
        """Dispatch a message and return the answer; exceptions of the endpoint propagate."""
        # Any other type is of a caller in this process.
        is_remote = isinstance(incoming.reply_q, str | int | float | list | dict)
        if is_remote and not _is_reply_queue(incoming.reply_q, incoming.message.get("args")):
            _drop(incoming, "its reply queue is not one of its host")
            return None
        # No agent asks for heartbeats, and oslo.messaging never ends those for an unknown method.
        incoming.client_timeout = None
        if is_remote:
            host = str(incoming.message["args"]["host"])
            incoming.reply = functools.partial(_answers.send, host, incoming.reply)
        return super().dispatch(incoming)


_PROVED: Final = (exception.AttachmentNotFound, exception.InvalidTransition)
"""Errors of calls whose key was right."""


class Answers:
    """Sends the answers to each host in a thread of its own.

    A host may declare its reply queue so that the broker accepts no message for it.
    oslo.messaging repeats such an answer without a limit.  So it occupies one thread for this
    host, and none of the server.  Callers that have not proved to be a host share one thread:
    they may name any host, and reply queues that are missing, for which oslo.messaging waits.
    """

    MAX_HOSTS: Final = 256
    """To how many hosts answers are sent at the same time."""

    MAX_WAITING: Final = 64
    """How many answers wait for one host."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Callable[[], object]]] = {}

    def send(
        self, host: str, send: Callable[..., object], reply: Any = None, failure: Any = None
    ) -> None:
        """Send an answer soon, or drop it if earlier ones are stuck.

        :param send: takes the last two arguments
        :param reply: the result
        :param failure: of sys.exc_info(); None: the call has succeeded
        """
        if failure is not None and not isinstance(failure[1], _PROVED):
            host = ""
        with self._lock:
            is_new = host not in self._waiting
            if is_new and len(self._waiting) < self.MAX_HOSTS:
                self._waiting[host] = deque()
            waiting = self._waiting.get(host)
            if waiting is None or len(waiting) >= self.MAX_WAITING:
                LOG.warning("Host %s: an answer to its agent is dropped: too many wait", host)
                return
            waiting.append(functools.partial(send, reply, failure))
        if is_new:
            threading.Thread(target=self._run, args=(host,), daemon=True).start()

    def _run(self, host: str) -> None:
        while answer := self._next(host):
            try:
                answer()
            except Exception:
                LOG.exception("Host %s: an answer to its agent could not be sent", host)

    def _next(self, host: str) -> Callable[[], object] | None:
        with self._lock:
            if waiting := self._waiting[host]:
                return waiting.popleft()
            del self._waiting[host]
            return None


_answers = Answers()


def _drop(incoming: Any, reason: str) -> None:
    LOG.warning("%s is dropped: %s", incoming.message.get("method"), reason)
    incoming.reply = transport.discard_reply


def _is_reply_queue(name: Any, arguments: Any) -> bool:
    host = arguments.get("host") if isinstance(arguments, dict) else None
    pattern = rf"{re.escape(_reply_prefix(host))}[0-9a-f]{{32}}"
    known = isinstance(host, str) and isinstance(name, str)
    return known and re.fullmatch(pattern, name) is not None


def _reply_prefix(host: Any) -> str:
    return f"reply_{host}_"


def host_topic(host: str) -> str:
    """Return the topic of a host, which is also the name of its exchange."""
    return f"{CONF.agent.topic}.{host}"


def get_host_client(host: str, version: str) -> transport.Client:
    """Return this process's client for casts to the agent of a host.

    :param version: of the contract, as in agent_api
    """
    return transport.cached(_make_host_client, host_topic(host), version)


def _make_host_client(topic: str, version: str) -> transport.Client:
    return _make_client(messaging.Target(exchange=topic, topic=topic, version=version), None)


def get_registry_client(host: str, timeout: float, version: str) -> transport.Client:
    """Return this process's client for the calls of the agent of a host.

    :param timeout: seconds to wait for an answer
    :param version: of the contract, as in agent_manager_api
    """
    return transport.cached(
        _make_registry_client, host, CONF.agent.manager_topic, timeout, version
    )


def _make_registry_client(host: str, topic: str, timeout: float, version: str) -> transport.Client:
    # Not random as by default: the account of a host may have only queues of its own name.
    # No option sets the name; pinned by tests/unit/rpc/test_agent_transport.py.
    driver: Any = transport.get_agent_transport()._driver  # noqa: SLF001
    setattr(driver, _NAMER, lambda: f"{_reply_prefix(host)}{uuid.uuid4().hex}")
    target = messaging.Target(exchange=received.REGISTRY_EXCHANGE, topic=topic, version=version)
    return _make_client(target, timeout)


def _make_client(target: messaging.Target, timeout: float | None) -> transport.Client:
    connection = transport.get_agent_transport()
    rpc = messaging.get_rpc_client(
        connection,
        target,
        timeout=timeout,
        version_cap=target.version,
        serializer=transport.Serializer(),
        retry=transport.RETRIES,
        transport_options=messaging.TransportOptions(at_least_once=True),
    ).prepare()
    ping_target = messaging.Target(exchange=target.exchange, topic=f"{target.topic}-ping")
    return transport.Client(rpc, functools.partial(transport.ping, connection, ping_target))


def get_host_server(endpoint: Any, host: str) -> Any:
    """Return the server of a host's agent, not yet started: see transport.get_server()."""
    topic = host_topic(host)
    target = messaging.Target(exchange=topic, topic=topic, server=HOST_SERVER)
    return FairServer(transport.get_agent_transport(), target, CastDispatcher(endpoint))


class LimitedServer(FairServer):
    """An RPC server that takes a limited number of messages from the broker at a time.

    oslo.messaging acknowledges all messages that wait, and keeps them in memory.  Hosts could send
    more of them than the server processes.  The limits of queues apply to what the broker keeps.
    """

    MAX_PENDING: Final = 64

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pending = threading.Semaphore(self.MAX_PENDING)

    def _on_incoming(self, incoming: Any) -> None:
        self._pending.acquire()
        try:
            super()._on_incoming(incoming)
        except Exception:
            # Else the listener would pause for a second.
            self._pending.release()
            LOG.exception("A message is dropped")

    def _process_incoming(self, incoming: Any) -> None:
        try:
            super()._process_incoming(incoming)
        finally:
            self._pending.release()


def get_registry_server(endpoint: Any, caller_timeout: float) -> Any:
    """Return the server for agents in a manager, not yet started: see transport.get_server().

    No agent calls one of the managers by name, so they use the name of their machine: a name of
    its own would leave a queue behind for each process that ends.

    :param caller_timeout: seconds that agents wait for an answer
    """
    target = messaging.Target(
        exchange=received.REGISTRY_EXCHANGE, topic=CONF.agent.manager_topic, server=CONF.host
    )
    connection, probes = transport.get_agent_transport(), path_check.ProbeLog()
    dispatcher = RegistryDispatcher(endpoint, caller_timeout, probes)

    def make() -> LimitedServer:
        return LimitedServer(connection, target, dispatcher)

    if not transport.is_broker_used(transport.agent_transport_url()):
        return make()
    return path_check.CheckedServer(make, connection, target, probes)


def check_registry() -> None:
    """Check that the message queue has a receiver for the calls of agents.

    :raises Unavailable: none of the managers can get them now
    """
    if not transport.is_broker_used(transport.agent_transport_url()):
        return
    target = messaging.Target(exchange=received.REGISTRY_EXCHANGE, topic=CONF.agent.manager_topic)
    try:
        path_check.send_probe(transport.get_agent_transport(), target)
    except (path_check.PathCut, messaging.MessageDeliveryFailure) as error:
        raise exception.Unavailable(
            reason=f"The message queue does not deliver the reports of agents: {error}."
        ) from error
