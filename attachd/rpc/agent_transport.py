# SPDX-License-Identifier: Apache-2.0
"""RPC in the virtual host of the agents: clients and servers of the registry and of hosts.

Each host has an account of the message queue, and may have been taken over.  So nothing that
commands the service, or answers it, is in this virtual host:

* Managers read a queue for the calls of each host (rpc/host_queues.py), and a common one, the
  registry, of hosts that have none yet.  They check the key of the host in each call, and answer
  only into a queue of this host.
* Each host has an exchange and queues of its own name.  The API and managers only cast to it, so
  that they have no reply queue there, and an agent answers no call.
"""

from collections import deque
from collections.abc import Callable, Iterator
import contextlib
import functools
import secrets
import threading
from typing import Any, Final

from oslo_log import log as logging
import oslo_messaging as messaging
from oslo_messaging.rpc import dispatcher as rpc_dispatcher

from attachd import exception
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.rpc import admission, broker, host_queues, path_check, received, transport
from attachd.rpc.call_client import CallClient, Replies
from attachd.rpc.fair_dispatch import FairServer
from attachd.rpc.host_queues import HostQueues, host_topic
from attachd.rpc.host_server import HostServer, LocalServer, RequestServer

LOG = logging.getLogger(__name__)

HOST_SERVER: Final = "agent"
"""The name of the server of each host."""


class CastDispatcher(transport.Dispatcher):
    """Dispatch casts, and drop calls: the sender would choose the queue of the answer."""

    def dispatch(self, incoming: Any) -> Any:
        """Dispatch a message."""
        if incoming.reply_q:
            _drop(incoming, "agents answer no calls")
            return None
        return super().dispatch(incoming)


class RegistryDispatcher(transport.Dispatcher):
    """Dispatch calls of agents, and answer each host in a thread of its own.

    :param drops: counts calls that were not executed
    """

    def __init__(
        self,
        endpoint: Any,
        caller_timeout: float | None = None,
        probes: path_check.ProbeLog | None = None,
        drops: admission.DropLog | None = None,
    ) -> None:
        super().__init__(endpoint, caller_timeout, probes)
        self._drops = drops or admission.DropLog()
        self._answers = Answers(self._drops)

    def dispatch(self, incoming: Any) -> Any:
        """Dispatch a message and return the answer; each error is an answer."""
        share = getattr(incoming, "share", None)
        if share is None or incoming.reply_q is None:
            return super().dispatch(incoming)  # of a caller in this process, or a probe
        timeout = incoming.sender_timeout
        if timeout is not None and incoming.stopwatch.elapsed() > timeout:
            self._drops.record(share, "expired")
            incoming.reply = transport.discard_reply
            return None
        host = str(incoming.message["args"]["host"])
        incoming.reply = functools.partial(self._answers.send, host, share, incoming.reply)
        try:
            return super().dispatch(incoming)
        except rpc_dispatcher.ExpectedException:
            raise
        except rpc_dispatcher.UnsupportedVersion:
            self._drops.record(share, "version")
            raise rpc_dispatcher.ExpectedException from None
        except Exception:
            # oslo.messaging would log a traceback for each of them.
            if self._drops.record(share, "error"):
                LOG.exception("Host %s: a call of its agent failed", host)
            raise rpc_dispatcher.ExpectedException from None


_PROVED: Final = (exception.AttachmentNotFound, exception.InvalidTransition)
"""Errors of calls whose key was right."""


