# SPDX-License-Identifier: Apache-2.0
"""Leases: the exclusive right of one manager process to work on a volume, or on a snapshot.

A lease is two columns of their row. Work acquires it in the transaction of its first
transition and releases it in that of its last one, so that neither costs a transaction of its own.
Its holder is a process, which keeps its own threads apart (manager/ownership/volume_lease.py); a
holder that is not in the members table is dead, and other processes may take its leases over. Each
time a lease is acquired its generation is raised: earlier holders cannot write any more.
"""

from collections.abc import Mapping
import dataclasses
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypedDict

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.compiled import CompiledStatement
from attachd.db.engine.retry import retried
from attachd.db.row_types import SnapshotRow, VolumeStateRow

_VOLUMES = models.volumes
_MEMBERS = models.members

COLUMNS = (_VOLUMES.c.lease_holder, _VOLUMES.c.lease_generation)
"""The columns that a row needs for the functions here."""

_LIVING_HOLDER = sa.select(_MEMBERS.c.name).where(_MEMBERS.c.id == sa.bindparam("match_id"))


class _Statements(NamedTuple):
    """The statements of one table."""

    lock: sa.Select[Any]
    store: sa.Update
    release: sa.Update


def _statements(table: sa.Table) -> _Statements:
    of_row = table.c.id == sa.bindparam("match_id")
    # updated_at is shown to users, and a lease is no change of theirs.
    kept = {"updated_at": table.c.updated_at}
    columns = (table.c.id, table.c.lease_holder, table.c.lease_generation)
    return _Statements(
        sa.select(*columns).where(of_row).with_for_update(),
        sa.update(table).where(of_row).values(kept),
        sa.update(table)
        .where(of_row, table.c.lease_holder == sa.bindparam("match_holder"))
        .values(lease_holder=None, **kept),
    )


VOLUME: Final = "Volume"
VOLUMES: Final = _VOLUMES.name
SNAPSHOTS: Final = models.snapshots.name
"""The tables whose rows have leases."""

_STATEMENTS: Final[Mapping[str, _Statements]] = MappingProxyType(
    {table.name: _statements(table) for table in (_VOLUMES, models.snapshots)}
)
_RELEASE_OWN = CompiledStatement(
    _STATEMENTS[VOLUMES].release.where(
        _VOLUMES.c.lease_generation == sa.bindparam("match_generation")
    )
)


class VolumeLeaseHeld(Exception):
    """Another living process works on the volume.

    :ivar holder: its name
    """

    def __init__(self, holder: str) -> None:
        self.holder = holder
        super().__init__(holder)


@dataclasses.dataclass
class VolumeLeaseToken:
    """The lease that one thread has, or needs, for its work.

    :ivar volume_id: of the volume, or of the snapshot
    :ivar holder: the id of its process
    :ivar generation: the fencing token, while it is held; None: it is not
    :ivar table: which has the row
    """

    volume_id: str
    holder: str
    generation: int | None = None
    table: str = VOLUMES

    @property
    def kind(self) -> str:
        """What has the lease, in messages."""
        return "volume" if self.table == VOLUMES else "snapshot"


class LeaseRow(TypedDict):
    """The lease of a volume."""

    id: str
    lease_holder: str | None
    lease_generation: int


def acquire(
    connection: sa.Connection, volume: LeaseRow, volume_lease: VolumeLeaseToken
) -> dict[str, Any]:
    """Check or acquire a lease, in a transaction that has locked the volume's row.

    :returns: values to store with the volume: the lease, where it was not held before. It is held
        once the transaction is committed: see :func:`confirm`
    :raises VolumeLeaseHeld: another process holds it
    :raises TakenOver: it was held, and another process has taken it over
    """
    now = (volume["lease_holder"], volume["lease_generation"])
    if volume_lease.generation is not None:
        if now != (volume_lease.holder, volume_lease.generation):
            raise exception.TakenOver(kind=volume_lease.kind, id=volume_lease.volume_id)
        return {}
    if now[0] not in {None, volume_lease.holder}:
        living = connection.execute(_LIVING_HOLDER, {"match_id": now[0]}).scalar()
        if living is not None:
            raise VolumeLeaseHeld(living)
    return {"lease_holder": volume_lease.holder, "lease_generation": now[1] + 1}


def confirm(
    volume_lease: VolumeLeaseToken, stored: Mapping[str, Any], *, ended: bool = False
) -> None:
    """Record that the transaction was committed that stored the values of :func:`acquire`.

    :param ended: the transaction has released the lease, too
    """
    if stored:
        volume_lease.generation = stored["lease_generation"]
    if ended:
        volume_lease.generation = None


@retried
def acquire_committed(volume_lease: VolumeLeaseToken) -> None:
    """Acquire a lease in a transaction of its own.

    :raises NotFound: there is no such volume or snapshot
    :raises VolumeLeaseHeld: another process holds it
    """
    statements = _STATEMENTS[volume_lease.table]
    with session.writer() as connection:
        values = acquire(connection, _lock(connection, volume_lease), volume_lease)
        connection.execute(statements.store, {"match_id": volume_lease.volume_id, **values})
    confirm(volume_lease, values)


