# SPDX-License-Identifier: Apache-2.0
"""What attachments hold a volume that changes or goes; used by volumes.py, under its lock."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from attachd import exception, states
from attachd.db import events, holders, models
from attachd.states import AttachmentState

Row = dict[str, Any]
_A = models.attachments


def of_volume(connection: sa.Connection, volume_id: str) -> list[Row]:
    """Return ids and states of the attachments that count, under the volume's lock."""
    rows = connection.execute(
        sa.select(_A.c.id, _A.c.state, _A.c.kind, _A.c.host, _A.c.instance_uuid)
        .where(_A.c.volume_id == volume_id, _A.c.state.not_in(states.INACTIVE))
        .order_by(_A.c.created_at, _A.c.id)
    )
    return [dict(row._mapping) for row in rows]


def named(attachments: Sequence[Row]) -> str:
    """Name those who hold it, for people; not more than a few."""
    return ", ".join(
        f"{holders.name(row)} ({AttachmentState(row['state']).wire})" for row in attachments[:5]
    )


def check_detached(row: Row, attachments: Sequence[Row]) -> None:
    """Raise InvalidVolume if a volume that is to go is held by somebody."""
    if attachments:
        raise exception.InvalidVolume(
            reason=f"Volume {row['id']} cannot be deleted while it has attachments: "
            f"{named(attachments)}."
        )


def remove(connection: sa.Connection, volume_id: str) -> None:
    """Remove what is left when the volume goes: attachments that never came to be hold nothing."""
    left = connection.execute(sa.select(_A).where(_A.c.volume_id == volume_id)).all()
    for row in left:
        events.tell(connection, dict(row._mapping), events.DELETED)
    connection.execute(sa.delete(_A).where(_A.c.volume_id == volume_id))
