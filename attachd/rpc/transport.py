# SPDX-License-Identifier: Apache-2.0
"""RPC clients and servers of one process, and its connection to the message queue.

All of them are made when they are first needed and belong to the process that made them: a
client that was used before a fork never gets an answer after it.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import functools
import os
import threading
from typing import Any, Final, ParamSpec, TypeVar

from kombu import exceptions as kombu_exceptions
from oslo_log import log as logging
import oslo_messaging as messaging
from oslo_messaging._drivers import amqpdriver  # pinned by tests/unit/test_private_names.py
from oslo_messaging._drivers import common as rpc_common

from attachd import exception
from attachd.conf import CONF
from attachd.conf import messaging as conf_messaging
from attachd.context import RequestContext
from attachd.objects import Manifest, manifest_of_contract
from attachd.objects import Serializer as ObjectSerializer
from attachd.rpc import broker, deadlines, path_check, received
from attachd.rpc.fair_dispatch import FairServer
from attachd.telemetry import metrics

LOG = logging.getLogger(__name__)

conf_messaging.register()

P = ParamSpec("P")
R = TypeVar("R")

MANAGER_TOPIC = "attachd-manager"
"""The topic that managers listen on, each backend under its own server name."""

RETRIES = 1
"""Number of retries, a second apart, of a message that the message queue did not accept."""

POLL_INTERVAL = 0.25
"""Seconds that a listener first waits for a message before it checks whether to stop.  Without
messages the interval grows to 5 seconds."""

LEAK: Final = 1000
"""Number of calls in progress that oslo.messaging warns of as a leak: 10 are none."""

PAUSE: Final = 1.0
MAX_PAUSE: Final = 60.0
"""Seconds between two attempts to receive answers that fail; each failure doubles them."""

_CONTEXT_FIELDS = {
    "user_id": "user",
    "project_id": "project_id",
    "roles": "roles",
    "is_admin": "is_admin",
    "system_scope": "system_scope",
    "domain_id": "domain",
    "user_domain_id": "user_domain",
    "project_domain_id": "project_domain",
    "request_id": "request_id",
    "global_request_id": "global_request_id",
    "by_service": "by_service",
    "resource_uuid": "resource_uuid",
}
"""Attributes of a context that managers get, and their keys in RequestContext.from_dict()."""


_ANSWER_WITHIN: Final = "answer_within"
"""Key in the context of a message: the seconds that its sender waits for an answer."""


class Serializer(messaging.Serializer):
    """Serialize objects in a given version, and contexts without their token.

    :param known: the versions of objects that the receiver understands; other objects are sent
        in their current version
    :param timeout: seconds that the sender waits for answers, sent with contexts; None: unknown
    """

    def __init__(self, known: Manifest = (), timeout: float | None = None) -> None:
        self._timeout = timeout
        self._objects = ObjectSerializer(dict(known))

    def serialize_entity(self, ctxt: RequestContext, entity: Any) -> Any:
        """Turn an argument or a result into what JSON can say."""
        return self._objects.serialize_entity(ctxt, entity)

    def deserialize_entity(self, ctxt: RequestContext, entity: Any) -> Any:
        """Rebuild an argument or a result."""
        return self._objects.deserialize_entity(ctxt, entity)

    def serialize_context(self, ctxt: RequestContext) -> dict[str, Any]:
        """Keep identity, roles and request id; the token stays with the API."""
        values = {key: getattr(ctxt, name) for name, key in _CONTEXT_FIELDS.items()}
        values[_ANSWER_WITHIN] = self._timeout
        return {key: value for key, value in values.items() if value}

    @staticmethod
    def deserialize_context(ctxt: dict[str, Any]) -> RequestContext:
        """Rebuild the context, and make it the one that this thread logs with."""
        return RequestContext.from_dict(ctxt)


OBJECT_ARGUMENTS: Final = frozenset({"volume"})
"""The arguments of calls that are objects; a dictionary in any other one stays a dictionary."""


class _SerializedObject:
    """The value of one of OBJECT_ARGUMENTS, as it was received."""

    def __init__(self, primitive: Any) -> None:
        self.primitive = primitive


class _ServerSerializer(Serializer):
    """Serialize answers, and rebuild only the arguments that the dispatcher has marked."""

    def deserialize_entity(self, ctxt: RequestContext, entity: Any) -> Any:
        """Rebuild a marked argument."""
        if isinstance(entity, _SerializedObject):
            return super().deserialize_entity(ctxt, entity.primitive)
        return entity


class Dispatcher(messaging.RPCDispatcher):
    """Dispatch calls to an endpoint, except those whose callers have timed out.

    A call waits in this process while all threads of its backend are busy, or while another call
    works on its volume.  Its caller times out meanwhile.  Without the check, a backend that
    returns from an outage would first execute all calls of the outage, and delay the current
    ones.

    Each caller is answered in the object versions that belong to the version of its message.
    Only OBJECT_ARGUMENTS are rebuilt as objects: a connector has keys that a client chose.
    """

    def __init__(
        self,
        endpoint: Any,
        caller_timeout: float | None = None,
        probes: path_check.ProbeLog | None = None,
    ) -> None:
        """Prepare the dispatcher.

        :param caller_timeout: seconds that callers wait whose messages do not name them; None:
            [rpc]attach_timeout
        :param probes: records the server's own probes; None: it sends none
        """
        super().__init__([endpoint], _ServerSerializer())
        self._probes = probes
        self._caller_timeout = caller_timeout
        self._of_version = functools.lru_cache(maxsize=32)(
            lambda version: messaging.RPCDispatcher(
                [endpoint], _ServerSerializer(manifest_of_contract(version))
            )
        )

    def dispatch(self, incoming: Any) -> Any:
        """Dispatch a message and return the answer; exceptions of the endpoint propagate."""
        if incoming.message.get("method") == path_check.METHOD:
            if self._probes is not None:
                self._probes.record(incoming.message.get("args"))
            return None
        if not incoming.reply_q:
            return self._dispatch(incoming)
        waited, timeout = incoming.stopwatch.elapsed(), self._timeout_of(incoming.ctxt)
        if waited > timeout:
            method = incoming.message.get("method")
            LOG.warning("%s is dropped: its caller timed out, it waited %d s", method, waited)
            incoming.reply = discard_reply
            return None
        with deadlines.answering_within(timeout - waited):
            return self._dispatch(incoming)

    def _timeout_of(self, context: Mapping[str, Any]) -> float:
        sent = context.get(_ANSWER_WITHIN)
        if isinstance(sent, int | float):
            return sent
        return self._caller_timeout or float(CONF.rpc.attach_timeout)

    def _dispatch(self, incoming: Any) -> Any:
        arguments = incoming.message.get("args", {})
        for name in OBJECT_ARGUMENTS & arguments.keys():
            arguments[name] = _SerializedObject(arguments[name])
        return self._of_version(incoming.message.get("version", "1.0")).dispatch(incoming)


def discard_reply(reply: Any = None, failure: Any = None) -> None:
    """Take the place of a message's reply(), which may wait long for a caller that has ended."""


