# SPDX-License-Identifier: Apache-2.0
"""Force-attach: fence the attachment that a new one is to replace, ``instead_of`` in attachd 1.1.

The new attachment is made after the backend has proved that the old one's host has no access any
more: at no moment may both write.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from attachd import exception, host_identity, notifications
from attachd.api.agents import presence
from attachd.api.attachments import schema
from attachd.api.fencing import fence_attachments, policy
from attachd.closed_hosts import fences
from attachd.context import RequestContext
from attachd.db import host_identities
from attachd.db.agents import host_limits
from attachd.db.attachments import attachment_queries, events
from attachd.db.row_types import AttachmentRow
from attachd.objects import Attachment, Volume
from attachd.rpc.manager_api import Fencing
from attachd.states import AttachmentKind


def refuse_dry_run(requested: Mapping[str, Any]) -> None:
    """Refuse a dry run that has the field; raises InvalidInput."""
    raise _invalid(
        requested, "A dry run fences nothing: leave it out, and look at the holders in the answer."
    )


def replace(ctx: RequestContext, volume: Volume, requested: Mapping[str, Any]) -> None:
    """Fence the attachment that the request names; a repeated request goes on.

    :param volume: of the request
    :param requested: ``attachment`` of the body
    :raises Forbidden: the caller may not, or may not without proof
    :raises AttachmentNotFound: there is none, and none was fenced under this id
    :raises InvalidInput: it is an attachment of another volume
    :raises Conflict: its host may still have access; nothing is attached
    """
    ctx.authorize(policy.FORCE_ATTACH, volume)
    old = _find(ctx, volume, requested)
    if old is None:
        return  # It was fenced by an earlier run of the request.
    _check_new_host(ctx, requested, old)
    fencing = fences.get_fencing().get(old.backend, Fencing.NONE)
    if fencing == Fencing.NONE:
        raise _not_fenced(old, f"Backend {old.backend} cannot end the access of a host.")
    if fencing == Fencing.ASSERTED:
        ctx.authorize(policy.FORCE_ATTACH_ASSERTED, volume)
    result = fence_attachments.fence(ctx, old)
    notifications.urgent_volume("detach.fence", volume.id, fence=result)
    if result["result"] not in {Fencing.PROVED, Fencing.ASSERTED}:
        raise _not_fenced(old, f"{result['reason']}")


def _find(ctx: RequestContext, volume: Volume, requested: Mapping[str, Any]) -> Attachment | None:
    """Return the attachment that is to be replaced; None: it was fenced and is gone."""
    attachment_id = schema.identity(requested, "instead_of")
    try:
        old = Attachment.get(ctx, attachment_id)
    except exception.AttachmentNotFound:
        if attachment_id in events.list_proofs([attachment_id], volume.id):
            return None
        raise
    if old.volume_id != volume.id:
        raise _invalid(requested, f"It is an attachment of volume {old.volume_id}.")
    if old.kind != AttachmentKind.ATTACHMENT:
        raise _not_fenced(old, "It was made by os-attach: fence its host, or detach the volume.")
    rows = attachment_queries.list_of_volumes([old.volume_id])[old.volume_id]
    if old.move_from is not None or any(row["move_from"] == old.id for row in rows):
        raise _not_fenced(old, "It is one end of a move: finish that, or roll it back.")
    _check_alone_on_host(old, rows)
    return old


def _check_new_host(ctx: RequestContext, requested: Mapping[str, Any], old: Attachment) -> None:
    """Check that the host that is to get access may, before that of the other one ends.

    :raises HostFenced, InitiatorTaken: it may not
    :raises Conflict: its agent cannot attach now
    :raises HostLimitExceeded: it can take no more attachments
    """
    agent, connector = requested.get("host"), requested.get("connector")
    if agent is not None:
        connector = presence.connector(agent)
        if old.agent != agent:
            host_limits.check(agent)
    if connector:
        source = host_identities.get_source(agent, by_service=ctx.by_service)
        host_identities.check(connector, source, former_host=old.host)


def _check_alone_on_host(old: Attachment, rows: Sequence[AttachmentRow]) -> None:
    """Check that its host has no other attachment of the volume, whose access may be the same."""
    own = next((host_identity.of_row(row) for row in rows if row["id"] == old.id), None)
    others = [
        row["id"]
        for row in rows
        if own is not None
        and row["id"] != old.id
        and row["host"]
        and host_identity.is_same_host(host_identity.of_row(row), own)
    ]
    if old.host is not None and others:
        raise _not_fenced(
            old, f"Its host has another attachment of the volume, {others[0]}: fence the host."
        )


def _invalid(requested: Mapping[str, Any], reason: str) -> exception.InvalidInput:
    return exception.InvalidInput(
        field="attachment.instead_of", value=requested["instead_of"], reason=reason
    )


def _not_fenced(attachment: Attachment, reason: str) -> exception.Conflict:
    return exception.Conflict(
        reason=f"Attachment {attachment.id} of host {attachment.host} is not fenced: {reason} "
        "Nothing was attached instead of it. Repeat the request; or turn the host off, and delete "
        "the attachment by force."
    )
