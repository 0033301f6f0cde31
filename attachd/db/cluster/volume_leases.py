# SPDX-License-Identifier: Apache-2.0
"""Leases: the exclusive right of one manager process to work on a volume.

A lease is two columns of the volume's row. Work acquires it in the transaction of its first
transition and releases it in that of its last one, so that neither costs a transaction of its own.
Its holder is a process, which keeps its own threads apart (manager/ownership/volume_lease.py); a
holder that is not in the members table is dead, and other processes may take its leases over. Each
time a lease is acquired its generation is raised: earlier holders cannot write any more.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any, TypedDict

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.compiled import CompiledStatement
from attachd.db.engine.retry import retried
from attachd.db.row_types import VolumeStateRow

_VOLUMES = models.volumes
_MEMBERS = models.members

COLUMNS = (_VOLUMES.c.lease_holder, _VOLUMES.c.lease_generation)
"""The columns that a row needs for the functions here."""

_KEEP_UPDATED_AT = {"updated_at": _VOLUMES.c.updated_at}
"""updated_at is shown to users, and a lease is no change of theirs."""

_LIVING_HOLDER = sa.select(_MEMBERS.c.name).where(_MEMBERS.c.id == sa.bindparam("match_id"))
_LOCK = (
    sa.select(_VOLUMES.c.id, *COLUMNS)
    .where(_VOLUMES.c.id == sa.bindparam("match_id"))
    .with_for_update()
)
_STORE = (
    sa.update(_VOLUMES).where(_VOLUMES.c.id == sa.bindparam("match_id")).values(_KEEP_UPDATED_AT)
)
_RELEASE = (
    sa.update(_VOLUMES)
    .where(
        _VOLUMES.c.id == sa.bindparam("match_id"),
        _VOLUMES.c.lease_holder == sa.bindparam("match_holder"),
    )
    .values(lease_holder=None, **_KEEP_UPDATED_AT)
)
_RELEASE_OWN = CompiledStatement(
    _RELEASE.where(_VOLUMES.c.lease_generation == sa.bindparam("match_generation"))
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

    :ivar holder: the id of its process
    :ivar generation: the fencing token, while it is held; None: it is not
    """

    volume_id: str
    holder: str
    generation: int | None = None


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
            raise exception.TakenOver(volume_id=volume_lease.volume_id)
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

    :raises VolumeNotFound: there is no such volume
    :raises VolumeLeaseHeld: another process holds it
    """
    with session.writer() as connection:
        values = acquire(connection, _lock(connection, volume_lease), volume_lease)
        connection.execute(_STORE, {"match_id": volume_lease.volume_id, **values})
    confirm(volume_lease, values)


@retried
def is_held(volume_lease: VolumeLeaseToken) -> bool:
    """Return whether a lease is still held, after all transactions in progress.

    A transaction whose connection broke at its COMMIT may still be in progress: this waits for it.

    :raises VolumeNotFound: the volume does not exist any more
    """
    with session.writer() as connection:
        row = _lock(connection, volume_lease)
    return bool(
        (row["lease_holder"], row["lease_generation"])
        == (volume_lease.holder, volume_lease.generation)
    )


def _lock(connection: sa.Connection, volume_lease: VolumeLeaseToken) -> LeaseRow:
    row = connection.execute(_LOCK, {"match_id": volume_lease.volume_id}).one_or_none()
    if row is None:
        raise exception.VolumeNotFound(volume_id=volume_lease.volume_id)
    return {
        "id": row.id,
        "lease_holder": row.lease_holder,
        "lease_generation": row.lease_generation,
    }


def check_not_held(connection: sa.Connection, volume: VolumeStateRow, event: str) -> None:
    """Check that no living process works on a volume, before a caller without the lease changes
    it.

    :param volume: its row, locked
    :param event: what the caller reports, as in "cannot ..."
    :raises InvalidTransition: a process works on it
    """
    holder = volume["lease_holder"]
    if holder and (name := connection.execute(_LIVING_HOLDER, {"match_id": holder}).scalar()):
        raise exception.InvalidTransition(
            f"Volume {volume['id']} is {volume['state']} and cannot {event}: manager {name} is "
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
        raise exception.TakenOver(volume_id=volume_lease.volume_id)


@retried
def release(volume_lease: VolumeLeaseToken) -> None:
    """Release the lease of this process on a volume, in a transaction of its own.

    Its other threads do not hold it at that time. The lease of another process is not changed.
    """
    with session.writer() as connection:
        connection.execute(
            _RELEASE, {"match_id": volume_lease.volume_id, "match_holder": volume_lease.holder}
        )
    volume_lease.generation = None


def is_free(holder: str) -> sa.ColumnElement[bool]:
    """Match volumes that no other living process works on."""
    return sa.or_(
        _VOLUMES.c.lease_holder.is_(None), _VOLUMES.c.lease_holder == holder, has_dead_holder()
    )


@retried
def list_orphaned(backend: str, holder: str) -> list[str]:
    """Return the volumes of ``host@backend`` whose lease this process or a dead one holds."""
    statement = sa.select(_VOLUMES.c.id).where(
        models.on_backend(backend), sa.or_(_VOLUMES.c.lease_holder == holder, has_dead_holder())
    )
    with session.reader() as connection:
        return [str(row[0]) for row in connection.execute(statement)]


def is_orphaned(holder: str) -> sa.ColumnElement[bool]:
    """Match volumes that a dead process other than the given one worked on."""
    return sa.and_(has_dead_holder(), _VOLUMES.c.lease_holder != holder)


def has_dead_holder() -> sa.ColumnElement[bool]:
    """Match volumes whose lease a dead process holds."""
    return sa.and_(
        _VOLUMES.c.lease_holder.is_not(None),
        _VOLUMES.c.lease_holder.not_in(sa.select(_MEMBERS.c.id)),
    )
