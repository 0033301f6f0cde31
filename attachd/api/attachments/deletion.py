# SPDX-License-Identifier: Apache-2.0
"""Deleting attachments, unless a server uses them: see guard.py."""

import webob

from attachd import rpcapi
from attachd.api import guard
from attachd.api import microversions as mv
from attachd.api.attachments import policy, reservation, view
from attachd.api.endpoint import endpoint
from attachd.context import RequestContext
from attachd.objects import Attachment


@endpoint("DELETE", "/attachments/{attachment_id}", since=mv.NEW_ATTACH, policy=policy.DELETE)
def delete(
    ctx: RequestContext, attachment_id: str, request: webob.Request
) -> dict[str, list[view.Summary]]:
    """Take the host's access away; answers the volume's remaining attachments."""
    attachment = Attachment.get(ctx, attachment_id)
    ctx.authorize(policy.DELETE, attachment)
    return remove(ctx, request, attachment, guard.check(ctx, request, attachment))


def remove(
    ctx: RequestContext, request: webob.Request, attachment: Attachment, among: guard.Among
) -> dict[str, list[view.Summary]]:
    """Remove an attachment as the guard has let it go, and answer those that remain.

    :param among: what the guard said
    """
    rows = reservation.cancel(attachment)
    if rows is not None:
        return view.listed(rows)
    if attachment.wire_state == "reserved":
        # It was; somebody connects it at this very moment.
        among = guard.check(ctx, request, Attachment.get(ctx, attachment.id))
    return view.remaining(rpcapi.detach(ctx, attachment, among))
