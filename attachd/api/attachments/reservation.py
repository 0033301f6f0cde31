# SPDX-License-Identifier: Apache-2.0
"""Reservations: which rules apply, how they are made, expire and are cancelled.

A reservation is a row that no backend knows of.
"""

from collections.abc import Mapping
import contextlib
import datetime
from typing import Any, Final

from oslo_utils import timeutils

from attachd import exception
from attachd.api import idempotency
from attachd.api import policy as rules
from attachd.api.attachments import notify, policy, schema
from attachd.api.idempotency import AlreadyMade, IdempotencyClaim
from attachd.api.volumes import policy as volume_policy
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db.attachments import multiattach_rules
from attachd.db.attachments import queries as attachment_queries
from attachd.db.types import store as types
from attachd.objects import Attachment, Volume
from attachd.states import INACTIVE, AttachmentState


def get_or_create(
    ctx: RequestContext,
    volume: Volume,
    requested: Mapping[str, Any],
    ext_version: tuple[int, int] | None,
    idempotency_claim: IdempotencyClaim | None = None,
    agent: str | None = None,
) -> Attachment:
    """Reserve a volume, or return the attachment that an earlier run of the request has made.

    :param requested: ``attachment`` of the body, as its schema lets it through
    :param ext_version: the requested version of attachd's own API
    :param idempotency_claim: of the request's key
    :param agent: the host whose agent makes the device; None: the caller does
    :raises: as Attachment.reserve()
    """
    earlier = find_earlier(ctx, idempotency_claim)
    return earlier or _reserve(
        ctx, volume, requested, expiry_time(requested, ext_version), idempotency_claim, agent
    )


def find_earlier(
    ctx: RequestContext, idempotency_claim: IdempotencyClaim | None
) -> Attachment | None:
    """Return the attachment that an earlier run of the same request has made, or None.

    :raises KeyResourceGone: it is deleted
    """
    return idempotency.find_created(
        idempotency_claim,
        "attachment",
        lambda: Attachment.get(ctx, idempotency_claim.resource_id if idempotency_claim else ""),
    )


def _reserve(
    ctx: RequestContext,
    volume: Volume,
    requested: Mapping[str, Any],
    expires_at: datetime.datetime | None,
    idempotency_claim: IdempotencyClaim | None,
    agent: str | None,
) -> Attachment:
    mode = requested.get("mode")
    check_requested_mode(volume, mode)
    denied_rule = sharing_denied_rule(ctx, volume)
    server = schema.identity(requested, "instance_uuid") if "instance_uuid" in requested else None
    made = Attachment.reserve(
        ctx,
        volume,
        server,
        mode,
        denied_rule,
        requested.get("connector"),
        idempotency_claim,
        expires_at,
        agent,
    )
    if idempotency_claim is not None:
        idempotency_claim.held = True
    return made


def reconnect_denied_rule(ctx: RequestContext, attachment: Attachment) -> str | None:
    """Return the rule that denies sharing the volume, when a failed connect is repeated; or "".

    A failed attachment no longer holds the volume, so policy is asked again.  A reservation was
    checked when it was made.
    """
    if AttachmentState(attachment.state) not in INACTIVE:
        return None
    return sharing_denied_rule(ctx, Volume.get(ctx, attachment.volume_id))


def cancel(attachment: Attachment) -> list[dict[str, Any]] | None:
    """Cancel an attachment that is only a reservation.

    :returns: the rows of the volume's remaining attachments; None: it is more than a reservation
    """
    if not _cancel(attachment):
        return None
    rows = attachment_queries.list_of_volumes([attachment.volume_id])[attachment.volume_id]
    notify.reservation_cancelled(attachment, rows)
    return rows


def abandon(attachment: Attachment, idempotency_claim: IdempotencyClaim | None = None) -> None:
    """Cancel a reservation that this request has made, unless it is connected meanwhile.

    :param idempotency_claim: of the request's key: a repeated request may reserve again
    """
    with contextlib.suppress(exception.AttachdError, AlreadyMade):
        if idempotency_claim is None:
            _cancel(attachment)
        elif attachment.wire_state == "reserved":
            idempotency_claim.release()
            if not _cancel(attachment):
                idempotency_claim.take_back()


def release_claim(idempotency_claim: IdempotencyClaim | None) -> None:
    """Let a repeated request create again what was created for its key and removed."""
    if idempotency_claim is not None:
        with contextlib.suppress(AlreadyMade):
            idempotency_claim.release()
            idempotency_claim.held = False


def _cancel(attachment: Attachment) -> bool:
    if attachment.wire_state != "reserved":
        return False
    try:
        attachment.cancel()
    except exception.InvalidTransition:
        return False  # It is connected or deleted meanwhile.
    return True


def sharing_denied_rule(ctx: RequestContext, volume: Volume) -> str | None:
    """Return the rule that denies the caller to share a volume with others, or None.

    Whether the volume has other holders is checked later, under a row lock.
    """
    if not volume.multiattach:
        return None
    mode = [volume_policy.MULTIATTACH, *([policy.BOOTABLE] if volume.bootable else [])]
    owner = {"project_id": volume.project_id, "user_id": volume.user_id}
    return next((rule for rule in mode if not rules.allows(ctx, rule, owner)), None)


def check_requested_mode(volume: Volume, mode: str | None) -> None:
    """Refuse a request to write to a volume that no attachment may write to.

    :param mode: "rw", "ro", or None: as much as is allowed
    :raises InvalidVolumeAttachMode: with what forbids it
    """
    if mode != "rw":
        return
    specs = types.get(volume.volume_type_id)["extra_specs"] if volume.volume_type_id else {}
    row = {"id": volume.id, "admin_metadata": volume.admin_metadata, "type_specs": specs}
    multiattach_rules.decide_mode(row, {}, (), mode)


EXPIRES_IN: Final = "expires_in"


def expiry_time(
    requested: Mapping[str, Any], ext_version: tuple[int, int] | None
) -> datetime.datetime | None:
    """Return when a new reservation expires; None: never.

    [api]reservation_ttl is the default and the limit; callers under attachd 1.0 can ask for less.
    The manager removes expired reservations (manager/expiry.py).

    :param requested: ``attachment`` of the body, as its schema lets it through
    :param ext_version: the requested version of attachd's own API
    :raises InvalidInput: the time is too long, or not allowed in this request
    """
    maximum = CONF.api.reservation_ttl
    mode = requested.get(EXPIRES_IN)
    if EXPIRES_IN in requested and ext_version is None:
        raise _invalid_expiry(mode, "It needs the header OpenStack-API-Version: attachd 1.0.")
    if mode is not None and requested.get("connector"):
        raise _invalid_expiry(
            mode, "An attachment that is connected at once does not expire: leave it out."
        )
    if mode is not None and 0 < maximum < mode:
        raise _invalid_expiry(mode, f"Reservations last {maximum} seconds, at most.")
    seconds = mode or maximum
    return timeutils.utcnow() + datetime.timedelta(seconds=seconds) if seconds else None


def _invalid_expiry(mode: Any, reason: str) -> exception.InvalidInput:
    return exception.InvalidInput(field=f"attachment.{EXPIRES_IN}", value=mode, reason=reason)
