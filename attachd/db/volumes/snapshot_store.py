# SPDX-License-Identifier: Apache-2.0
"""The snapshots table: creation, reads, transitions and resets; used by the API and the manager.

What snapshots and volumes require of each other is in snapshot_rules.py, lists are in
snapshot_queries.py.
"""

from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa

from attachd import exception
from attachd.db import models, quotas
from attachd.db.cluster import volume_leases
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.row_types import RecoverableSnapshotRow, SnapshotRow, SnapshotWithVolumeRow
from attachd.db.secrets import encryption
from attachd.db.volumes import metadata_pairs, snapshot_rules, volume_store
from attachd.states import Event, SnapshotState, VolumeState

_SNAPSHOTS = models.snapshots
_SNAPSHOT_METADATA = models.snapshot_metadata
_VOLUMES = models.volumes

TO_MANAGE: Final = "reference_to_manage"
"""The key in ``provider`` of the reference of an object, until it has become the snapshot."""

_REMOVALS: Final = frozenset({Event.DELETE, Event.DELETED, Event.UNMANAGE, Event.UNMANAGED})

WITH_VOLUME: Final[sa.Select[Any]] = sa.select(
    _SNAPSHOTS, _VOLUMES.c.host.label("volume_host"), _VOLUMES.c.availability_zone
).join(_VOLUMES, _VOLUMES.c.id == _SNAPSHOTS.c.volume_id)
"""Snapshots with columns of their volumes."""


@retried
def create(
    values: Mapping[str, Any],
    statuses: tuple[str, ...],
    first: session.Precondition | None = None,
) -> SnapshotWithVolumeRow:
    """Store a snapshot that the backend of its volume is still to take.

    :param values: columns, ``volume_id`` among them, and ``metadata``; of an object that becomes a
        snapshot also ``size_gib``, and :data:`TO_MANAGE` in ``provider``
    :param statuses: those of the volume in which it may be taken
    :param first: executed first in the transaction, for a request with an idempotency key
    :raises VolumeNotFound: the volume does not exist any more
    :raises InvalidVolume: its status does not allow it
    :raises QuotaExceeded: the project has not enough quota
    """
    new: Any = {
        **{column.name: None for column in _SNAPSHOTS.c},
        "id": models.new_id(),
        "created_at": models.now(),
        **{key: value for key, value in values.items() if key in _SNAPSHOTS.c},
        "state": SnapshotState.CREATING.value,
        "progress": 0,
        "provider": values.get("provider", {}),
        "lease_generation": 0,
    }
    metadata = dict(values.get("metadata") or {})
    with session.writer() as connection:
        if first is not None:
            first(connection)
        quotas.lock_project(connection, new["project_id"])
        volume = volume_store.lock(connection, new["volume_id"], new["project_id"])
        if volume["status"] not in statuses:
            raise invalid_status(volume["id"], statuses, volume["status"])
        new |= {
            "size_gib": values.get("size_gib", volume["size_gib"]),
            "volume_type_id": volume["volume_type_id"],
            "bootable": volume["bootable"],
            "owner": volume["backend_host"],
        }
        row: SnapshotRow = new
        claim = quotas.deltas_of_snapshot(volume["volume_type_id"], row["size_gib"])
        quotas.enforce(connection, row["project_id"], claim)
        connection.execute(sa.insert(_SNAPSHOTS).values(row))
        owner = {"snapshot_id": row["id"]}
        metadata_pairs.insert(connection, _SNAPSHOT_METADATA, owner, metadata)
        metadata_pairs.copy(
            connection,
            metadata_pairs.Pairs(models.volume_image_metadata.c.volume_id, volume["id"]),
            metadata_pairs.Pairs(models.snapshot_image_metadata.c.snapshot_id, row["id"]),
        )
    return {
        **row,
        "metadata": metadata,
        "volume_host": volume["host"],
        "availability_zone": volume["availability_zone"],
    }