class Answers:
    """Sends the answers to each host in a thread of its own.

    A host may declare its reply queue so that the broker accepts no message for it.
    oslo.messaging repeats such an answer without a limit.  So it occupies one thread for this
    host, and none of the server.  Callers that have not proved to be a host share one thread:
    they may name any host, and reply queues that are missing, for which oslo.messaging waits.

    :param drops: counts answers that were not sent
    """

    MAX_HOSTS: Final = 256
    """To how many hosts answers are sent at the same time."""

    MAX_WAITING: Final = 64
    """How many answers wait for one host."""

    def __init__(self, drops: admission.DropLog) -> None:
        self._lock = threading.Lock()
        self._drops = drops
        self._waiting: dict[str, deque[Callable[[], object]]] = {}

    def send(
        self,
        host: str,
        share: str,
        send: Callable[..., object],
        reply: Any = None,
        failure: Any = None,
    ) -> None:
        """Send an answer soon, or drop it if earlier ones are stuck.

        :param share: the host whose queue had the call; STRANGERS: the common queue
        :param send: takes the last two arguments
        :param reply: the result
        :param failure: of sys.exc_info(); None: the call has succeeded
        """
        is_proved = share != admission.STRANGERS or failure is None
        if not is_proved and not isinstance(failure[1], _PROVED):
            host = admission.STRANGERS
        with self._lock:
            is_new = host not in self._waiting
            if is_new and len(self._waiting) < self.MAX_HOSTS:
                self._waiting[host] = deque()
            waiting = self._waiting.get(host)
            if waiting is None or len(waiting) >= self.MAX_WAITING:
                self._drops.record(host, "answer")
                return
            waiting.append(functools.partial(send, reply, failure))
        if is_new:
            threading.Thread(target=self._run, args=(host,), daemon=True).start()

    def _run(self, host: str) -> None:
        while answer := self._next(host):
            try:
                answer()
            except Exception as error:  # noqa: BLE001  the next one may be sent
                if self._drops.record(host, "answer"):
                    LOG.warning("Host %s: an answer could not be sent: %s", host, error)

    def _next(self, host: str) -> Callable[[], object] | None:
        with self._lock:
            if waiting := self._waiting[host]:
                return waiting.popleft()
            del self._waiting[host]
            return None


def _drop(incoming: Any, reason: str) -> None:
    LOG.warning("%s is dropped: %s", incoming.message.get("method"), reason)
    incoming.reply = transport.discard_reply


def get_host_client(host: str, version: str) -> transport.Client:
    """Return this process's client for casts to the agent of a host.

    :param version: of the contract, as in agent_api
    """
    return transport.cached(_make_host_client, host_topic(host), version)


def _make_host_client(topic: str, version: str) -> transport.Client:
    return _make_client(messaging.Target(exchange=topic, topic=topic, version=version), None)


class RegistryClient:
    """The client of the agent of a host for the calls of managers.

    A call takes the queue of the host.  A binding that is missing is made; if that is not
    possible, such as because no manager knows the host yet, a call takes the common queue, if the
    account has the right.  So it does if nothing reads the queue of the host: it is left of a host
    that was removed, and managers that have started since do not know it.

    :param own: a client that sends to the exchange of the host
    :param common: one that sends to the common queue; None: without a broker there is no other one
    """

    def __init__(self, host: str, own: transport.Client, common: transport.Client | None) -> None:
        self._host = host
        self._own = own
        self._common = common

    def call(self, context: RequestContext, method: str, **arguments: Any) -> Any:
        """Call a method and return its answer; raises as transport.Client.call().

        :raises PathCut: neither the queue of the host nor the common one takes messages
        """
        send = functools.partial(_call_on_path, context, method, arguments)
        if self._common is None:
            return self._own.call(context, method, **arguments)
        try:
            return self._call_own(send)
        except messaging.MessagingTimeout as error:
            if _is_read(transport.agent_transport_url(), host_queues.queue_name(self._host)):
                raise
            failed: Exception = error
        except path_check.PathCut as error:
            failed = error
        try:
            return send(self._common)
        except (path_check.PathCut, messaging.MessageDeliveryFailure):
            raise failed from None

    def _call_own(self, send: Callable[[transport.Client], Any]) -> Any:
        try:
            return send(self._own)
        except path_check.PathCut:
            LOG.debug("Host %s: binding the queue of its calls", self._host)
        host_queues.bind(transport.agent_transport_url(), self._host)
        return send(self._own)


def _call_on_path(
    context: RequestContext, method: str, arguments: dict[str, Any], client: transport.Client
) -> Any:
    with path_check.path_errors():
        return client.call(context, method, **arguments)


def get_registry_client(host: str, timeout: float, version: str) -> RegistryClient:
    """Return this process's client for the calls of the agent of a host.

    :param timeout: seconds to wait for an answer
    :param version: of the contract, as in agent_manager_api
    """
    made: RegistryClient = transport.cached(
        _make_registry_client, host, received.REGISTRY_TOPIC, timeout, version
    )
    return made


def _make_registry_client(host: str, topic: str, timeout: float, version: str) -> RegistryClient:
    target = messaging.Target(exchange=received.REGISTRY_EXCHANGE, topic=topic, version=version)
    if not is_probed():
        return RegistryClient(host, _make_client(target, timeout), None)
    own = target(exchange=host_topic(host), topic=host_queues.queue_name(host))
    return RegistryClient(
        host, _make_call_client(host, own, timeout), _make_call_client(host, target, timeout)
    )


