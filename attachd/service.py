# SPDX-License-Identifier: Apache-2.0
"""How a process of attachd starts, and its ends of the message queue; used by cmd and rpcapi.

All ends are made lazily and belong to the process that made them: a client that was used before
a fork never gets an answer after it.
"""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import functools
from importlib import metadata
import logging as std_logging
import os
import threading
import time
from typing import Any

from kombu import exceptions as kombu_exceptions
from oslo_config import cfg
from oslo_log import log as logging
import oslo_messaging as messaging
from oslo_messaging._drivers import amqpdriver, impl_rabbit  # pinned by tests/unit/test_service.py
from oslo_messaging.rpc.server import RPCServer

from attachd import exception, waiting
from attachd.conf import CONF, checking
from attachd.context import RequestContext
from attachd.objects import base, manifests

LOG = logging.getLogger(__name__)

EXCHANGE = "attachd"
CONFIG_FILES_VARIABLE = "ATTACHD_CONFIG_FILES"
"""Names configuration files, separated by colons, where there is no command line."""

RETRIES = 1
"""How often to try again, a second later, to send what the message queue did not take."""

QUEUE_DEFAULTS: Mapping[str, int] = {
    # A broker that is silent for this long is given up, and so is a message to it.
    "heartbeat_timeout_threshold": 20,
    # Who listens comes back this long after the broker, at the latest; until then no answer
    # arrives, which is why a manager goes on trying to send it for some time longer.
    "rabbit_interval_max": 5,
    "kombu_missing_consumer_retry_timeout": 30,
}
"""What we would rather have in [oslo_messaging_rabbit] than oslo.messaging's defaults; seconds."""

SHORTEST_WAIT = 0.25
"""Seconds that a listener waits for a message before it looks whether it is to stop; it looks
ever less often, at last each 5 seconds, as long as nothing comes."""

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
}
"""What a manager may need to know of who asks, by the key RequestContext.from_dict() reads."""


def version() -> str:
    """Return attachd's own version, as installed."""
    return metadata.version("attachd")