def invalid_status(
    volume_id: str, statuses: tuple[str, ...], status: str
) -> exception.InvalidVolume:
    """Return the error for a volume of which no snapshot can be taken in its status."""
    return exception.InvalidVolume(
        reason=f"Volume {volume_id} status must be {' or '.join(statuses)} to take a snapshot of "
        f"it, but current status is: {status}."
    )


@retried
def get(snapshot_id: str, project_id: str | None) -> SnapshotWithVolumeRow:
    """Return one snapshot.

    :param project_id: only if it belongs to this project; None: of any project
    :raises SnapshotNotFound: there is none
    """
    statement = (
        WITH_VOLUME.add_columns(_SNAPSHOT_METADATA.c.key, _SNAPSHOT_METADATA.c.value)
        .outerjoin(_SNAPSHOT_METADATA, _SNAPSHOT_METADATA.c.snapshot_id == _SNAPSHOTS.c.id)
        .where(_SNAPSHOTS.c.id == snapshot_id)
    )
    if project_id is not None:
        statement = statement.where(_SNAPSHOTS.c.project_id == project_id)
    rows: Any = session.fetch_all(statement)
    if not rows:
        raise exception.SnapshotNotFound(snapshot_id=snapshot_id)
    pairs = [(row.pop("key"), row.pop("value")) for row in rows]
    found: SnapshotWithVolumeRow = rows[0]
    found["metadata"] = {key: value for key, value in pairs if key is not None}
    return found


@retried
def list_of_volume(volume_id: str) -> list[SnapshotRow]:
    """Return the snapshots of a volume, the latest one first."""
    statement = (
        sa.select(_SNAPSHOTS)
        .where(_SNAPSHOTS.c.volume_id == volume_id)
        .order_by(_SNAPSHOTS.c.created_at.desc(), _SNAPSHOTS.c.id.desc())
    )
    return session.fetch_all(statement, SnapshotRow)


@retried
def update(snapshot_id: str, values: Mapping[str, Any]) -> None:
    """Store columns that no transition depends on, such as ``name``.

    :raises SnapshotNotFound: there is none
    """
    assert not values.keys() & {"state", "owner"}, values
    changed = sa.update(_SNAPSHOTS).where(_SNAPSHOTS.c.id == snapshot_id).values(**values)
    if session.write(changed) != 1:
        raise exception.SnapshotNotFound(snapshot_id=snapshot_id)


@retried
def set_progress(snapshot_id: str, percent: int) -> None:
    """Store how much of a snapshot is copied, as long as it is created."""
    creating = sa.and_(
        _SNAPSHOTS.c.id == snapshot_id, _SNAPSHOTS.c.state == SnapshotState.CREATING.value
    )
    kept = {"updated_at": _SNAPSHOTS.c.updated_at}
    session.write(sa.update(_SNAPSHOTS).where(creating).values(progress=percent, **kept))


@retried
def transition(
    snapshot_id: str,
    event: Event,
    values: Mapping[str, Any] | None = None,
    lease: volume_leases.VolumeLeaseToken | None = None,
    project_id: str | None = None,
) -> SnapshotRow:
    """Take a snapshot through one transition of its own; those of a revert are its volume's.

    :param values: columns to store with the transition
    :param lease: of the work that ends with this transition; it has to be acquired
    :param project_id: that it belonged to when the request was allowed: it may have been
        transferred since; None: any
    :returns: the row after it; its last content if the transition removed it
    :raises SnapshotNotFound: it does not exist any more
    :raises InvalidTransition: it is in no state for this event
    :raises InvalidSnapshot: it cannot be removed while a volume is made of it
    :raises TakenOver: another process works on it by now
    """
    with session.writer() as connection:
        row = snapshot_rules.lock(connection, snapshot_id)
        if project_id not in {None, row["project_id"]}:
            raise exception.SnapshotNotFound(snapshot_id=snapshot_id)
        if lease is not None:
            assert lease.generation is not None, "the end of work that was never started"
            volume_leases.acquire(connection, _leased(row), lease)
        if event in _REMOVALS:
            snapshot_rules.check_no_pending_volume(connection, snapshot_id)
        bound = encryption.bind(values or {}, snapshot_id, encryption.SNAPSHOTS)
        snapshot_rules.move(connection, row, event, _find_owner(connection, row), **bound)
    return row


