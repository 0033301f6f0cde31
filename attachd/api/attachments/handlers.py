# SPDX-License-Identifier: Apache-2.0
"""Attachments: connect, complete, look at; creation.py makes, lists.py lists, deletion.py deletes.

Every call that changes something loads, authorises, acts and shows.
"""

from typing import Any

from attachd.api import microversions as mv
from attachd.api.attachments import connecting, policy, reservation, schema, telling, view
from attachd.api.endpoint import EndpointDoc, action, endpoint
from attachd.context import RequestContext
from attachd.objects import Attachment

ITEM = "/attachments/{attachment_id}"
ACTION = "/attachments/{attachment_id}/action"


@endpoint(
    "PUT",
    ITEM,
    since=mv.NEW_ATTACH,
    policy=policy.UPDATE,
    body=schema.UPDATE,
    doc=connecting.DOC,
)
def update(
    ctx: RequestContext,
    attachment_id: str,
    body: dict[str, Any],
    ext_version: mv.Version | None,
    async_response: connecting.AsyncPreference | None = None,
) -> dict[str, view.Detail]:
    """Connect a reserved attachment; the answer tells the state before, as in create()."""
    host = body["attachment"]["connector"]
    schema.check_connector(host)
    attachment = Attachment.get(ctx, attachment_id)
    ctx.authorize(policy.UPDATE, attachment)
    connecting.check_no_agent(attachment)
    denied = reservation.denied(ctx, attachment)
    return connecting.alone(ctx, attachment, host, denied, ext_version, async_response)


@action(
    ACTION,
    "os-complete",
    since=mv.NEW_ATTACH_COMPLETION,
    policy=policy.COMPLETE,
    status=204,
    doc=EndpointDoc(faults=(409,)),
)
def complete(ctx: RequestContext, attachment_id: str) -> None:
    """Note that the volume is in use; whatever the action's name stands for is ignored."""
    attachment = Attachment.get(ctx, attachment_id)
    ctx.authorize(policy.COMPLETE, attachment)
    if attachment.wire_state != "attached":
        connecting.check_no_agent(attachment)
    before = attachment.state
    attachment.complete()
    telling.of_completion(attachment, before)


@endpoint("GET", ITEM, since=mv.NEW_ATTACH, policy=policy.SHOW, doc=view.ONE)
def show(
    ctx: RequestContext, attachment_id: str, ext_version: mv.Version | None
) -> dict[str, view.Detail]:
    """Answer one attachment, with all that is needed to connect to the volume."""
    attachment = Attachment.get(ctx, attachment_id)
    ctx.authorize(policy.SHOW, attachment)
    return view.shown(ctx, attachment, ext_version)
