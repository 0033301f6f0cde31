# SPDX-License-Identifier: Apache-2.0
"""Connecting and disconnecting attachments through the manager, waiting for it or not.

A synchronous call waits for the manager's answer.  An asynchronous one records the request in the
row and notifies the manager; if that message is lost, recovery finds the row.  The same holds for
the agent of a host (agent_detach.py).
"""

from collections.abc import Callable, Collection
import functools
from typing import Any, Final

from oslo_log import log

from attachd import exception
from attachd.api.attachments import view
from attachd.api.endpoint import AsyncPreference
from attachd.context import RequestContext
from attachd.db.attachments import async_requests
from attachd.db.attachments import queries as attachment_queries
from attachd.objects import Attachment
from attachd.rpc import agent_api, manager_api

LOG = log.getLogger(__name__)

Connector = dict[str, Any]
ExtVersion = view.ExtVersion
AttachmentBody = dict[str, view.Detail]
DOC: Final = view.ONE_DOC._replace(faults=(409, 504))
AttachmentsBody = dict[str, list[view.Summary]]


def check_no_agent(attachment: Attachment) -> None:
    """Check that no agent connects and completes the attachment.

    :raises Conflict: an agent does
    """
    if attachment.agent is not None:
        raise exception.Conflict(
            reason=f"Attachment {attachment.id} is connected and completed only by the agent of "
            f"host {attachment.agent}."
        )


def connect(ctx: RequestContext, attachment: Attachment) -> None:
    """Connect with the connector that the attachment was reserved with.

    :raises: as manager_api.attach()
    """
    manager_api.attach(ctx, attachment, attachment.connector or {})


def connect_shared(
    ctx: RequestContext,
    attachment: Attachment,
    connector: Connector,
    ext_version: ExtVersion,
    async_response: AsyncPreference | None,
) -> AttachmentBody:
    """Connect, also if the same server has other connections; the answer shows the state before.

    :param async_response: set if the caller asks not to wait: the answer shows the present state
    :raises: as manager_api.attach()
    """
    if async_response is not None:
        note = functools.partial(
            async_requests.connect_shared, attachment.id, attachment.volume_id, connector
        )
        return _connect_async(ctx, attachment, connector, ext_version, async_response, note)
    answer = manager_api.attach(ctx, attachment, connector)
    return view.show_connected(ctx, attachment, answer, connector, ext_version)


def connect_exclusive(
    ctx: RequestContext,
    attachment: Attachment,
    connector: Connector,
    denied_rule: str | None,
    ext_version: ExtVersion,
    async_response: AsyncPreference | None,
) -> AttachmentBody:
    """Do as :func:`connect_shared`, if a volume that is not multiattach has no other connection.

    :param denied_rule: as of manager_api.attach()
    """
    if async_response is not None:
        what = (attachment.id, attachment.volume_id, connector, denied_rule)
        note = functools.partial(async_requests.connect_exclusive, *what)
        return _connect_async(ctx, attachment, connector, ext_version, async_response, note)
    answer = manager_api.attach_exclusive(ctx, attachment, connector, denied_rule)
    return view.show_connected(ctx, attachment, answer, connector, ext_version)


def _connect_async(
    ctx: RequestContext,
    attachment: Attachment,
    connector: Connector,
    ext_version: ExtVersion,
    async_response: AsyncPreference,
    note: Callable[[], None],
) -> AttachmentBody:
    try:
        note()
    except async_requests.AlreadyConnected as replay:
        row = replay.row
        answer = manager_api.Connected(connection_info=row["connection_info"], mode=row["mode"])
        return view.show_connected(ctx, attachment, answer, connector, ext_version)
    return accept(ctx, attachment, ext_version, async_response)


def disconnect(
    ctx: RequestContext, attachment: Attachment, allowed_states: Collection[str] | None
) -> AttachmentsBody:
    """Disconnect and remove an attachment; return those that remain.

    :param allowed_states: as the guard returned it, where it was asked
    :raises: as manager_api.detach()
    """
    return view.list_remaining(manager_api.detach(ctx, attachment, allowed_states))


def remaining_after_delete(attachment: Attachment) -> AttachmentsBody:
    """Return the remaining attachments after another request has deleted this one."""
    rows = attachment_queries.list_of_volumes([attachment.volume_id])
    return view.list_summaries(rows[attachment.volume_id])


def disconnect_async(
    ctx: RequestContext,
    attachment: Attachment,
    allowed_states: Collection[str] | None,
    ext_version: ExtVersion,
    async_response: AsyncPreference,
) -> AttachmentBody:
    """Record that an attachment is to be disconnected; return it as it is until then.

    :raises: as due.disconnect()
    """
    async_requests.disconnect(attachment.id, attachment.volume_id, allowed_states)
    return accept(ctx, attachment, ext_version, async_response)


Notifier = Callable[[RequestContext, Attachment], None]
"""Sends the message that a row has work pending."""


def _notify_manager(ctx: RequestContext, attachment: Attachment) -> None:
    manager_api.process_pending(ctx, attachment)


def notify_agent(ctx: RequestContext, attachment: Attachment) -> None:
    """Ask the agent to reconcile soon; raises as agent_api.request_reconcile()."""
    agent_api.request_reconcile(ctx, str(attachment.agent), attachment.id)


def accept(
    ctx: RequestContext,
    attachment: Attachment,
    ext_version: ExtVersion,
    async_response: AsyncPreference,
    notify: Notifier = _notify_manager,
) -> AttachmentBody:
    """Notify the manager or agent of pending work; return the attachment as it is until then."""
    shown = view.show_accepted(ctx, Attachment.get(ctx, attachment.id), ext_version)
    try:
        notify(ctx, attachment)
    except (exception.Unavailable, exception.AgentUnavailable) as error:
        LOG.warning(
            "Attachment %s: notification failed, recovery will find the row: %s",
            attachment.id,
            error,
        )
    async_response.accept("attachments", attachment.id)
    return shown
