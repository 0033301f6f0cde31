# SPDX-License-Identifier: Apache-2.0
"""Attachments: reserve, connect, complete, look at; lists.py lists, deletion.py deletes them.

Every call that changes something loads, authorises, acts and shows.  A reservation is committed
before the manager is asked to connect, and the manager alone writes after that.
"""

from typing import Any

from attachd import rpcapi
from attachd.api import microversions as mv
from attachd.api.attachments import policy, reservation, schema, telling, view
from attachd.api.endpoint import action, endpoint
from attachd.context import RequestContext
from attachd.objects import Attachment, Volume

COLLECTION = "/attachments"
ITEM = "/attachments/{attachment_id}"
ACTION = "/attachments/{attachment_id}/action"


@endpoint("POST", COLLECTION, since=mv.NEW_ATTACH, policy=policy.CREATE, body=schema.CREATE)
def create(
    ctx: RequestContext, body: dict[str, Any], own: mv.Version | None
) -> dict[str, view.Detail]:
    """Reserve a volume, and connect it at once when a connector is given.

    The answer tells the state before the connection, as the API has always done.
    """
    wanted = body["attachment"]
    host = wanted.get("connector")
    if host:
        schema.check_connector(host)
    volume = Volume.get(ctx, schema.identity(wanted, "volume_uuid"))
    ctx.authorize(policy.CREATE, volume)
    attachment = reservation.make(ctx, volume, wanted)
    if not host:
        return view.shown(ctx, attachment, own)
    try:
        answer = rpcapi.attach(ctx, attachment, host)
    except Exception:
        # The caller never learns of a reservation that no manager has taken up.
        reservation.give_up(attachment)
        raise
    return view.connected(ctx, attachment, answer, host, own)


@endpoint("PUT", ITEM, since=mv.NEW_ATTACH, policy=policy.UPDATE, body=schema.UPDATE)
def update(
    ctx: RequestContext, attachment_id: str, body: dict[str, Any], own: mv.Version | None
) -> dict[str, view.Detail]:
    """Connect a reserved attachment; the answer tells the state before, as in create()."""
    host = body["attachment"]["connector"]
    schema.check_connector(host)
    attachment = Attachment.get(ctx, attachment_id)
    ctx.authorize(policy.UPDATE, attachment)
    denied = reservation.denied(ctx, attachment)
    answer = rpcapi.attach_alone(ctx, attachment, host, denied)
    return view.connected(ctx, attachment, answer, host, own)


@action(ACTION, "os-complete", since=mv.NEW_ATTACH_COMPLETION, policy=policy.COMPLETE, status=204)
def complete(ctx: RequestContext, attachment_id: str) -> None:
    """Note that the volume is in use; whatever the action's name stands for is ignored."""
    attachment = Attachment.get(ctx, attachment_id)
    ctx.authorize(policy.COMPLETE, attachment)
    before = attachment.state
    attachment.complete()
    telling.of_completion(attachment, before)


@endpoint("GET", ITEM, since=mv.NEW_ATTACH, policy=policy.SHOW)
def show(
    ctx: RequestContext, attachment_id: str, own: mv.Version | None
) -> dict[str, view.Detail]:
    """Answer one attachment, with all that is needed to connect to the volume."""
    attachment = Attachment.get(ctx, attachment_id)
    ctx.authorize(policy.SHOW, attachment)
    return view.shown(ctx, attachment, own)