@retried
def is_held(volume_lease: VolumeLeaseToken) -> bool:
    """Return whether a lease is still held, after all transactions in progress.

    A transaction whose connection broke at its COMMIT may still be in progress: this waits for it.

    :raises NotFound: the volume or snapshot does not exist any more
    """
    with session.writer() as connection:
        row = _lock(connection, volume_lease)
    return bool(
        (row["lease_holder"], row["lease_generation"])
        == (volume_lease.holder, volume_lease.generation)
    )


def _lock(connection: sa.Connection, volume_lease: VolumeLeaseToken) -> LeaseRow:
    lock = _STATEMENTS[volume_lease.table].lock
    row = connection.execute(lock, {"match_id": volume_lease.volume_id}).one_or_none()
    if row is None and volume_lease.table == SNAPSHOTS:
        raise exception.SnapshotNotFound(snapshot_id=volume_lease.volume_id)
    if row is None:
        raise exception.VolumeNotFound(volume_id=volume_lease.volume_id)
    return {
        "id": row.id,
        "lease_holder": row.lease_holder,
        "lease_generation": row.lease_generation,
    }


def check_not_held(
    connection: sa.Connection, volume: VolumeStateRow | SnapshotRow, event: str, kind: str = VOLUME
) -> None:
    """Check that no living process works on a volume, before a caller without the lease changes
    it.

    :param volume: its row, or that of a snapshot, locked
    :param event: what the caller reports, as in "cannot ..."
    :raises InvalidTransition: a process works on it
    """
    holder = volume["lease_holder"]
    if holder and (name := connection.execute(_LIVING_HOLDER, {"match_id": holder}).scalar()):
        raise exception.InvalidTransition(
            f"{kind} {volume['id']} is {volume['state']} and cannot {event}: manager {name} is "
            "working on it. Wait until it has ended."
        )


def release_with_result(connection: sa.Connection, volume_lease: VolumeLeaseToken) -> None:
    """Release a lease in a transaction that stores the outcome of the work.

    That locks the volume's row, so it has to precede any statement about its attachments.

    :raises TakenOver: another process holds the lease by now, and no outcome may be stored
    """
    params = {
        "match_id": volume_lease.volume_id,
        "match_holder": volume_lease.holder,
        "match_generation": volume_lease.generation,
    }
    if _RELEASE_OWN.execute(connection, params) != 1:
        raise exception.TakenOver(kind=volume_lease.kind, id=volume_lease.volume_id)


@retried
def release(volume_lease: VolumeLeaseToken) -> None:
    """Release the lease of this process on a row, in a transaction of its own.

    Its other threads do not hold it at that time. The lease of another process is not changed.
    """
    with session.writer() as connection:
        connection.execute(
            _STATEMENTS[volume_lease.table].release,
            {"match_id": volume_lease.volume_id, "match_holder": volume_lease.holder},
        )
    volume_lease.generation = None


def is_free(holder: str, table: sa.Table = _VOLUMES) -> sa.ColumnElement[bool]:
    """Match volumes, or snapshots, that no other living process works on."""
    known = table.c.lease_holder
    return sa.or_(known.is_(None), known == holder, has_dead_holder(table))


@retried
def list_orphaned(backend: str, holder: str) -> list[str]:
    """Return the volumes of ``host@backend`` whose lease this process or a dead one holds."""
    statement = sa.select(_VOLUMES.c.id).where(
        models.on_backend(backend), sa.or_(_VOLUMES.c.lease_holder == holder, has_dead_holder())
    )
    return _list_ids(statement)


@retried
def list_orphaned_snapshots(backend: str, holder: str) -> list[str]:
    """Return the snapshots of ``host@backend`` whose lease this process or a dead one holds."""
    table = models.snapshots
    held = sa.or_(table.c.lease_holder == holder, has_dead_holder(table))
    of_backend = table.join(_VOLUMES, _VOLUMES.c.id == table.c.volume_id)
    statement = sa.select(table.c.id).select_from(of_backend)
    return _list_ids(statement.where(models.on_backend(backend), held))


def _list_ids(statement: sa.Select[Any]) -> list[str]:
    with session.reader() as connection:
        return [str(row[0]) for row in connection.execute(statement)]


def is_orphaned(holder: str, table: sa.Table = _VOLUMES) -> sa.ColumnElement[bool]:
    """Match volumes, or snapshots, that a dead process other than the given one worked on."""
    return sa.and_(has_dead_holder(table), table.c.lease_holder != holder)


def has_dead_holder(table: sa.Table = _VOLUMES) -> sa.ColumnElement[bool]:
    """Match volumes, or snapshots, whose lease a dead process holds."""
    return sa.and_(
        table.c.lease_holder.is_not(None),
        table.c.lease_holder.not_in(sa.select(_MEMBERS.c.id)),
    )
