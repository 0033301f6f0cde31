# SPDX-License-Identifier: Apache-2.0
"""RPC client of the agent of a host; agent/service.py is the server.

The messages contain no work: an agent reads its desired state itself, with its key (see
agent_manager_api.py).  So a message that is lost, duplicated or forged does no harm.

Version history of the contract:

* 1.0: reconcile
"""

from collections.abc import Iterator
import contextlib

import oslo_messaging as messaging

from attachd import exception
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.rpc import bulkheads, transport

VERSION = "1.0"


def reconcile(context: RequestContext, host: str, attachment_id: str) -> None:
    """Have an agent reconcile one attachment, and wait until it is done.

    :raises HostError: the host failed, with its reason; so do its subclasses, such as DeviceBusy
    :raises AgentUnavailable: the agent does not run
    :raises AgentTimeout: no answer in time; the work may continue
    :raises Unavailable: the message could not be sent
    """
    try:
        slot = bulkheads.slot(f"the agent of host {host}", None, context.project_id)
        with _map_errors(host), slot:
            _client(host).call(context, "reconcile", attachment_id=attachment_id)
    except messaging.MessagingTimeout:
        raise exception.AgentTimeout(host=host, attachment_id=attachment_id) from None


def request_reconcile(context: RequestContext, host: str, attachment_id: str) -> None:
    """Have an agent reconcile one attachment soon; without it the agent's next report does.

    :raises AgentUnavailable: the agent does not run
    :raises Unavailable: the message could not be sent
    """
    with _map_errors(host):
        _client(host).cast(context, "reconcile", attachment_id=attachment_id)


@contextlib.contextmanager
def _map_errors(host: str) -> Iterator[None]:
    try:
        yield
    except messaging.MessageUndeliverable:
        raise exception.AgentUnavailable(
            host=host, since="since the message queue began"
        ) from None
    except messaging.MessageDeliveryFailure as error:
        raise exception.Unavailable(
            reason="The message queue does not answer. Try again later."
        ) from error


def _client(host: str) -> transport.Client:
    return transport.get_client(host, CONF.agent.work_timeout, VERSION, topic=CONF.agent.topic)