def _call_outcome(error: Exception) -> str:
    """Return the reason of a failed call as a label for metrics."""
    if isinstance(error, messaging.MessagingTimeout):
        return "timeout"
    if isinstance(error, messaging.MessageDeliveryFailure | messaging.MessageUndeliverable):
        return "unreachable"
    return "refused" if isinstance(error, exception.AttachdError) else "error"


class Client:
    """RPC client of one backend of a manager; safe to share between threads.

    :param reach: checks that the message queue can be reached, before the first call; None: as
        :func:`ping`
    """

    def __init__(self, rpc: Any, reach: Callable[[], None] | None = None) -> None:
        self._rpc = rpc
        self._reach = reach

    def call(self, context: RequestContext, method: str, **arguments: Any) -> Any:
        """Call a method and return its answer.

        :raises AttachdError: the manager raised it
        :raises RemoteError: the manager raised anything else
        :raises MessagingTimeout: no answer in time
        :raises MessageUndeliverable: no queue of the backend exists
        :raises MessageDeliveryFailure: the message queue cannot be reached
        """
        _reach(self._reach or ping)
        try:
            with (
                metrics.timed(
                    metrics.RPC_CALLS, metrics.RPC_DURATION, method, outcome_of=_call_outcome
                ),
                _reporting_outages(),
            ):
                return self._rpc.call(context, method, **arguments)
        except exception.AttachdError as error:
            raise _as_raised(error) from None

    def can_send_version(self, version: str) -> bool:
        """Return whether the receivers understand messages of a version of the contract."""
        return bool(self._rpc.can_send_version(version))

    def cast(self, context: RequestContext, method: str, **arguments: Any) -> None:
        """Send a message without waiting for an answer.

        :raises MessageUndeliverable: no queue of the backend exists
        :raises MessageDeliveryFailure: the message queue cannot be reached
        """
        with _reporting_outages():
            self._rpc.cast(context, method, **arguments)


