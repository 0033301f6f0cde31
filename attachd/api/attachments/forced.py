# SPDX-License-Identifier: Apache-2.0
"""Deleting an attachment by force, and saying who did; used by DELETE and by os-force_detach.

Who did it is logged, told to listeners, and told to the volume's owner by a message.  The message
is the manager's, as soon as it begins: where no manager takes the attachment away, none is there.
"""

from collections.abc import Collection
from typing import Final

from oslo_log import log
import webob

from attachd import notifications
from attachd.api import fields, override
from attachd.api.attachments import reservation, view
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import messages
from attachd.objects import Attachment
from attachd.rpc import manager_api

LOG = log.getLogger(__name__)

PARAMETER: Final = "force"
QUERY_PARAMETERS: Final = {
    **override.QUERY_PARAMETERS,
    PARAMETER: fields.query_flag("attachd 1.0. Whatever its state, for administrators."),
}
"""What clients are told of the parameters of a deletion."""


def is_wanted(request: webob.Request) -> bool:
    """Tell whether a request asks for it, which only those under attachd 1.0 can.

    :raises InvalidInput: it is neither true nor false
    """
    return fields.truth(PARAMETER, override.parameters(request).get(PARAMETER, "false"))


def remove(
    ctx: RequestContext,
    request: webob.Request,
    attachment: Attachment,
    allowed_states: Collection[str] | None = None,
) -> dict[str, list[view.Summary]]:
    """Remove an attachment whatever its state, and answer those that remain.

    :param request: may give a reason, as for override.py
    :param allowed_states: what the guard said, where it was asked
    :raises: as manager_api.force_detach()
    """
    _record(ctx, attachment, override.reason(request))
    rows = reservation.cancel(attachment)
    if rows is None:
        return view.remaining(manager_api.force_detach(ctx, attachment, allowed_states))
    _tell_owner(ctx, attachment)
    return view.listed(rows)


def _record(ctx: RequestContext, attachment: Attachment, reason: str | None) -> None:
    LOG.warning(
        "Attachment %s of volume %s, of server %s on host %s, which is %s, is deleted by force: "
        "user %s of project %s has it done, because: %s",
        attachment.id,
        attachment.volume_id,
        attachment.instance_uuid,
        attachment.host,
        attachment.wire_state,
        ctx.user_id,
        ctx.project_id,
        reason,
    )
    told = override.note(ctx, override.Held.of(attachment), reason)
    notifications.urgent_volume("detach.force", attachment.volume_id, force=told)


def _tell_owner(ctx: RequestContext, attachment: Attachment) -> None:
    """Do what the manager does where it is asked."""
    news = messages.News(
        attachment.volume_id,
        attachment.project_id,
        messages.DISCONNECT,
        messages.FORCED,
        ctx.request_id,
        {"user_id": ctx.user_id, "attachment_id": attachment.id},
    )
    try:
        messages.create(news, CONF.manager.message_ttl)
    except Exception:
        LOG.exception("The user of volume %s could not be told of it", attachment.volume_id)
