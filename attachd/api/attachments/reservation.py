# SPDX-License-Identifier: Apache-2.0
"""Making reservations, and giving those up of which no backend has heard; used by handlers."""

from collections.abc import Mapping
import contextlib
from typing import Any

from attachd import exception
from attachd.api.attachments import schema, several, telling
from attachd.context import RequestContext
from attachd.db import attachment_queries
from attachd.objects import Attachment, Volume
from attachd.states import UNREACHABLE, AttachmentState


def make(ctx: RequestContext, volume: Volume, wanted: Mapping[str, Any]) -> Attachment:
    """Take a volume for somebody who will connect to it later.

    :param wanted: ``attachment`` of the body, as its schema lets it through
    :raises: as Attachment.reserve()
    """
    mode = wanted.get("mode")
    several.check_mode(volume, mode)
    denied = several.denied(ctx, volume)
    server = schema.identity(wanted, "instance_uuid") if "instance_uuid" in wanted else None
    return Attachment.reserve(ctx, volume, server, mode, denied)


def denied(ctx: RequestContext, attachment: Attachment) -> str:
    """Name the rule that keeps the caller from joining others when a connect is repeated.

    One that failed had given the volume back; a reservation was asked when it was made.

    :returns: "" if none does
    """
    if AttachmentState(attachment.state) not in UNREACHABLE:
        return ""
    return several.denied(ctx, Volume.get(ctx, attachment.volume_id))


def cancel(attachment: Attachment) -> list[dict[str, Any]] | None:
    """Give a mere reservation up.

    :returns: the rows of the volume's remaining attachments; None: it is more than a reservation
    """
    if not _cancelled(attachment):
        return None
    rows = attachment_queries.brief_of_volumes([attachment.volume_id])[attachment.volume_id]
    telling.of_cancellation(attachment, rows)
    return rows


def give_up(attachment: Attachment) -> None:
    """Give a reservation up that was made a moment ago, unless it is more than that by now."""
    with contextlib.suppress(exception.AttachdError):
        _cancelled(attachment)


def _cancelled(attachment: Attachment) -> bool:
    if attachment.wire_state != "reserved":
        return False
    try:
        attachment.cancel()
    except exception.InvalidTransition:
        return False  # It is no reservation any more.
    return True
