# SPDX-License-Identifier: Apache-2.0
"""What a volume's row says before and after a manager's work on it; used by volumes.py."""

from collections.abc import Mapping
from typing import Any, Final

from oslo_log import log

from attachd import exception
from attachd.db import volumes as db
from attachd.manager import engine, messages
from attachd.states import Event, VolumeState

LOG = log.getLogger(__name__)

Row = db.Row

FAILURES: Final = (engine.Failed, exception.Unavailable, exception.VolumeNotFound)
"""What ends the work on a volume otherwise than well."""

NO_ERROR: Final[Mapping[str, Any]] = {"error": None, "new_size_gib": None}
"""What is stored beside the result of work that ended well."""


def due(volume_id: str, expected: VolumeState) -> db.Row | None:
    """Return the row if it still waits for this work, or None."""
    try:
        row = db.get(volume_id, None)
    except exception.VolumeNotFound:
        LOG.info("Volume %s is gone, nothing to do", volume_id)
        return None
    if row["state"] != expected:
        LOG.info("Volume %s is %s and not %s, nothing to do", volume_id, row["state"], expected)
        return None
    return row


def source_of(row: db.Row) -> db.Row | None:
    """Return the row of the volume that a volume is to be a copy of; None: of none.

    :raises VolumeNotFound: it is gone
    """
    return db.get(row["source_volid"], None) if row["source_volid"] else None


def fail(volume_id: str, event: Event, failed: Exception) -> None:
    """Store that it failed, and tell its user."""
    cause = failed.cause if isinstance(failed, engine.Failed) else failed
    if row := note(volume_id, event, {"error": engine.reason(cause)}):
        messages.of_volume(row, event, cause)


def note(volume_id: str, event: Event, values: Mapping[str, Any]) -> db.Row | None:
    """Store how it ended and return the row; None where somebody else has changed it."""
    if values.get("error"):
        LOG.warning("Volume %s did %s: %s", volume_id, event.value, values["error"])
    try:
        return db.move(volume_id, event, {**values, "owner": None})
    except (exception.InvalidTransition, exception.NotFound):
        LOG.warning("Volume %s was changed by somebody else; left as it is", volume_id)
        return None
