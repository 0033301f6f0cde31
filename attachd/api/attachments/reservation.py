# SPDX-License-Identifier: Apache-2.0
"""Making reservations, and giving those up of which no backend has heard; used by handlers."""

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
from attachd.db import attachment_queries, sharing_rules, types
from attachd.objects import Attachment, Volume
from attachd.states import UNREACHABLE, AttachmentState


def get_or_create(
    ctx: RequestContext,
    volume: Volume,
    wanted: Mapping[str, Any],
    ext_version: tuple[int, int] | None,
    idempotency_claim: IdempotencyClaim | None = None,
    agent: str | None = None,
) -> Attachment:
    """Take a volume for somebody who connects to it at once or later.

    :param wanted: ``attachment`` of the body, as its schema lets it through
    :param ext_version: the version of attachd's own API that is asked for
    :param idempotency_claim: of the key that the attachment is made for
    :param agent: the host whose agent makes the device; None: the caller does
    :returns: what an earlier run of the same request has made, if it has
    :raises: as Attachment.reserve()
    """
    found = find_earlier(ctx, idempotency_claim)
    return found or _reserve(
        ctx, volume, wanted, expiry_time(wanted, ext_version), idempotency_claim, agent
    )


def find_earlier(
    ctx: RequestContext, idempotency_claim: IdempotencyClaim | None
) -> Attachment | None:
    """Return what an earlier run of the same request has made; None: nothing.

    :raises KeyOutlived: it is gone
    """
    return idempotency.earlier(
        idempotency_claim,
        "attachment",
        lambda: Attachment.get(ctx, idempotency_claim.resource_id if idempotency_claim else ""),
    )


def _reserve(
    ctx: RequestContext,
    volume: Volume,
    wanted: Mapping[str, Any],
    expires_at: datetime.datetime | None,
    idempotency_claim: IdempotencyClaim | None,
    agent: str | None,
) -> Attachment:
    mode = wanted.get("mode")
    check_requested_mode(volume, mode)
    denied = sharing_denied_rule(ctx, volume)
    server = schema.identity(wanted, "instance_uuid") if "instance_uuid" in wanted else None
    made = Attachment.reserve(
        ctx,
        volume,
        server,
        mode,
        denied,
        wanted.get("connector"),
        idempotency_claim,
        expires_at,
        agent,
    )
    if idempotency_claim is not None:
        idempotency_claim.held = True
    return made


def reconnect_denied_rule(ctx: RequestContext, attachment: Attachment) -> str:
    """Name the rule that keeps the caller from joining others when a connect is repeated.

    One that failed had given the volume back; a reservation was asked when it was made.

    :returns: "" if none does
    """
    if AttachmentState(attachment.state) not in UNREACHABLE:
        return ""
    return sharing_denied_rule(ctx, Volume.get(ctx, attachment.volume_id))


def cancel(attachment: Attachment) -> list[dict[str, Any]] | None:
    """Give a mere reservation up.

    :returns: the rows of the volume's remaining attachments; None: it is more than a reservation
    """
    if not _cancel(attachment):
        return None
    rows = attachment_queries.brief_of_volumes([attachment.volume_id])[attachment.volume_id]
    notify.reservation_cancelled(attachment, rows)
    return rows


def abandon(attachment: Attachment, idempotency_claim: IdempotencyClaim | None = None) -> None:
    """Give a reservation up that was made a moment ago, unless it is more than that by now.

    :param idempotency_claim: of the key that it was created for: a repeated request may create
        it again
    """
    with contextlib.suppress(exception.AttachdError, AlreadyMade):
        if idempotency_claim is None:
            _cancel(attachment)
        elif attachment.wire_state == "reserved":
            idempotency_claim.release()
            if not _cancel(attachment):
                idempotency_claim.take_back()


def release_claim(idempotency_claim: IdempotencyClaim | None) -> None:
    """Let whoever repeats a request make anew what has been made for its key and removed again."""
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
        return False  # It is no reservation any more.
    return True


def sharing_denied_rule(ctx: RequestContext, volume: Volume) -> str:
    """Name the rule that keeps the caller from joining others at a volume; "" if none does.

    Whether there are others is looked up later, where nobody can come in between.
    """
    if not volume.multiattach:
        return ""
    asked = [volume_policy.MULTIATTACH, *([policy.BOOTABLE] if volume.bootable else [])]
    owner = {"project_id": volume.project_id, "user_id": volume.user_id}
    return next((rule for rule in asked if not rules.allows(ctx, rule, owner)), "")


def check_requested_mode(volume: Volume, asked: str | None) -> None:
    """Refuse to let a volume be written that nobody may write, whoever else has it.

    :param asked: "rw", "ro", or None: as much as is allowed
    :raises ModeNotAllowed: naming what forbids it
    """
    if asked != "rw":
        return
    specs = types.get(volume.volume_type_id)["extra_specs"] if volume.volume_type_id else {}
    row = {"id": volume.id, "admin_metadata": volume.admin_metadata, "type_specs": specs}
    sharing_rules.mode(row, {}, (), asked)


EXPIRES_IN: Final = "expires_in"


def expiry_time(
    wanted: Mapping[str, Any], ext_version: tuple[int, int] | None
) -> datetime.datetime | None:
    """Return when a new reservation ends; None: never.

    :param wanted: ``attachment`` of the body, as its schema lets it through
    :param ext_version: the version of attachd's own API that is asked for
    :raises InvalidInput: it is to last longer than it may, or nothing may be said of it
    """
    most = CONF.api.reservation_ttl
    asked = wanted.get(EXPIRES_IN)
    if EXPIRES_IN in wanted and ext_version is None:
        raise _invalid_expiry(asked, "It needs the header OpenStack-API-Version: attachd 1.0.")
    if asked is not None and wanted.get("connector"):
        raise _invalid_expiry(asked, "What is connected at once does not expire: leave it out.")
    if asked is not None and 0 < most < asked:
        raise _invalid_expiry(asked, f"Reservations last {most} seconds here, at most.")
    seconds = asked or most
    return timeutils.utcnow() + datetime.timedelta(seconds=seconds) if seconds else None


def _invalid_expiry(asked: Any, reason: str) -> exception.InvalidInput:
    return exception.InvalidInput(field=f"attachment.{EXPIRES_IN}", value=asked, reason=reason)
