# SPDX-License-Identifier: Apache-2.0
"""What snapshots, their volumes and the volumes made of them require of each other.

A volume stays as long as it has snapshots, and is neither extended nor reverted while one of them
is created.  A snapshot stays until the volumes that are made of it have its data.  Rows are locked
in this order: volume, then snapshot.
"""

from typing import Any, Final

import sqlalchemy as sa

from attachd import exception, states
from attachd.db import models
from attachd.db.row_types import SnapshotRow, VolumeRow
from attachd.states import Event, SnapshotState, VolumeState

_VOLUMES = models.volumes
_SNAPSHOTS = models.snapshots

SOURCE_STATUSES: Final = ("available", "in-use")
"""The statuses of volumes of which snapshots can be taken."""

_MAX_NAMED: Final = 5

OWNED: Final = frozenset(
    {SnapshotState.CREATING, SnapshotState.DELETING, SnapshotState.UNMANAGING}
)
"""States in which a manager has work to do on a snapshot itself."""


def check_source(connection: sa.Connection, snapshot_id: str, size_gib: int) -> None:
    """Lock the snapshot of which a volume is about to be made, and check it.

    :param size_gib: of the new volume
    :raises SnapshotNotFound: it does not exist any more
    :raises InvalidSnapshot: its state does not allow it, or it is larger
    """
    row = lock(connection, snapshot_id)
    if row["state"] != SnapshotState.AVAILABLE:
        raise not_usable(snapshot_id, row["state"])
    assert row["size_gib"] <= size_gib, "the size of a snapshot never changes"


def not_usable(snapshot_id: str, status: str) -> exception.InvalidSnapshot:
    """Return the error for a snapshot of which no volume can be made now."""
    return exception.InvalidSnapshot(
        reason=f"Snapshot {snapshot_id} status must be available to create a volume of it, "
        f"currently {status}."
    )


def lock(connection: sa.Connection, snapshot_id: str) -> SnapshotRow:
    """Lock a snapshot's row until this transaction ends, and return it.

    :raises SnapshotNotFound: there is none
    """
    statement = sa.select(_SNAPSHOTS).where(_SNAPSHOTS.c.id == snapshot_id).with_for_update()
    found = connection.execute(statement).one_or_none()
    if found is None:
        raise exception.SnapshotNotFound(snapshot_id=snapshot_id)
    row: Any = dict(found._mapping)
    return row  # type: ignore[no-any-return]


def move(
    connection: sa.Connection, row: SnapshotRow, event: Event, owner: str | None, **values: Any
) -> None:
    """Move a snapshot whose row is locked; update ``row``.

    :param owner: ``host@backend`` of its volume
    :param values: columns to store with it, bound if they are encrypted
    :raises InvalidTransition: it is in no state for this event
    """
    allowed = states.SNAPSHOT_TRANSITIONS[event]
    if row["state"] not in allowed.sources:
        raise exception.InvalidTransition(
            kind="Snapshot", id=row["id"], source=row["state"], event=event.value
        )
    unchanged = sa.and_(_SNAPSHOTS.c.id == row["id"], _SNAPSHOTS.c.state == row["state"])
    if allowed.target is None:
        result = connection.execute(sa.delete(_SNAPSHOTS).where(unchanged))
    else:
        if "error" in values:
            values["error"] = models.truncate_error(values["error"])
        stored: Any = {
            **values,
            "state": allowed.target.value,
            "owner": owner if allowed.target in OWNED else None,
            "updated_at": models.now(),
        }
        result = connection.execute(sa.update(_SNAPSHOTS).where(unchanged).values(stored))
        row.update(stored)
    assert result.rowcount == 1, row["id"]


def check_no_snapshots(connection: sa.Connection, volume_id: str) -> None:
    """Check that a volume, whose row is locked, may be removed.

    :raises InvalidVolume: it has snapshots; the message names some
    """
    named, hidden = _list_ids(connection, volume_id)
    if named:
        raise exception.InvalidVolume(
            reason=f"Volume {volume_id} has snapshots: {_describe(named)}. Delete them first, or "
            "with the volume: DELETE with cascade=true."
        )
    if hidden:
        raise exception.InvalidVolume(reason=_describe_hidden(volume_id))


def check_none_creating(connection: sa.Connection, volume_id: str, event: Event) -> None:
    """Check that no snapshot of a volume, whose row is locked, is being created.

    :raises InvalidVolume: naming it, if it is of the same project
    """
    creating = _SNAPSHOTS.c.state == SnapshotState.CREATING.value
    named, hidden = _list_ids(connection, volume_id, creating)
    if named or hidden:
        snapshot = f"its snapshot {_describe(named)}" if named else "a snapshot of it"
        raise exception.InvalidVolume(
            reason=f"Volume {volume_id} cannot {event.value} while {snapshot} is created."
        )


