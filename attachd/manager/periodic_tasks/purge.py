# SPDX-License-Identifier: Apache-2.0
"""Remove rows that have expired: attachments, messages, idempotency keys, events, initiators."""

from collections.abc import Callable, Mapping
import datetime
import functools
from typing import Any, Final

from oslo_log import log

from attachd import exception
from attachd.conf import CONF
from attachd.db import host_identities, idempotency_keys, messages, models
from attachd.db.attachments import attachment_store, events
from attachd.db.attachments.attachment_rows import LockedVolume
from attachd.manager import detach, notify, telemetry
from attachd.manager.backends import Backend
from attachd.manager.periodic_tasks.periodic_task import OneProcessTask
from attachd.states import AttachmentState, Event

LOG = log.getLogger(__name__)

INTERVAL: Final = 3600.0
"""Seconds between two purges of old messages to users, events and idempotency keys."""

BATCH_SIZE: Final = 1000
"""How many rows are removed in one transaction."""


class PurgeTask(OneProcessTask):
    """Removal of old messages to users, idempotency keys of requests, events, and initiators that
    nothing uses.
    """

    def interval(self) -> float:
        """Return the seconds between two purges."""
        return INTERVAL

    def run_once(self) -> None:
        """Remove what is old now; what cannot be removed is left to the next purge."""
        before = models.now() - datetime.timedelta(seconds=CONF.events.retention)
        _remove_all("old messages to users", messages.purge)
        _remove_all("old idempotency keys of requests", idempotency_keys.purge)
        _remove_all("initiators of hosts that have nothing attached", host_identities.purge)
        _remove_all("old events", functools.partial(events.purge, before))


def _remove_all(what: str, remove: Callable[[int], int]) -> None:
    """Remove all rows of a kind, some in each transaction; log what fails.

    :param remove: takes how many rows to remove at most; returns how many it has removed
    """
    total = 0
    try:
        while removed := remove(BATCH_SIZE):
            total += removed
    except exception.AttachdError as error:
        LOG.warning("Removal of %s: left to the next purge: %s", what, error)
    except Exception:
        LOG.exception("Removal of %s: left to the next purge", what)
    if total:
        LOG.info("Removed %d %s", total, what)


class _NotExpired(Exception):
    """The reservation has not expired yet."""


def expire_attachments(backend: Backend) -> int:
    """Remove the attachments of this backend that were not connected in time.

    :returns: how many
    """
    removed = 0
    for row in attachment_store.list_expired(backend.host):
        is_reservation = row["state"] == AttachmentState.RESERVED
        expire = _expire_reservation if is_reservation else _expire_failed
        removed += expire(backend, row)
    telemetry.count_recovery(backend, "expire", removed)
    return removed


def _expire_failed(backend: Backend, row: attachment_store.ExpiredRow) -> bool:
    """Remove an attachment whose connect has failed, as a client would."""
    try:
        detach.detach(backend, row["id"], row["volume_id"], {AttachmentState.CONNECT_FAILED})
    except exception.AttachdError as error:
        LOG.info("Attachment %s: not removed after its failed connect: %s", row["id"], error)
        return False
    LOG.info("Attachment %s: removed, as it was not updated after its failed connect", row["id"])
    return True


def _expire_reservation(backend: Backend, row: attachment_store.ExpiredRow) -> bool:
    """Remove a reservation, which is a row only: the backend does not know of it."""
    try:
        transitioned = attachment_store.transition(
            row["id"], row["volume_id"], Event.CANCEL, guard=_still_expired
        )
    except (exception.InvalidTransition, exception.NotFound, _NotExpired):
        return False  # It was connected or removed meanwhile.
    LOG.info("Attachment %s: reservation expired without being connected", row["id"])
    notify.attachment_event(backend, "detach.start", transitioned)
    notify.attachment_removed_event(backend, "detach.end", transitioned)
    notify.expiry_message(transitioned.attachment)
    return True


def _still_expired(locked: LockedVolume) -> Mapping[str, Any]:
    row = locked.attachment
    if row["expires_at"] is None or row["expires_at"] > models.now():
        raise _NotExpired
    return {}
