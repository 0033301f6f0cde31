# SPDX-License-Identifier: Apache-2.0
"""What an audit reads of the rows, and the one thing that it writes; for manager/audit/."""

from typing import Any

import sqlalchemy as sa

from attachd import states
from attachd.db import api, models, processes
from attachd.states import AttachmentState, VolumeState, VolumeStatus

Row = dict[str, Any]
_V = models.volumes
_A = models.attachments


@api.retried
def volumes_of(backend: str) -> list[Row]:
    """Return all volumes of ``host@backend``, oldest first."""
    wanted = sa.select(_V).where(models.served_by(backend)).order_by(_V.c.created_at, _V.c.id)
    with api.reader() as connection:
        return [dict(row._mapping) for row in connection.execute(wanted)]


@api.retried
def attachments_of(backend: str) -> list[Row]:
    """Return the attachments of all volumes of ``host@backend``, secrets included."""
    wanted = sa.select(_A).join(_V, _V.c.id == _A.c.volume_id).where(models.served_by(backend))
    with api.reader() as connection:
        return [dict(row._mapping) for row in connection.execute(wanted)]


@api.retried
def attachments_of_volume(volume_id: str) -> list[Row]:
    """Return the attachments of a volume, secrets included."""
    with api.reader() as connection:
        found = connection.execute(sa.select(_A).where(_A.c.volume_id == volume_id))
        return [dict(row._mapping) for row in found]


def living() -> set[str]:
    """Return the ids of the manager processes that live."""
    return {str(row["id"]) for row in processes.living()}


def untouched_for(row: Row) -> float:
    """Return for how many seconds a row has been as it is."""
    return float((models.now() - (row["updated_at"] or row["created_at"])).total_seconds())


@api.retried
def volume(volume_id: str) -> Row | None:
    """Return a volume, whichever backend it is at, or None if there is none."""
    with api.reader() as connection:
        found = connection.execute(sa.select(_V).where(_V.c.id == volume_id)).one_or_none()
    return None if found is None else dict(found._mapping)


@api.retried
def derived(volume_id: str) -> tuple[VolumeStatus, VolumeStatus] | None:
    """Return what is stored of a volume's status and what it should be; None: it is gone."""
    with api.writer() as connection:
        found = _derived(connection, volume_id)
    return None if found is None else found[:2]


@api.retried
def store_derived(volume_id: str) -> None:
    """Let a volume's status be what follows from its own state and its attachments."""
    with api.writer() as connection:
        if (found := _derived(connection, volume_id)) is not None:
            _stored, right, leaving = found
            values = {**right._asdict(), "leaving": leaving}
            connection.execute(sa.update(_V).where(_V.c.id == volume_id).values(values))


def _derived(
    connection: sa.Connection, volume_id: str
) -> tuple[VolumeStatus, VolumeStatus, int] | None:
    """Look at a volume and its attachments while nobody can move either."""
    wanted = sa.select(_V).where(_V.c.id == volume_id).with_for_update()
    row = connection.execute(wanted).one_or_none()
    if row is None:
        return None
    held = connection.execute(sa.select(_A.c.state).where(_A.c.volume_id == volume_id)).scalars()
    return status_of(dict(row._mapping), [AttachmentState(each) for each in held])


def status_of(row: Row, held: list[AttachmentState]) -> tuple[VolumeStatus, VolumeStatus, int]:
    """Tell what a volume's row says of its status, what it should say, and how many leave."""
    leaving = states.remaining_detaches(row["leaving"], held)
    right = states.derive(VolumeState(row["state"]), held, leaving)
    return VolumeStatus(row["status"], row["attach_status"]), right, leaving
