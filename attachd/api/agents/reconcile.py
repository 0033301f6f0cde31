# SPDX-License-Identifier: Apache-2.0
"""Have the agent of a host reconcile an attachment, and wait for the result in its row.

The agent reports each result to a manager, which stores it.  The API gets no message from agents.
"""

from collections.abc import Collection
from typing import Final

from attachd import exception
from attachd.api import polling
from attachd.api.agents import presence
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db.agents import agent_store, agent_transitions
from attachd.objects import Attachment
from attachd.rpc import agent_api, bulkheads
from attachd.states import AttachmentState

SECRET_TIMEOUT: Final = 30.0
"""Seconds that a call of Compute waits for a secret of libvirt."""


def reconcile(
    ctx: RequestContext, attachment: Attachment, pending: Collection[AttachmentState]
) -> None:
    """Have the agent of an attachment reconcile it, and wait until it is done.

    :param pending: the states in which the agent has not reported a result yet; the caller
        examines any other state
    :raises AgentError: the host failed, with its reason
    :raises AgentUnavailable: the agent does not run, or has stopped to report
    :raises AgentTimeout: no result in time; the work may continue
    :raises TooManyCalls: the volume or the project has too many waiting calls
    :raises Unavailable: the message could not be sent, or too many calls wait for the agent
    """
    host = str(attachment.agent)
    with bulkheads.slot(server_name(host), attachment.volume_id, ctx.project_id):
        if attachment.error:
            # Any later error is a result of this request, or of an attempt in progress.
            agent_transitions.clear_error(attachment.id)
        agent_api.reconcile(ctx, host, attachment.id)
        if not polling.wait_while(
            lambda: _is_pending(attachment.id, host, pending), CONF.agent.work_timeout
        ):
            raise exception.AgentTimeout(host=host, attachment_id=attachment.id)


def define_secret(ctx: RequestContext, attachment: Attachment) -> None:
    """Have the agent of the host define the secret of libvirt that Compute needs, if there is one.

    :raises Conflict: it is not defined, and why
    :raises TooManyCalls: the volume or the project has too many waiting calls
    :raises Unavailable: the message could not be sent, or too many calls wait for the agent
    """
    progress = agent_store.get_secret_progress(attachment.id)
    if progress is None or progress.is_defined:
        return
    host = progress.host
    with bulkheads.slot(server_name(host), attachment.volume_id, ctx.project_id):
        agent_transitions.clear_error(attachment.id)
        agent_api.reconcile(ctx, host, attachment.id)
        if not polling.wait_while(lambda: _is_secret_pending(attachment.id, host), SECRET_TIMEOUT):
            raise _secret_missing(attachment.id, host, "its agent did not answer in time.")


def _is_secret_pending(attachment_id: str, host: str) -> bool:
    """Return whether an agent has not defined a secret yet; raises Conflict: it could not."""
    progress = agent_store.get_secret_progress(attachment_id)
    if progress is None:
        raise _secret_missing(attachment_id, host, "the attachment was disconnected meanwhile.")
    if progress.error:
        raise _secret_missing(attachment_id, host, progress.error)
    return not progress.is_defined


def _secret_missing(attachment_id: str, host: str, reason: str) -> exception.Conflict:
    return exception.Conflict(
        reason=f"libvirt on host {host} has no secret for attachment {attachment_id}: {reason} "
        "Check attachd-agent and libvirt there, and repeat the request."
    )


def check_may_wait(ctx: RequestContext, host: str, volume_id: str) -> None:
    """Check that a call could wait for an agent now, before the work that precedes it.

    :raises TooManyCalls: the volume or the project has too many waiting calls
    :raises Unavailable: too many calls wait for the agent, or in this process
    """
    bulkheads.check(server_name(host), volume_id, ctx.project_id)


def server_name(host: str) -> str:
    """Return the name of an agent for rpc/bulkheads.py."""
    return f"the agent of host {host}"


def _is_pending(attachment_id: str, host: str, pending: Collection[AttachmentState]) -> bool:
    """Return whether an agent has no result yet.

    :raises AgentError: its result is a failure
    :raises AgentUnavailable: it has stopped to report, so that there will be none soon
    """
    progress = agent_store.get_progress(attachment_id)
    if progress is None or AttachmentState(progress.state) not in pending:
        return False
    if progress.error:
        raise exception.AgentError(reason=progress.error)
    if not progress.is_alive:
        raise exception.AgentUnavailable(host=host, since=presence.since(progress.seen_at))
    return True
