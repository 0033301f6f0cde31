# SPDX-License-Identifier: Apache-2.0
"""Deleting attachments, unless a server uses them, see guard.py; or by force, see forced.py.

Where the host has an agent, that lets go of the volume first, see withdrawal.py.
"""

from typing import Any, NotRequired

import webob

from attachd.api import guard
from attachd.api import microversions as mv
from attachd.api.attachments import forced, policy, reservation, view, withdrawal
from attachd.api.endpoint import Told, endpoint
from attachd.context import RequestContext
from attachd.objects import Attachment

_TOLD = Told(
    {
        "attachments": NotRequired[list[view.Summary]],
        "shared_connections_by_attachment": NotRequired[list[str]],
        "attachment": NotRequired[view.Detail | view.OwnDetail],
    },
    forced.TOLD,
    (409, 504),
)


@endpoint(
    "DELETE", "/attachments/{attachment_id}", since=mv.NEW_ATTACH, policy=policy.DELETE, told=_TOLD
)
def delete(
    ctx: RequestContext,
    attachment_id: str,
    request: webob.Request,
    own: mv.Version | None,
    later: withdrawal.Later | None = None,
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
    connection = None if own is None else view.Connection(ctx, attachment)
    if by_force:
        remaining = forced.remove(ctx, request, attachment)
    elif later is not None:
        return _remove_later(ctx, request, attachment, own, later)
    else:
        remaining = remove(ctx, request, attachment, guard.check(ctx, request, attachment))
    return remaining if connection is None else view.still_connected(connection)


def remove(
    ctx: RequestContext, request: webob.Request, attachment: Attachment, among: guard.Among
) -> dict[str, list[view.Summary]]:
    """Remove an attachment as the guard has let it go, and answer those that remain.

    :param among: what the guard said
    """
    rows = reservation.cancel(attachment)
    if rows is not None:
        return view.listed(rows)
    return withdrawal.disconnected(ctx, attachment, _among(ctx, request, attachment, among))


def _remove_later(
    ctx: RequestContext,
    request: webob.Request,
    attachment: Attachment,
    own: mv.Version | None,
    later: withdrawal.Later,
) -> dict[str, Any]:
    among = guard.check(ctx, request, attachment)
    rows = reservation.cancel(attachment)
    if rows is not None:
        return dict(view.listed(rows))
    among = _among(ctx, request, attachment, among)
    return dict(withdrawal.disconnected_later(ctx, attachment, among, own, later))


def _among(
    ctx: RequestContext, request: webob.Request, attachment: Attachment, among: guard.Among
) -> guard.Among:
    """Return in which states an attachment may go that is no mere reservation."""
    if attachment.wire_state != "reserved":
        return among
    # It was; somebody connects it at this very moment.
    return guard.check(ctx, request, Attachment.get(ctx, attachment.id))
