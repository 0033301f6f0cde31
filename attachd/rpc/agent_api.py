# SPDX-License-Identifier: Apache-2.0
"""RPC client of the agent of a host; agent/service.py is the server.

The messages contain no work: an agent reads its desired state itself, with its key (see
agent_manager_api.py), and reports the result there.  So a message that is lost, duplicated or
forged does no harm.

Version history of the contract:

* 1.0: reconcile, report
"""

from collections.abc import Iterator
import contextlib

import oslo_messaging as messaging

from attachd import exception
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.rpc import agent_transport, path_check

VERSION = "1.0"


def reconcile(context: RequestContext, host: str, attachment_id: str) -> None:
    """Have an agent reconcile one attachment soon; without this its next report does.

    :raises AgentUnavailable: no queue takes messages to the agent
    :raises Unavailable: the message could not be sent
    """
    if not CONF.agent.enabled:
        raise exception.AgentUnavailable(host=host, since="since [agent]enabled became false")
    with _map_errors(host):
        client = agent_transport.get_host_client(host, VERSION)
        client.cast(context, "reconcile", attachment_id=attachment_id)


def report(context: RequestContext, host: str, request_id: str) -> None:
    """Have an agent report soon, rather than in its next interval.

    :param request_id: is in the ``asked`` of the reports that are made after it was received; up
        to 32 characters
    :raises: as :func:`reconcile`
    """
    with _map_errors(host):
        client = agent_transport.get_host_client(host, VERSION)
        client.cast(context, "report", request_id=request_id)


@contextlib.contextmanager
def _map_errors(host: str) -> Iterator[None]:
    try:
        with path_check.path_errors():
            yield
    except path_check.PathCut as error:
        raise exception.AgentUnavailable(
            f"The message queue has no way to the agent of host {host}: {error}. An agent that "
            "runs restores it within seconds, else start attachd-agent there. Repeat the call.",
            host=host,
            since="by the message queue",
        ) from None
    except messaging.MessageDeliveryFailure as error:
        raise exception.Unavailable(
            reason="The message queue does not answer. Try again later."
        ) from error
