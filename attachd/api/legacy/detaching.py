# SPDX-License-Identifier: Apache-2.0
"""Detaching by actions of the volume, whoever made the attachment."""

from collections.abc import Mapping
import contextlib
from typing import Any

import webob

from attachd import exception
from attachd.api.endpoint import action
from attachd.api.legacy import giving_back, policy, schema
from attachd.api.legacy.there import DOC, PATH, Row, There
from attachd.api.volumes import load
from attachd.context import RequestContext
from attachd.objects import Attachment
from attachd.rpc import manager_api

Body = Mapping[str, Any]


@action(
    PATH,
    "os-detach",
    policy=policy.DETACH,
    body=schema.DETACH,
    doc=DOC,
)
def detach(ctx: RequestContext, volume_id: str, body: Body | None, request: webob.Request) -> None:
    """Remove an attachment, and close what is still open for it; the only one needs no name."""
    volume = load.writable(ctx, volume_id, policy.DETACH)
    wanted = schema.attachment(body)
    there = There.unguarded(ctx, request, volume.id, wanted)
    chosen = _choose(ctx, volume.id, there, wanted)
    if chosen is not None:
        giving_back.remove(ctx, request, volume, there, chosen)
    elif wanted is None:
        giving_back.as_begun(ctx, volume, there)


@action(
    PATH,
    "os-force_detach",
    policy=policy.FORCE_DETACH,
    body=schema.FORCE_DETACH,
    doc=DOC,
)
def force_detach(ctx: RequestContext, volume_id: str, body: Body, request: webob.Request) -> None:
    """Remove one attachment whatever state it is in, and what is left of the host's connection."""
    volume = load.writable(ctx, volume_id, policy.FORCE_DETACH)
    wanted = schema.attachment(body)
    there = There.unguarded(ctx, request, volume.id, wanted)
    chosen = _choose(ctx, volume.id, there, wanted)
    if chosen is not None:
        giving_back.remove_by_force(ctx, request, volume, there, chosen)
        unused = there.unused_by(chosen["user_id"])
        if unused and body.get("connector"):
            manager_api.close_connections(ctx, volume, body["connector"], (), unused)
    elif wanted is None:
        giving_back.all_of_it(ctx, volume, there)
    else:
        raise exception.AttachmentNotFound(attachment_id=wanted)


def _choose(
    ctx: RequestContext, volume_id: str, there: There, attachment_id: str | None
) -> Row | None:
    """Return the attachment that is meant, or None if there is none (any more).

    :raises InvalidVolume: there are several, and none was named
    :raises InvalidInput: the attachment is one of another volume
    """
    if attachment_id is None:
        if len(there.used) > 1:
            raise exception.InvalidVolume(
                reason=f"Volume {volume_id} has {len(there.used)} attachments: name the one to be "
                f"detached, with attachment_id. There are {there.listed()}."
            )
        return next(iter(there.used or there.attachments), None)
    found = [row for row in there.attachments if row["id"] == attachment_id]
    if not found:
        with contextlib.suppress(exception.AttachmentNotFound):
            other = Attachment.get(ctx, attachment_id)
            if other.volume_id != volume_id:
                raise exception.InvalidInput(
                    field="attachment_id",
                    value=attachment_id,
                    reason=f"It is an attachment of volume {other.volume_id}, not of {volume_id}.",
                )
    return next(iter(found), None)