def prepare(
    argv: Sequence[str],
    config_files: list[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> None:
    """Read the configuration and start logging; every process does it first, once.

    :param argv: the command line without the program's name
    :param config_files: what to read where the command line names no file; None: what
        ATTACHD_CONFIG_FILES names, else attachd.conf in the usual places
    :param defaults: options of the [DEFAULT] group that have another default here
    :raises oslo_config.cfg.Error: a file cannot be read, or a value is wrong
    """
    messaging.set_transport_defaults(EXCHANGE)
    messaging.TransportURL(CONF)  # registers the options of transports
    logging.register_options(CONF)
    # os-brick says several times at each look at a device that it looks at it.
    quiet = ["futurist=WARN", "os_brick=WARN"]
    logging.set_defaults(default_log_levels=[*logging.get_default_log_levels(), *quiet])
    for name, value in (defaults or {}).items():
        CONF.set_default(name, value)
    if config_files is None:
        config_files = named_files() or None
    CONF(list(argv), project="attachd", version=version(), default_config_files=config_files)
    checking.check_values(CONF)
    checking.queue_url(CONF)
    if not (CONF.log_file or CONF.log_dir):
        CONF.set_default("use_stderr", True)  # else oslo.log would take the standard output
    logging.setup(CONF, "attachd")
    std_logging.captureWarnings(True)
    for each in checking.strangers(CONF):
        LOG.warning("%s", each)


def named_files() -> list[str]:
    """Return the configuration files that ATTACHD_CONFIG_FILES names."""
    named = os.environ.get(CONFIG_FILES_VARIABLE, "")
    return [each for each in named.split(os.pathsep) if each]


class Serializer(messaging.Serializer):
    """Sends objects by version and contexts without what only the API needs.

    :param known: the objects' versions that the receiver understands; the others go as they are
    """

    def __init__(self, known: manifests.Manifest = ()) -> None:
        self._objects = base.Serializer(dict(known))

    def serialize_entity(self, ctxt: RequestContext, entity: Any) -> Any:
        """Turn an argument or a result into what JSON can say."""
        return self._objects.serialize_entity(ctxt, entity)

    def deserialize_entity(self, ctxt: RequestContext, entity: Any) -> Any:
        """Rebuild an argument or a result."""
        return self._objects.deserialize_entity(ctxt, entity)

    @staticmethod
    def serialize_context(ctxt: RequestContext) -> dict[str, Any]:
        """Keep identity, roles and request id; the token stays with the API."""
        values = ((key, getattr(ctxt, name)) for name, key in _CONTEXT_FIELDS.items())
        return {key: value for key, value in values if value}

    @staticmethod
    def deserialize_context(ctxt: dict[str, Any]) -> RequestContext:
        """Rebuild the context, and make it the one that this thread logs with."""
        return RequestContext.from_dict(ctxt)


class Dispatcher(messaging.RPCDispatcher):
    """Answers each caller in the objects that the version of its message says it knows."""

    def __init__(self, endpoint: Any) -> None:
        super().__init__([endpoint], Serializer())
        self._speaking = functools.lru_cache(maxsize=32)(
            lambda version: messaging.RPCDispatcher(
                [endpoint], Serializer(manifests.of_contract(version))
            )
        )

    def dispatch(self, incoming: Any) -> Any:
        """Have a message worked on and return the answer; raises what was raised."""
        return self._speaking(incoming.message.get("version", "1.0")).dispatch(incoming)


class Client:
    """Asks one manager's backend; safe to share between threads."""

    def __init__(self, rpc: Any, backend: str = "") -> None:
        self._rpc = rpc
        self._queue = waiting.Queue(backend)

    def call(self, context: RequestContext, method: str, **arguments: Any) -> Any:
        """Have something done and return the answer.

        :raises AttachdError: what the manager raised, as if it had been raised here
        :raises Unavailable: it has been silent for long, and enough calls wait for it
        :raises RemoteError: the manager raised anything else
        :raises MessagingTimeout: no answer in time
        :raises MessageUndeliverable: there never was such a backend
        :raises MessageDeliveryFailure: the message queue cannot be reached
        """
        _reach()
        try:
            with self._queue.joined(method), _reporting_outages():
                return self._rpc.call(context, method, **arguments)
        except exception.AttachdError as error:
            raise _as_raised(error) from None

    def cast(self, context: RequestContext, method: str, **arguments: Any) -> None:
        """Have something done later.

        :raises MessageUndeliverable: there never was such a backend
        :raises MessageDeliveryFailure: the message queue cannot be reached
        """
        with _reporting_outages():
            self._rpc.cast(context, method, **arguments)


@contextlib.contextmanager
def _reporting_outages() -> Iterator[None]:
    """Raise one error, whichever step on the way to the message queue failed."""
    try:
        yield
    except kombu_exceptions.OperationalError as error:
        raise messaging.MessageDeliveryFailure(str(error)) from error


def _reach() -> None:
    """Make sure, once, that the message queue can be reached.

    The first call of a process opens a connection for the answers.  oslo.messaging tries that
    for ever, while it gives up sending soon: so something is sent before, which nobody gets.
    """
    if not _ends.reached:
        ping()
    _ends.reached = True


def ping() -> None:
    """Send something that nobody gets; raises MessageDeliveryFailure."""
    target = messaging.Target(topic=f"{CONF.rpc.topic}-nobody")
    nobody = messaging.get_rpc_client(transport(), target, retry=RETRIES)
    with _reporting_outages():
        nobody.cast({}, "ping")


def _as_raised(error: exception.AttachdError) -> exception.AttachdError:
    """Undo what oslo.messaging does to a remote error: a class whose str() is a traceback."""
    kind = type(error)
    if kind.__module__.endswith("_Remote"):
        error.__class__ = kind.__bases__[0]
    return error


def transport() -> Any:
    """Return this process's connection to the message queue."""
    with _ends.lock:
        if _ends.transport is None:
            set_defaults()
            _listen_calmly()
            _ends.transport = messaging.get_rpc_transport(
                CONF, allowed_remote_exmods=[exception.__name__]
            )
        return _ends.transport


def set_defaults() -> None:
    """Give oslo.messaging's options our defaults; the generator of samples calls it too."""
    cfg.set_defaults(impl_rabbit.rabbit_opts, **QUEUE_DEFAULTS)


def _listen_calmly() -> None:
    """Have oslo.messaging wait for messages rather than look for them all the time.

    After each message it looks for the next one after 1, 2, 4 ... milliseconds, up to 5
    seconds, to acknowledge in between what somebody has worked on.  Calls and answers are
    acknowledged as they come, so this found nothing to do and cost more than the messages
    themselves.  Where oslo.messaging is not the one we know, it goes on as it likes.
    """
    if hasattr(amqpdriver, "ACK_REQUEUE_EVERY_SECONDS_MIN"):
        amqpdriver.ACK_REQUEUE_EVERY_SECONDS_MIN = SHORTEST_WAIT


def client(
    server_name: str, timeout: float, version: str, objects: manifests.Manifest = ()
) -> Client:
    """Return this process's client for one manager's backend.

    :param server_name: ``host@backend``
    :param timeout: seconds to wait for an answer
    :param version: of the contract, as in rpcapi
    :param objects: the versions that the manager knows; the others go as they are
    """
    return _ends.client_of(CONF.rpc.topic, server_name, timeout, version, objects)


def client_of(topic: str, server_name: str | None, timeout: float, version: str) -> Client:
    """Return this process's client for whoever listens on another topic than managers do.

    :param server_name: None: any of them
    :param timeout: seconds to wait for an answer
    :param version: of the contract
    """
    return _ends.client_of(topic, server_name, timeout, version)


def everybody(version: str) -> Client:
    """Return this process's client for all managers' processes; only for casting.

    :param version: of the contract, as in rpcapi
    """
    return _ends.everybody(version)


def server(
    endpoint: Any, server_name: str, topic: str | None = None, patience: float | None = None
) -> Any:
    """Return a server for ``endpoint``, not yet started.

    ``start(override_pool_size=N)`` lets it work with N threads, ``stop()`` ends receiving,
    ``wait()`` waits for what was received.

    :param server_name: ``host@backend`` of a manager
    :param topic: None: that of managers
    :param patience: seconds that callers wait for an answer; None: as those of managers do
    """
    made = messaging.get_rpc_server(
        transport(),
        messaging.Target(topic=topic or CONF.rpc.topic, server=server_name),
        [endpoint],
        server_cls=_Server,
    )
    made.dispatcher = Dispatcher(endpoint)
    made.patience = patience
    return made


class _Server(RPCServer):
    """Leaves alone what nobody waits for any more.

    A call waits here while all threads of its backend are at work.  Its sender gives up after
    [rpc]attach_timeout, and so does the queue, but what is here has left the queue.  If it were
    begun, a backend that comes back from an outage would work through all that was asked of it
    meanwhile, and let those wait who ask now.

    :ivar patience: how many seconds senders wait; None: [rpc]attach_timeout
    """

    patience: float | None = None

    def _on_incoming(self, incoming: Any) -> None:
        self._work_executor.submit(self._begin, incoming, time.monotonic())

    def _begin(self, incoming: Any, arrived: float) -> None:
        (message,) = incoming
        waited = time.monotonic() - arrived
        if message.msg_id is not None and waited > (self.patience or CONF.rpc.attach_timeout):
            method = message.message.get("method")
            LOG.warning("%s is not begun: its caller gave up in these %d s", method, waited)
            return
        self._process_incoming(incoming)


class _Ends:
    """What one process has made."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.transport: Any = None
        self.reached = False
        # Making a client costs more than a call does.
        self.client_of = functools.cache(_make_client_of)
        self.everybody = functools.cache(_make_client_of_all)


def _make_client_of(
    topic: str,
    server_name: str | None,
    timeout: float,
    version: str,
    objects: manifests.Manifest = (),
) -> Client:
    return Client(
        messaging.get_rpc_client(
            transport(),
            messaging.Target(topic=topic, server=server_name, version=version),
            timeout=timeout,
            serializer=Serializer(objects),
            retry=RETRIES,
            transport_options=messaging.TransportOptions(at_least_once=True),
        ).prepare(),
        server_name or topic,
    )


def _make_client_of_all(version: str) -> Client:
    target = messaging.Target(topic=CONF.rpc.topic, fanout=True, version=version)
    return Client(
        messaging.get_rpc_client(
            transport(), target, serializer=Serializer(), retry=RETRIES
        ).prepare()
    )


_ends = _Ends()


def forget() -> None:
    """Start anew without touching what is there, which after a fork is the parent's."""
    global _ends  # noqa: PLW0603  one set of ends per process is the point
    _ends = _Ends()


def close() -> None:
    """Close this process's connections; the next use opens new ones."""
    old = _ends
    forget()
    if old.transport is not None:
        old.transport.cleanup()


os.register_at_fork(after_in_child=forget)