def _make_call_client(host: str, target: messaging.Target, timeout: float) -> transport.Client:
    sender: broker.Sender = transport.cached(_make_sender)
    replies: Replies = transport.cached(_make_replies, host)
    client = CallClient(sender, replies, target, timeout, transport.Serializer())
    return transport.Client(client, lambda: None)


def _make_sender() -> broker.Sender:
    sender = broker.Sender(transport.agent_transport_url())
    transport.at_close(sender.close)
    return sender


def _make_replies(host: str) -> Replies:
    url = transport.agent_transport_url()
    replies = Replies(url, functools.partial(_draw_reply_queue, url, host))
    transport.at_close(replies.stop)
    return replies


def _draw_reply_queue(url: messaging.TransportURL, host: str) -> str:
    """Return a reply queue that no other process reads, such as one at a copy of this machine.

    Of two that read the same queue, each would get answers of the other.  The names are known, as
    the account of a host may declare no others.
    """
    names = secrets.SystemRandom().sample(admission.reply_queues(host), admission.REPLY_QUEUES)
    free = (name for name in names if not _is_read(url, name))
    return next(free, names[0])


def _is_read(url: messaging.TransportURL, queue: str) -> bool:
    try:
        return host_queues.count_consumers(url, queue) > 0
    except path_check.PathCut:
        return False


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
    """Return the server of a host's agent, not yet started: see transport.get_server().

    Its find_problem() says why requests do not reach it.
    """
    topic = host_topic(host)
    target = messaging.Target(exchange=topic, topic=topic, server=HOST_SERVER)
    connection, dispatcher = transport.get_agent_transport(), CastDispatcher(endpoint)
    if not is_probed():
        return LocalServer(connection, target, dispatcher)
    url, probes = transport.agent_transport_url(), path_check.ProbeLog()
    return HostServer(
        lambda: RequestServer(url, target, dispatcher, probes),
        connection,
        target,
        probes,
        functools.partial(broker.declare_queue, url, target),
    )


def get_registry_server(
    endpoint: Any,
    caller_timeout: float,
    queues: HostQueues,
    answer: Callable[[str, bool], object] = lambda *_: None,
) -> Any:
    """Return the server for agents in a manager, not yet started: see transport.get_server().

    No agent calls one of the managers by name, so they use the name of their machine: a name of
    its own would leave a queue behind for each process that ends.

    :param caller_timeout: seconds that agents wait for an answer
    :param queues: the hosts whose queues it reads, beside the common queue
    :param answer: as of path_check.AnsweringProbeLog
    """
    target = messaging.Target(
        exchange=received.REGISTRY_EXCHANGE, topic=received.REGISTRY_TOPIC, server=CONF.host
    )
    connection, probes = transport.get_agent_transport(), path_check.AnsweringProbeLog(answer)
    dispatcher = RegistryDispatcher(endpoint, caller_timeout, probes, queues.drops)
    if not is_probed():
        return FairServer(connection, target, dispatcher, host_queues.CALLS_PER_HOST)
    url, reader = transport.agent_transport_url(), admission.Reader(endpoint)
    return path_check.CheckedServer(
        lambda: host_queues.CallServer(url, target, dispatcher, reader, queues),
        connection,
        target,
        probes,
        functools.partial(broker.declare_server, url, target),
    )


def is_probed() -> bool:
    """Return whether calls of agents pass a message queue, which may lose them."""
    return transport.is_broker_used(transport.agent_transport_url())


def send_registry_probes(sent_at: str) -> None:
    """Send probes the way that calls of agents take: to all managers, and to the common queue.

    :param sent_at: the present by the clock of the database
    :raises Unavailable: no manager can get them now
    """
    target = messaging.Target(exchange=received.REGISTRY_EXCHANGE, topic=received.REGISTRY_TOPIC)
    connection = transport.get_agent_transport()
    with _reporting_cuts():
        path_check.send_probe(connection, target(fanout=True), sent_at=sent_at, by_queue=False)
        path_check.send_probe(connection, target, sent_at=sent_at, by_queue=True)


def count_registry_consumers() -> int:
    """Return how many consumers the common queue of agents' calls has.

    :raises Unavailable: the message queue does not answer, or has no such queue
    """
    with _reporting_cuts():
        return host_queues.count_consumers(
            transport.agent_transport_url(), received.REGISTRY_TOPIC
        )


@contextlib.contextmanager
def _reporting_cuts() -> Iterator[None]:
    try:
        yield
    except (path_check.PathCut, messaging.MessageDeliveryFailure) as error:
        raise exception.Unavailable(
            reason=f"The message queue does not deliver the reports of agents: {error}."
        ) from error
