# SPDX-License-Identifier: Apache-2.0
"""RPC in the virtual host of the agents: clients and servers of the registry and of hosts.

Each host has an account of the message queue, and may have been taken over.  So nothing that
commands the service, or answers it, is in this virtual host:

* Managers listen there on one topic, the registry, at an exchange that no account can delete.
  They check the key of the host in each call, and answer only into a queue of this host.
* Each host has an exchange and queues of its own name.  The API and managers only cast to it, so
  that they have no reply queue there, and an agent answers no call.
"""

import functools
import re
from typing import Any, Final
import uuid

from oslo_log import log as logging
import oslo_messaging as messaging

from attachd.conf import CONF
from attachd.rpc import path_check, transport
from attachd.rpc.fair_dispatch import FairServer

LOG = logging.getLogger(__name__)

REGISTRY_EXCHANGE: Final = "amq.topic"
"""Exists in each virtual host; RabbitMQ refuses to delete it."""

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
        if isinstance(incoming.reply_q, str) and not _is_reply_queue(
            incoming.reply_q, incoming.message.get("args")
        ):
            _drop(incoming, "its reply queue is not one of its host")
            return None
        return super().dispatch(incoming)


def _drop(incoming: Any, reason: str) -> None:
    LOG.warning("%s is dropped: %s", incoming.message.get("method"), reason)
    incoming.reply = transport.discard_reply


def _is_reply_queue(name: str, arguments: Any) -> bool:
    host = arguments.get("host") if isinstance(arguments, dict) else None
    pattern = rf"{re.escape(_reply_prefix(host))}[0-9a-f]{{32}}"
    return isinstance(host, str) and re.fullmatch(pattern, name) is not None


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
    target = messaging.Target(exchange=REGISTRY_EXCHANGE, topic=topic, version=version)
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


def get_registry_server(endpoint: Any, caller_timeout: float) -> Any:
    """Return the server for agents in a manager, not yet started: see transport.get_server().

    No agent calls one of the managers by name, so they use the name of their machine: a name of
    its own would leave a queue behind for each process that ends.

    :param caller_timeout: seconds that agents wait for an answer
    """
    target = messaging.Target(
        exchange=REGISTRY_EXCHANGE, topic=CONF.agent.manager_topic, server=CONF.host
    )
    connection, probes = transport.get_agent_transport(), path_check.ProbeLog()
    dispatcher = RegistryDispatcher(endpoint, caller_timeout, probes)

    def make() -> FairServer:
        return FairServer(connection, target, dispatcher)

    if not transport.is_broker_used(transport.agent_transport_url()):
        return make()
    return path_check.CheckedServer(make, connection, target, probes)