@contextlib.contextmanager
def _reporting_outages() -> Iterator[None]:
    """Raise MessageDeliveryFailure for each failure to reach the message queue."""
    try:
        yield
    except kombu_exceptions.OperationalError as error:
        raise messaging.MessageDeliveryFailure(str(error)) from error


def _reach(reach: Callable[[], None]) -> None:
    """Check once that the message queue can be reached.

    The first call of a process opens a connection for the answers.  oslo.messaging retries that
    without a limit, while sending is limited: so a message without a receiver is sent first.
    """
    if not _state.reached:
        reach()
    _state.reached = True


def ping(connection: Any = None, target: messaging.Target | None = None) -> None:
    """Send a message without a receiver; raises MessageDeliveryFailure.

    :param connection: None: that of managers
    :param target: a topic that no server listens on; None: one of managers
    """
    target = target or messaging.Target(topic=f"{MANAGER_TOPIC}-ping")
    pinger = messaging.get_rpc_client(connection or get_transport(), target, retry=RETRIES)
    with _reporting_outages():
        pinger.cast({}, "ping")


def _as_raised(error: exception.AttachdError) -> exception.AttachdError:
    """Undo what oslo.messaging does to a remote error: a class whose str() is a traceback."""
    kind = type(error)
    if kind.__module__.endswith("_Remote"):
        error.__class__ = kind.__bases__[0]
    return error


def get_transport() -> Any:
    """Return this process's connection to the message queue."""
    with _state.lock:
        if _state.transport is None:
            _state.transport = _open()
        return _state.transport


def get_agent_transport() -> Any:
    """Return this process's connection to the virtual host of the agents."""
    with _state.lock:
        if _state.agent_transport is None:
            _state.agent_transport = _open(agent_transport_url())
        return _state.agent_transport


def _open(url: messaging.TransportURL | None = None) -> Any:
    received.limit()
    _set_poll_interval()
    amqpdriver.ReplyWaiter = _PausingReplyWaiter  # type: ignore[misc]
    return messaging.get_rpc_transport(CONF, url, allowed_remote_exmods=[exception.__name__])


def agent_transport_url() -> messaging.TransportURL:
    """Return the URL of the virtual host of the agents."""
    url: messaging.TransportURL = messaging.TransportURL.parse(CONF, CONF.agent.transport_url)
    if url.transport in conf_messaging.BROKERS:
        # Exchanges are declared as durable as queues, and RabbitMQ's own exchange is durable.
        url.query["amqp_durable_queues"] = "true"
    return url


