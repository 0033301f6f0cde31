# SPDX-License-Identifier: Apache-2.0
"""What a volume's row says before and after a manager's work on it; used by volumes.py."""

from collections.abc import Iterator, Mapping
import contextlib
from typing import Any, Final

from oslo_log import log

from attachd import exception
from attachd.db import volumes as db
from attachd.manager import flow_runner, messages
from attachd.manager.backends import Turn
from attachd.states import Event, VolumeState

LOG = log.getLogger(__name__)

Row = db.Row

FAILURES: Final = (flow_runner.Failed, exception.Unavailable, exception.VolumeNotFound)
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


@contextlib.contextmanager
def unless_gone(volume_id: str) -> Iterator[None]:
    """Do nothing to a volume that is gone."""
    try:
        yield
    except exception.VolumeNotFound:
        LOG.info("Volume %s is gone, nothing to do", volume_id)


def source_of(row: db.Row) -> db.Row | None:
    """Return the row of the volume that a volume is to be a copy of; None: of none.

    :raises VolumeNotFound: it is gone
    """
    return db.get(row["source_volid"], None) if row["source_volid"] else None


def fail(turn: Turn, event: Event, failed: Exception) -> None:
    """Store that it failed, and tell its user; unless another manager is to go on."""
    if turn.is_lost():
        return
    cause = failed.cause if isinstance(failed, flow_runner.Failed) else failed
    if row := note(turn, event, {"error": flow_runner.reason(cause)}):
        messages.of_volume(row, event, cause)


def note(turn: Turn, event: Event, values: Mapping[str, Any]) -> db.Row | None:
    """Store how it ended and return the row; None where somebody else has changed it."""
    volume_id = turn.lease.volume_id
    if values.get("error"):
        LOG.warning("Volume %s did %s: %s", volume_id, event.value, values["error"])
    try:
        return db.move(volume_id, event, {**values, "owner": None}, turn.lease)
    except (exception.InvalidTransition, exception.NotFound, exception.TakenOver):
        LOG.warning("Volume %s was changed by somebody else; left as it is", volume_id)
        return None
