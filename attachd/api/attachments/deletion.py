# SPDX-License-Identifier: Apache-2.0
"""Deleting attachments, unless a server uses them, see guard.py; or by force, see forced.py.

Where the host has an agent, that lets go of the volume first, see withdrawal.py.
"""

from typing import Any, NotRequired

import webob

from attachd.api import guard
from attachd.api import microversions as mv
from attachd.api.attachments import forced, policy, reservation, view, withdrawal
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.context import RequestContext
from attachd.objects import Attachment

_DOC = EndpointDoc(
    {
        "attachments": NotRequired[list[view.Summary]],
        "shared_connections_by_attachment": NotRequired[list[str]],
        "attachment": NotRequired[view.Detail | view.ExtDetail],
    },
    forced.QUERY_PARAMETERS,
    (409, 504),
)


@endpoint(
    "DELETE", "/attachments/{attachment_id}", since=mv.NEW_ATTACH, policy=policy.DELETE, doc=_DOC
)
def delete(
    ctx: RequestContext,
    attachment_id: str,
    request: webob.Request,
    ext_version: mv.Version | None,
    async_response: withdrawal.AsyncPreference | None = None,
) -> dict[str, Any]:
    """Take the host's access away; answers the volume's remaining attachments.

    Under attachd 1.0 it answers those that still use the connection which it had.  Whoever
    prefers not to wait gets the attachment as it is until it goes; with force everybody waits.
    """
    by_force = forced.is_wanted(request)
    attachment = Attachment.get(ctx, attachment_id)
    ctx.authorize(policy.DELETE, attachment)
    if by_force:
        ctx.authorize(policy.FORCE, attachment)
    connection = None if ext_version is None else view.Connection(ctx, attachment)
    if by_force:
        remaining = forced.remove(ctx, request, attachment)
    elif async_response is not None:
        return _remove_async(ctx, request, attachment, ext_version, async_response)
    else:
        remaining = remove(ctx, request, attachment, guard.check(ctx, request, attachment))
    return remaining if connection is None else view.still_connected(connection)


def remove(
    ctx: RequestContext,
    request: webob.Request,
    attachment: Attachment,
    allowed_states: guard.AllowedStates,
) -> dict[str, list[view.Summary]]:
    """Remove an attachment as the guard has let it go, and answer those that remain.

    :param allowed_states: what the guard said
    """
    rows = reservation.cancel(attachment)
    if rows is not None:
        return view.listed(rows)
    return withdrawal.disconnected(
        ctx, attachment, _allowed_states(ctx, request, attachment, allowed_states)
    )


def _remove_async(
    ctx: RequestContext,
    request: webob.Request,
    attachment: Attachment,
    ext_version: mv.Version | None,
    async_response: withdrawal.AsyncPreference,
) -> dict[str, Any]:
    allowed_states = guard.check(ctx, request, attachment)
    rows = reservation.cancel(attachment)
    if rows is not None:
        return dict(view.listed(rows))
    allowed_states = _allowed_states(ctx, request, attachment, allowed_states)
    return dict(
        withdrawal.disconnected_async(ctx, attachment, allowed_states, ext_version, async_response)
    )


def _allowed_states(
    ctx: RequestContext,
    request: webob.Request,
    attachment: Attachment,
    allowed_states: guard.AllowedStates,
) -> guard.AllowedStates:
    """Return in which states an attachment may go that is no mere reservation."""
    if attachment.wire_state != "reserved":
        return allowed_states
    # It was; somebody connects it at this very moment.
    return guard.check(ctx, request, Attachment.get(ctx, attachment.id))
