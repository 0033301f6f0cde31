# SPDX-License-Identifier: Apache-2.0
"""The condition of attachments: what agents and drivers show of them; stored by managers."""

from collections.abc import Collection
from typing import Any, Final, TypedDict

import sqlalchemy as sa

from attachd.db import models
from attachd.db.attachments import events
from attachd.db.attachments.backend_attachments import DriverAttachmentRow
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.states import AttachmentState, ConditionState

_ATTACHMENTS = models.attachments


class Path(TypedDict):
    """A path from a host to a volume.

    :ivar name: of the SCSI disk or NVMe controller
    :ivar state: "active" or "failed"
    """

    name: str
    state: str


class Growth(TypedDict):
    """The sizes of a device and of what is on it.

    :ivar device_bytes: of the device
    :ivar filesystem: the type of the file system on it; null: none whose size is known
    :ivar filesystem_bytes: its size, when the host read it last
    :ivar message: how the file system is smaller than the device, and why; null: it is not
    """

    device_bytes: int
    filesystem: str | None
    filesystem_bytes: int | None
    message: str | None


class Condition(TypedDict):
    """How well the host of an attachment reaches its volume.

    :ivar state: "ok", "degraded", "failed" or "unknown"
    :ivar message: why it is not ok; null: it is
    :ivar device_present: whether its host has the device; null: no agent reports it
    :ivar paths: to the volume; none where the kernel of its host shows none
    :ivar session: whether the backend lists a session of its host; null: it cannot tell
    :ivar last_io_error: that its host knows of, in words; null: none
    :ivar growth: the sizes of the device and its file system; null: no agent reports them
    :ivar changed_at: since when it is in this state; null: it was never observed
    """

    state: str
    message: str | None
    device_present: bool | None
    paths: list[Path]
    session: bool | None
    last_io_error: str | None
    growth: Growth | None
    changed_at: str | None


NOT_OBSERVED: Final[Condition] = {
    "state": ConditionState.UNKNOWN.value,
    "message": "Nothing is known of it.",
    "device_present": None,
    "paths": [],
    "session": None,
    "last_io_error": None,
    "growth": None,
    "changed_at": None,
}

_TROUBLE: Final = frozenset({ConditionState.DEGRADED, ConditionState.FAILED})


@retried
def record(row: DriverAttachmentRow, condition: Condition) -> bool:
    """Store a condition, unless the attachment or its condition has changed since it was read.

    Of several processes that observe the same, one stores it.

    :returns: whether that is an event: the state is another one, and not the first if it is good;
        or the device or its file system has another size, or another reason not to grow
    """
    before = row["observed"]
    same = _ATTACHMENTS.c.observed
    statement = (
        sa.update(_ATTACHMENTS)
        .where(
            _ATTACHMENTS.c.id == row["id"],
            _ATTACHMENTS.c.state == AttachmentState.ATTACHED.value,
            _ATTACHMENTS.c.generation == row["generation"],
            same.is_(None) if before is None else same == before,
        )
        # No change of the attachment itself.
        .values(
            condition_state=condition["state"],
            observed=condition,
            updated_at=_ATTACHMENTS.c.updated_at,
        )
    )
    known = row["condition_state"]
    is_event = condition["state"] != known and bool(known or condition["state"] in _TROUBLE)
    is_event = is_event or _has_grown(before, condition)
    with session.writer() as connection:
        if connection.execute(statement).rowcount != 1:
            return False
        if is_event:
            said = {**condition, "former_state": known}
            events.record(connection, row, events.CONDITION_CHANGED, condition=said)
    return is_event


def _has_grown(before: dict[str, Any] | None, condition: Condition) -> bool:
    """Return whether sizes have changed that were known, or the reason why they have not."""
    former, now = (before or {}).get("growth"), condition["growth"]
    if former is None or now is None:
        return False
    is_larger = now["device_bytes"] != former["device_bytes"] or (
        now["filesystem_bytes"] != former["filesystem_bytes"]
        and former["filesystem"] == now["filesystem"]
    )
    return is_larger or (now["message"] is not None and now["message"] != former["message"])


@retried
def list_of_attachments(attachment_ids: Collection[str]) -> dict[str, Condition | None]:
    """Return the stored conditions of some attachments, by their ids."""
    statement = sa.select(_ATTACHMENTS.c.id, _ATTACHMENTS.c.observed).where(
        _ATTACHMENTS.c.id.in_(attachment_ids)
    )
    with session.reader() as connection:
        return {row.id: row.observed for row in connection.execute(statement)}