class _PausingReplyWaiter(amqpdriver.ReplyWaiter):
    """Waits for answers, and pauses after a failure to receive.

    oslo.messaging repeats at once what kombu does not repeat, such as a login that the message
    queue refuses because the account was deleted, and logs each failure.
    """

    def __init__(self, reply_q: str, conn: Any, allowed_remote_exmods: Any) -> None:
        self._consume = conn.consume
        self._pause = PAUSE
        self._stopping = threading.Event()
        conn.consume = self._consume_or_pause
        try:
            super().__init__(reply_q, conn, allowed_remote_exmods)
        except Exception:
            # The queue may not be declared.  oslo.messaging keeps one connection for each attempt.
            conn.close()
            raise
        vars(self.waiters)["_wrn_threshold"] = LEAK

    def stop(self) -> None:
        """Wait for no more answers."""
        self._stopping.set()
        super().stop()

    def _consume_or_pause(self, timeout: float | None = None) -> None:
        try:
            self._consume(timeout=timeout)
        except rpc_common.Timeout:
            self._pause = PAUSE
            raise
        except Exception:
            self._stopping.wait(self._pause)
            self._pause = min(2 * self._pause, MAX_PAUSE)
            raise
        self._pause = PAUSE


def _set_poll_interval() -> None:
    """Make oslo.messaging's consumers poll less often.

    After each message a consumer polls after 1, 2, 4 ... milliseconds, up to 5 seconds, to
    acknowledge finished messages in between.  RPC messages are acknowledged on receipt, so these
    polls have nothing to do.  No option sets the interval, and without this API and manager take
    13 % more CPU for an attach cycle (medians of eight runs, side by side).  A release of
    oslo.messaging without this constant keeps its own intervals.
    """
    if hasattr(amqpdriver, "ACK_REQUEUE_EVERY_SECONDS_MIN"):
        amqpdriver.ACK_REQUEUE_EVERY_SECONDS_MIN = POLL_INTERVAL


def get_client(
    server_name: str | None,
    timeout: float,
    version: str,
    objects: Manifest = (),
    topic: str | None = None,
) -> Client:
    """Return this process's client for one manager's backend, or for servers of another topic.

    :param server_name: ``host@backend``, or a server of the topic; None: any of them
    :param timeout: seconds to wait for an answer
    :param version: of the contract, as in manager_api
    :param objects: the object versions that the manager understands
    :param topic: None: that of managers
    """
    return _state.client_of(topic or MANAGER_TOPIC, server_name, timeout, version, objects)


def get_fanout_client(version: str) -> Client:
    """Return this process's client for casts to all processes of all managers.

    :param version: of the contract, as in manager_api
    """
    return _state.fanout_client(version)


def get_server(
    endpoint: Any,
    server_name: str,
    topic: str | None = None,
    calls_per_volume: int = 1,
) -> Any:
    """Return a server for ``endpoint``, not yet started.

    ``start(override_pool_size=N)`` lets it work with N threads, ``stop()`` ends receiving,
    ``wait()`` waits for what was received.  Threads take calls in the order of fair_dispatch.

    :param server_name: ``host@backend`` of a manager
    :param topic: None: that of managers
    :param calls_per_volume: how many calls for one volume run at the same time
    """
    target = messaging.Target(topic=topic or MANAGER_TOPIC, server=server_name)
    dispatcher = Dispatcher(endpoint)
    return FairServer(get_transport(), target, dispatcher, calls_per_volume)


def get_checked_server(
    endpoint: Any,
    server_name: str,
    topic: str | None = None,
    calls_per_volume: int = 1,
) -> Any:
    """Return a server as :func:`get_server` does, which restores what is missing in the broker.

    Its account needs the right to send to itself.
    """
    if not is_broker_used():
        return get_server(endpoint, server_name, topic, calls_per_volume)
    rpc_transport = get_transport()
    target = messaging.Target(topic=topic or MANAGER_TOPIC, server=server_name)
    probes = path_check.ProbeLog()
    dispatcher = Dispatcher(endpoint, probes=probes)
    return path_check.CheckedServer(
        lambda: FairServer(rpc_transport, target, dispatcher, calls_per_volume),
        rpc_transport,
        target,
        probes,
        functools.partial(broker.declare_server, messaging.TransportURL.parse(CONF), target),
    )


