# SPDX-License-Identifier: Apache-2.0
"""Deletion of attachments: after the check of api/detach_guard.py, or by force.

Where the host has an agent, it releases the device first (agent_detach.py).  A deletion by force
is logged, notified, and recorded as a message to the volume's owner.  The manager writes that
message when it begins; where no manager takes part, it is written here.
"""

from collections.abc import Collection
import contextlib
from typing import Any, Final

from oslo_log import log
import webob

from attachd import exception, notifications
from attachd.api import detach_guard, override, validation
from attachd.api.attachments import agent_detach, lifecycle, view
from attachd.api.endpoint import AsyncPreference
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import messages
from attachd.db.attachments import deleted_attachments, legacy
from attachd.objects import Attachment, scope
from attachd.rpc import manager_api

LOG = log.getLogger(__name__)

FORCE: Final = "force"
QUERY_PARAMETERS: Final = {
    **override.QUERY_PARAMETERS,
    FORCE: validation.query_flag("attachd 1.0. Delete in any state. For administrators."),
}
"""Schemas of the query parameters of a deletion."""


def load(ctx: RequestContext, attachment_id: str) -> Attachment:
    """Load the attachment that is to be deleted.

    A service may have called os-begin_detaching for one that was deleted without it.  Where other
    servers have the volume, that was counted, and is counted no longer.

    :raises AttachmentNotFound: it does not exist
    """
    try:
        return Attachment.get(ctx, attachment_id)
    except exception.AttachmentNotFound:
        deleted = deleted_attachments.find(attachment_id) if ctx.by_service else None
        if deleted is not None and scope(ctx) in {None, deleted.project_id}:
            with contextlib.suppress(exception.VolumeNotFound):
                legacy.roll_detaching(deleted.volume_id)
        raise


def delete(
    ctx: RequestContext,
    request: webob.Request,
    attachment: Attachment,
    allowed_states: detach_guard.AllowedStates,
) -> dict[str, list[view.Summary]]:
    """Remove an attachment in the states that the guard allows; return those that remain.

    :param allowed_states: as detach_guard.check() returned it
    """
    rows = lifecycle.cancel(attachment)
    if rows is not None:
        return view.list_summaries(rows)
    return agent_detach.disconnect(
        ctx, attachment, _allowed_states(ctx, request, attachment, allowed_states)
    )


def delete_async(
    ctx: RequestContext,
    request: webob.Request,
    attachment: Attachment,
    async_response: AsyncPreference,
) -> dict[str, Any]:
    """Record that an attachment is to be deleted; return it as it is until then."""
    allowed_states = detach_guard.check(ctx, request, attachment)
    rows = lifecycle.cancel(attachment)
    if rows is not None:
        return dict(view.list_summaries(rows))
    lifecycle.check_backlog(attachment.project_id)
    allowed_states = _allowed_states(ctx, request, attachment, allowed_states)
    return dict(agent_detach.disconnect_async(ctx, attachment, allowed_states, async_response))


def _allowed_states(
    ctx: RequestContext,
    request: webob.Request,
    attachment: Attachment,
    allowed_states: detach_guard.AllowedStates,
) -> detach_guard.AllowedStates:
    """Return the states in which an attachment may be deleted that is more than a reservation."""
    if attachment.wire_state != "reserved":
        return allowed_states
    # Another request is connecting the reservation at this moment.
    return detach_guard.check(ctx, request, Attachment.get(ctx, attachment.id))


def force_delete(
    ctx: RequestContext,
    request: webob.Request,
    attachment: Attachment,
    allowed_states: Collection[str] | None = None,
) -> dict[str, list[view.Summary]]:
    """Remove an attachment in any state; return those that remain.

    :param request: may give a reason, as override.py reads it
    :param allowed_states: as the guard returned it, where it was asked
    :raises: as manager_api.force_detach()
    """
    _record_force_delete(ctx, attachment, override.reason(request))
    rows = lifecycle.cancel(attachment)
    if rows is None:
        return view.list_remaining(manager_api.force_detach(ctx, attachment, allowed_states))
    _notify_owner(ctx, attachment)
    return view.list_summaries(rows)


def _record_force_delete(ctx: RequestContext, attachment: Attachment, reason: str | None) -> None:
    """Log and notify who deletes an attachment by force, and why."""
    LOG.warning(
        "Attachment %s of volume %s (server %s, host %s, %s): deleted by force by user %s of "
        "project %s. Reason: %s",
        attachment.id,
        attachment.volume_id,
        attachment.instance_uuid,
        attachment.host,
        attachment.wire_state,
        ctx.user_id,
        ctx.project_id,
        reason,
    )
    payload = override.details(ctx, override.AttachmentRef.from_attachment(attachment), reason)
    notifications.urgent_volume("detach.force", attachment.volume_id, force=payload)


def _notify_owner(ctx: RequestContext, attachment: Attachment) -> None:
    """Write the message that the manager writes where it takes part."""
    row = messages.ForcedAttachment(
        id=attachment.id, volume_id=attachment.volume_id, project_id=attachment.project_id
    )
    news = messages.forced(row, ctx.user_id, ctx.request_id)
    messages.try_create(news, CONF.manager.message_ttl)
