# SPDX-License-Identifier: Apache-2.0
"""Remove rows that have expired: reservations, messages, idempotency keys and events."""

from collections.abc import Mapping
import datetime
from typing import Any, Final

from oslo_log import log

from attachd import exception
from attachd.conf import CONF
from attachd.db import idempotency_keys, messages, models
from attachd.db.attachments import events
from attachd.db.attachments import store as db
from attachd.db.attachments.rows import LockedVolume
from attachd.manager import notify, telemetry
from attachd.manager.backends import Backend
from attachd.states import Event

LOG = log.getLogger(__name__)

BATCH_SIZE: Final = 1000
"""How many events are removed in one transaction."""


def purge_old_rows() -> None:
    """Remove old messages to users, idempotency keys of API requests, and events."""
    if removed := messages.purge():
        LOG.info("Removed %d old messages to users", removed)
    idempotency_keys.purge()
    before = models.now() - datetime.timedelta(seconds=CONF.events.retention)
    while removed := events.purge(before, BATCH_SIZE):
        LOG.info("Removed %d old events", removed)


class _NotExpired(Exception):
    """The reservation has not expired yet."""


def expire_reservations(backend: Backend) -> int:
    """Remove the reservations of this backend that were not connected in time.

    A reservation is a row only: the backend does not know of it.

    :returns: how many
    """
    removed = sum(
        _expire_reservation(backend, row) for row in db.list_expired_reservations(backend.host)
    )
    telemetry.count_recovery(backend, "expire", removed)
    return removed


def _expire_reservation(backend: Backend, row: db.Row) -> bool:
    try:
        moved = db.move(row["id"], row["volume_id"], Event.CANCEL, guard=_still_expired)
    except (exception.InvalidTransition, exception.NotFound, _NotExpired):
        return False  # It was connected or removed meanwhile.
    LOG.info("Attachment %s: reservation expired without being connected", row["id"])
    notify.attachment_event(backend, "detach.start", moved)
    notify.attachment_removed_event(backend, "detach.end", moved)
    notify.expiry_message(moved.attachment)
    return True


def _still_expired(locked: LockedVolume) -> Mapping[str, Any]:
    row = locked.attachment
    if row["expires_at"] is None or row["expires_at"] > models.now():
        raise _NotExpired
    return {}