def _leased(row: SnapshotRow) -> volume_leases.LeaseRow:
    return {
        "id": row["id"],
        "lease_holder": row["lease_holder"],
        "lease_generation": row["lease_generation"],
    }


def _find_owner(connection: sa.Connection, row: SnapshotRow) -> str | None:
    statement = sa.select(_VOLUMES.c.backend_host).where(_VOLUMES.c.id == row["volume_id"])
    owner: str | None = connection.execute(statement).scalar_one()
    return owner


RESET_STATES: Final[Mapping[str, SnapshotState]] = {
    state.value: state
    for state in SnapshotState
    if state not in {SnapshotState.RESTORING, SnapshotState.UNMANAGING}
}
"""The statuses that an administrator may set."""


@retried
def reset(snapshot_id: str, status: str) -> SnapshotRow:
    """Set a snapshot's status by hand; no manager recovers work on it after that.

    :param status: one of RESET_STATES
    :raises SnapshotNotFound: there is none
    :raises InvalidTransition: it would be available while a manager works on it, its volume is
        being reverted to it, or its object was not managed
    """
    with session.writer() as connection:
        row = snapshot_rules.lock(connection, snapshot_id)
        if row["state"] == SnapshotState.RESTORING:
            raise exception.InvalidTransition(
                f"Snapshot {snapshot_id} cannot be reset while volume {row['volume_id']} is "
                "reverted to it: reset the volume."
            )
        if status == SnapshotState.AVAILABLE and TO_MANAGE in row["provider"]:
            raise exception.InvalidTransition(
                f"Snapshot {snapshot_id} cannot become available: its object was not managed. "
                "Unmanage or delete it, which keeps the object."
            )
        # In any other state, also after a former reset, a manager may take it or remove it.
        if row["state"] != SnapshotState.AVAILABLE and status == SnapshotState.AVAILABLE:
            volume_leases.check_not_held(
                connection, row, "become available again", kind="Snapshot"
            )
        values: Any = {"state": status, "owner": None, "updated_at": models.now()}
        if status == SnapshotState.AVAILABLE:
            values["error"] = None
        connection.execute(
            sa.update(_SNAPSHOTS).where(_SNAPSHOTS.c.id == snapshot_id).values(values)
        )
        row.update(values)
    return row


@retried
def list_recoverable(backend: str, holder: str) -> list[RecoverableSnapshotRow]:
    """Return the snapshots that a manager of ``host@backend`` has work to do on, oldest first.

    Those that are deleted with their volume belong to the work on the volume.

    :param holder: the process that is going to do it; those on which another living process works
        are left out
    """
    is_deleted_with_volume = sa.and_(
        _SNAPSHOTS.c.state == SnapshotState.DELETING.value,
        _VOLUMES.c.state == VolumeState.DELETING.value,
        _VOLUMES.c.owner.is_not(None),
    )
    statement = (
        sa.select(_SNAPSHOTS, volume_leases.is_orphaned(holder, _SNAPSHOTS).label("orphaned"))
        .join(_VOLUMES, _VOLUMES.c.id == _SNAPSHOTS.c.volume_id)
        .where(
            _SNAPSHOTS.c.owner == backend,
            _SNAPSHOTS.c.state.in_(snapshot_rules.OWNED),
            sa.not_(is_deleted_with_volume),
            volume_leases.is_free(holder, _SNAPSHOTS),
        )
        .order_by(_SNAPSHOTS.c.created_at, _SNAPSHOTS.c.id)
    )
    return session.fetch_all(statement, RecoverableSnapshotRow)
