# SPDX-License-Identifier: Apache-2.0
"""Giving reservations up, of which no backend has heard; used by handlers.py and deletion.py."""

import contextlib
from typing import Any

from attachd import exception
from attachd.api.attachments import telling
from attachd.db import attachment_queries
from attachd.objects import Attachment


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