def is_broker_used(url: messaging.TransportURL | None = None) -> bool:
    """Return whether messages leave this process.

    :param url: None: of the connection to managers
    """
    scheme: str = (url or messaging.TransportURL.parse(CONF)).transport
    return scheme in conf_messaging.BROKERS


def probe_manager(backend: str) -> None:
    """Send a message that managers ignore, the way that calls to a backend take.

    :param backend: ``host@backend``
    :raises PathCut: no queue takes it
    :raises MessageDeliveryFailure: the message queue cannot be reached
    """
    target = messaging.Target(topic=MANAGER_TOPIC, server=backend)
    path_check.send_probe(get_transport(), target)


def expected_errors(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method of a server: AttachdErrors are answers, and calls are measured."""
    known = messaging.expected_exceptions(exception.AttachdError)(_timed(method))
    return functools.wraps(method)(known)


def _timed(method: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(method)
    def timed(*args: P.args, **kwargs: P.kwargs) -> R:
        if not metrics.is_enabled():
            return method(*args, **kwargs)
        labels = getattr(args[0], "host", "agents"), method.__name__
        with metrics.timed(
            metrics.SERVED, metrics.SERVED_DURATION, *labels, outcome_of=_served_outcome
        ):
            return method(*args, **kwargs)

    return timed


def _served_outcome(error: Exception) -> str:
    """Return "refused" for an error that the caller may expect, else "failed" or "error"."""
    if isinstance(
        error, exception.ConnectFailed | exception.DisconnectFailed | exception.BackendUnavailable
    ):
        return "failed"
    return "refused" if isinstance(error, exception.AttachdError) else "error"


class _RpcState:
    """RPC objects of one process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.transport: Any = None
        self.agent_transport: Any = None
        self.reached = False
        # Making a client costs more than a call does.
        self.client_of = functools.cache(_make_client)
        self.fanout_client = functools.cache(_make_fanout_client)
        self.cached = functools.cache(_call)
        self.at_close: list[Callable[[], object]] = []


def _call(function: Callable[..., R], *arguments: Any) -> R:
    return function(*arguments)


def cached(make: Callable[..., R], *arguments: Any) -> R:
    """Return the client that this process made before, or make it."""
    made: R = _state.cached(make, *arguments)
    return made


def at_close(function: Callable[[], object]) -> None:
    """Call a function when this process closes its connections."""
    _state.at_close.append(function)


def _make_client(
    topic: str,
    server_name: str | None,
    timeout: float,
    version: str,
    objects: Manifest,
) -> Client:
    return Client(
        messaging.get_rpc_client(
            get_transport(),
            messaging.Target(topic=topic, server=server_name, version=version),
            timeout=timeout,
            version_cap=version,
            serializer=Serializer(objects, timeout),
            retry=RETRIES,
            transport_options=messaging.TransportOptions(at_least_once=True),
        ).prepare()
    )


def _make_fanout_client(version: str) -> Client:
    target = messaging.Target(topic=MANAGER_TOPIC, fanout=True, version=version)
    return Client(
        messaging.get_rpc_client(
            get_transport(), target, version_cap=version, serializer=Serializer(), retry=RETRIES
        ).prepare()
    )


_state = _RpcState()


def reset_after_fork() -> None:
    """Drop clients and connections without closing them: after a fork they are the parent's."""
    global _state  # noqa: PLW0603  one state per process
    _state = _RpcState()


def close() -> None:
    """Close this process's connection; the next use opens a new one."""
    old = _state
    reset_after_fork()
    for function in old.at_close:
        function()
    for connection in (old.transport, old.agent_transport):
        if connection is not None:
            connection.cleanup()


os.register_at_fork(after_in_child=reset_after_fork)