def _list_ids(
    connection: sa.Connection, volume_id: str, *conditions: sa.ColumnElement[bool]
) -> tuple[list[str], bool]:
    """Return ids of snapshots of a volume's project, and whether there are any of others."""
    is_hidden = _SNAPSHOTS.c.project_id != _VOLUMES.c.project_id
    statement = (
        sa.select(_SNAPSHOTS.c.id, is_hidden.label("is_hidden"))
        .join(_VOLUMES, _VOLUMES.c.id == _SNAPSHOTS.c.volume_id)
        .where(_VOLUMES.c.id == volume_id, *conditions)
        .order_by(is_hidden)
        .limit(_MAX_NAMED + 1)
    )
    rows = connection.execute(statement).all()
    return [row.id for row in rows if not row.is_hidden], any(row.is_hidden for row in rows)


def _describe(ids: list[str]) -> str:
    named = ", ".join(ids[:_MAX_NAMED])
    return f"{named} and more" if len(ids) > _MAX_NAMED else named


def _describe_hidden(volume_id: str) -> str:
    return (
        f"Volume {volume_id} has snapshots that its project does not see: those of an upload to "
        "an image, which end with it, or those of a project that had the volume before, which an "
        "administrator can delete."
    )


def check_no_pending_volume(connection: sa.Connection, snapshot_id: str) -> None:
    """Check that a snapshot, whose row is locked, may be removed.

    :raises InvalidSnapshot: a volume is being made of it
    """
    waiting = sa.select(_VOLUMES.c.id).where(
        _VOLUMES.c.snapshot_id == snapshot_id, _VOLUMES.c.state == VolumeState.CREATING.value
    )
    volume_id = connection.execute(waiting.limit(1)).scalar_one_or_none()
    if volume_id is not None:
        raise exception.InvalidSnapshot(
            reason=f"Snapshot {snapshot_id} cannot be removed while volume {volume_id} is made "
            "of it."
        )


def begin_cascade(connection: sa.Connection, volume: VolumeRow) -> None:
    """Move all snapshots of a volume, whose row is locked, to their deletion.

    :raises InvalidVolume: one of them cannot be deleted, or belongs to another project
    """
    for row in lock_all(connection, volume["id"]):
        if row["state"] == SnapshotState.DELETING:
            continue
        if row["project_id"] != volume["project_id"]:
            raise exception.InvalidVolume(reason=_describe_hidden(volume["id"]))
        try:
            check_no_pending_volume(connection, row["id"])
            move(connection, row, Event.DELETE, volume["backend_host"])
        except (exception.InvalidTransition, exception.InvalidSnapshot) as error:
            raise exception.InvalidVolume(
                reason=f"Volume {volume['id']} cannot be deleted with its snapshots: {error}"
            ) from error


def lock_all(connection: sa.Connection, volume_id: str) -> list[SnapshotRow]:
    """Lock the rows of all snapshots of a volume, whose row is locked, and return them."""
    statement = (
        sa.select(_SNAPSHOTS)
        .where(_SNAPSHOTS.c.volume_id == volume_id)
        .order_by(_SNAPSHOTS.c.id)
        .with_for_update()
    )
    rows: Any = [dict(row._mapping) for row in connection.execute(statement)]
    return rows  # type: ignore[no-any-return]


def begin_revert(connection: sa.Connection, volume: VolumeRow, snapshot_id: str) -> None:
    """Move the snapshot to which a volume, whose row is locked, is about to be reverted.

    :raises InvalidSnapshot: it is not the latest one, its state or size does not allow it, or it
        has stayed in another project when the volume was transferred
    """
    latest = (
        sa.select(_SNAPSHOTS.c.id)
        .where(_SNAPSHOTS.c.volume_id == volume["id"])
        .order_by(_SNAPSHOTS.c.created_at.desc(), _SNAPSHOTS.c.id.desc())
        .limit(1)
    )
    row = lock(connection, snapshot_id)
    if row["project_id"] != volume["project_id"]:
        raise exception.InvalidSnapshot(
            reason=f"Snapshot {snapshot_id} of volume {volume['id']} belongs to another project."
        )
    if connection.execute(latest).scalar_one_or_none() != snapshot_id:
        raise exception.InvalidSnapshot(
            reason=f"Snapshot {snapshot_id} is not the latest one of volume {volume['id']}."
        )
    if row["size_gib"] != volume["size_gib"]:
        raise exception.InvalidSnapshot(
            reason=f"Volume {volume['id']} has {volume['size_gib']} GiB and its snapshot "
            f"{snapshot_id} {row['size_gib']} GiB: it was extended since."
        )
    check_no_pending_volume(connection, snapshot_id)
    move(connection, row, Event.REVERT, None)


def end_revert(connection: sa.Connection, volume_id: str) -> None:
    """Have the snapshot available again to which a volume, whose row is locked, was reverted."""
    restoring = sa.and_(
        _SNAPSHOTS.c.volume_id == volume_id,
        _SNAPSHOTS.c.state == SnapshotState.RESTORING.value,
    )
    connection.execute(
        sa.update(_SNAPSHOTS)
        .where(restoring)
        .values(state=SnapshotState.AVAILABLE.value, updated_at=models.now())
    )
