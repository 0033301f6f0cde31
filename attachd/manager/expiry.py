# SPDX-License-Identifier: Apache-2.0
"""Removes reservations that nobody has connected in time; for caretaker.py.

Of a mere reservation no backend has heard, so that its row is all there is of it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from oslo_log import log
from oslo_utils import timeutils

from attachd import exception
from attachd.db import attachments as db
from attachd.db import expiry
from attachd.manager import measuring, notify
from attachd.manager.backends import Backend
from attachd.states import Event

LOG = log.getLogger(__name__)


class _Kept(Exception):
    """It does not end yet."""


def expire(backend: Backend) -> int:
    """Remove what has expired of this backend's reservations.

    :returns: how many
    """
    removed = sum(_expire(backend, row) for row in expiry.expired(backend.host))
    measuring.acted(backend, "expire", removed)
    return removed


def _expire(backend: Backend, row: db.Row) -> bool:
    try:
        moved = db.move(row["id"], row["volume_id"], Event.CANCEL, guard=_still_expired)
    except (exception.InvalidTransition, exception.NotFound, _Kept):
        return False  # Somebody has connected it at last, or removed it.
    LOG.info("Attachment %s has expired: nobody connected it", row["id"])
    notify.of_attachment(backend, "detach.start", moved)
    notify.of_the_others(backend, "detach.end", moved)
    notify.of_expiry(moved.attachment)
    return True


def _still_expired(_volume: db.Row, mine: db.Row, _others: Sequence[db.Row]) -> Mapping[str, Any]:
    if mine["expires_at"] is None or mine["expires_at"] > timeutils.utcnow():
        raise _Kept
    return {}
