# SPDX-License-Identifier: Apache-2.0
"""Attachments: reserve, connect, complete, look at, delete."""

from attachd.api import microversions as mv
from attachd.api.attachments import policy, view
from attachd.api.endpoint import endpoint
from attachd.context import RequestContext
from attachd.objects import Attachment

ITEM = "/attachments/{attachment_id}"


@endpoint("GET", ITEM, since=mv.NEW_ATTACH, policy=policy.SHOW)
def show(ctx: RequestContext, attachment_id: str) -> dict[str, view.Detail]:
    """Answer one attachment, with all that is needed to connect to the volume."""
    attachment = Attachment.get(ctx, attachment_id)
    ctx.authorize(policy.SHOW, attachment)
    return view.shown(attachment)
