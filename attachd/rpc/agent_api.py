# SPDX-License-Identifier: Apache-2.0
"""What the service can ask of the agent of a host: the client half; agent/endpoint.py answers.

It is never told what to do, only to look: what is due it reads by itself, with its key (see
agent_manager_api.py).  So a message that is lost, comes twice or is forged does no harm.

Version history of the contract:

* 1.0: look
"""

import oslo_messaging as messaging

from attachd import exception
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.rpc import transport

VERSION = "1.0"


def look(context: RequestContext, host: str, attachment_id: str) -> None:
    """Have an agent do what is due for one attachment, and wait for it.

    :raises HostError: the host could not, with its reason; so are DeviceBusy and the like
    :raises AgentAway: there is nobody to ask
    :raises AgentTimeout: no answer in time; the work may go on
    :raises Unavailable: the message could not be sent
    """
    try:
        _client(host).call(context, "look", attachment_id=attachment_id)
    except messaging.MessagingTimeout:
        raise exception.AgentTimeout(host=host, attachment_id=attachment_id) from None
    except messaging.MessageUndeliverable:
        raise exception.AgentAway(host=host, since="since the message queue began") from None
    except messaging.MessageDeliveryFailure as error:
        raise _unsent() from error


def nudge(context: RequestContext, host: str, attachment_id: str) -> None:
    """Have an agent do soon what is due for one attachment; it would find out later anyway.

    :raises AgentAway: there is nobody to tell
    :raises Unavailable: the message could not be sent
    """
    try:
        _client(host).cast(context, "look", attachment_id=attachment_id)
    except messaging.MessageUndeliverable:
        raise exception.AgentAway(host=host, since="since the message queue began") from None
    except messaging.MessageDeliveryFailure as error:
        raise _unsent() from error


def _unsent() -> exception.Unavailable:
    return exception.Unavailable(reason="The message queue does not answer. Try again later.")


def _client(host: str) -> transport.Client:
    return transport.get_topic_client(CONF.agent.topic, host, CONF.agent.work_timeout, VERSION)
