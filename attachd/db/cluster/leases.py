# SPDX-License-Identifier: Apache-2.0
"""The right to work on a volume: had by one manager process at a time, wherever it runs.

It is two columns of the volume's row.  A piece of work takes it in the transaction of its first
move and gives it back in that of its last one, so that neither costs a transaction of its own.
Its holder is a process, which keeps its threads apart by itself (manager/ha/volume_lock.py); a
holder that is not in the table of processes is dead, and what it held is anybody's.  Each time the
lease is taken its generation is raised: whoever had it before cannot write any more.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.compiled import CompiledStatement
from attachd.db.engine.retry import retried

Row = dict[str, Any]
_VOLUMES = models.volumes
_MEMBERS = models.members

COLUMNS = (_VOLUMES.c.lease_holder, _VOLUMES.c.lease_generation)
"""What a row has to have for the functions here."""

_KEEP_UPDATED_AT = {"updated_at": _VOLUMES.c.updated_at}
"""Users see when something of a volume was changed: a lease is nothing of it."""

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


class LeaseHeld(Exception):
    """Another process works on the volume, and lives.

    :ivar holder: its name
    """

    def __init__(self, holder: str) -> None:
        self.holder = holder
        super().__init__(holder)


@dataclasses.dataclass
class Lease:
    """What one thread has, or wants, for a piece of work.

    :ivar holder: the id of its process
    :ivar generation: the fencing token, once it is had; None: it is not, or not any more
    """

    volume_id: str
    holder: str
    generation: int | None = None


def acquire(connection: sa.Connection, volume: Mapping[str, Any], lease: Lease) -> Row:
    """Make sure that work may begin or go on, in a transaction that has locked the volume's row.

    :param volume: with the columns of the lease
    :returns: what is to be stored with the volume: the lease, where it was not had before.  It is
        had once the transaction is committed: see :func:`confirm`
    :raises Held: somebody else has it
    :raises TakenOver: it was had, and somebody else has it by now
    """
    now = (volume["lease_holder"], volume["lease_generation"])
    if lease.generation is not None:
        if now != (lease.holder, lease.generation):
            raise exception.TakenOver(volume_id=lease.volume_id)
        return {}
    if now[0] not in {None, lease.holder}:
        living = connection.execute(_LIVING_HOLDER, {"match_id": now[0]}).scalar()
        if living is not None:
            raise LeaseHeld(living)
    return {"lease_holder": lease.holder, "lease_generation": now[1] + 1}


def confirm(lease: Lease, stored: Mapping[str, Any], *, ended: bool = False) -> None:
    """Note that the transaction was committed which stored what :func:`acquire` returned.

    :param ended: it has given the lease back, too
    """
    if stored:
        lease.generation = stored["lease_generation"]
    if ended:
        lease.generation = None


@retried
def acquire_committed(lease: Lease) -> None:
    """Take a lease in a transaction of its own.

    :raises VolumeNotFound: there is no such volume
    :raises Held: somebody else has it
    """
    with session.writer() as connection:
        row = connection.execute(_LOCK, {"match_id": lease.volume_id}).one_or_none()
        if row is None:
            raise exception.VolumeNotFound(volume_id=lease.volume_id)
        values = acquire(connection, dict(row._mapping), lease)
        connection.execute(_STORE, {"match_id": lease.volume_id, **values})
    confirm(lease, values)


@retried
def is_held(lease: Lease) -> bool:
    """Tell whether a lease is still had, after whatever is being stored now has been stored.

    A transaction whose connection broke at its COMMIT may be under way yet: this waits for it.

    :raises VolumeNotFound: there is no such volume any more
    """
    with session.writer() as connection:
        row = connection.execute(_LOCK, {"match_id": lease.volume_id}).one_or_none()
    if row is None:
        raise exception.VolumeNotFound(volume_id=lease.volume_id)
    return bool((row.lease_holder, row.lease_generation) == (lease.holder, lease.generation))


def check_not_held(connection: sa.Connection, volume: Mapping[str, Any], event: str) -> None:
    """Keep those who have no lease from saying how work ended that a living process does.

    :param volume: its row, locked, with the columns of the lease and its state
    :param event: what is said to have happened, as in "cannot ..."
    :raises InvalidTransition: somebody is at it
    """
    holder = volume["lease_holder"]
    if holder and (name := connection.execute(_LIVING_HOLDER, {"match_id": holder}).scalar()):
        raise exception.InvalidTransition(
            f"Volume {volume['id']} is {volume['state']} and cannot {event}: manager {name} is "
            "working on it. Wait until it has ended."
        )


def release_with_result(connection: sa.Connection, lease: Lease) -> None:
    """Give a lease back in a transaction that writes down how the work ended.

    That takes the volume's row, so it has to come before anything about its attachments.

    :raises TakenOver: somebody else has it by now, and nothing may be written down
    """
    params = {
        "match_id": lease.volume_id,
        "match_holder": lease.holder,
        "match_generation": lease.generation,
    }
    if _RELEASE_OWN.execute(connection, params) != 1:
        raise exception.TakenOver(volume_id=lease.volume_id)


@retried
def release(lease: Lease) -> None:
    """Give back whatever this process has of a volume, in a transaction of its own.

    Its other threads have nothing of it at that time.  What another process has is left alone.
    """
    with session.writer() as connection:
        connection.execute(_RELEASE, {"match_id": lease.volume_id, "match_holder": lease.holder})
    lease.generation = None


def is_free(holder: str) -> sa.ColumnElement[bool]:
    """Match volumes that no other living process works on."""
    return sa.or_(
        _VOLUMES.c.lease_holder.is_(None), _VOLUMES.c.lease_holder == holder, has_dead_holder()
    )


@retried
def list_orphaned(backend: str, holder: str) -> list[str]:
    """Return the volumes of ``host@backend`` that a process or a dead one has, whatever for."""
    statement = sa.select(_VOLUMES.c.id).where(
        models.on_backend(backend), sa.or_(_VOLUMES.c.lease_holder == holder, has_dead_holder())
    )
    with session.reader() as connection:
        return [str(row[0]) for row in connection.execute(statement)]


def is_orphaned(holder: str) -> sa.ColumnElement[bool]:
    """Match volumes that a process was at that is dead, and is not the one which asks."""
    return sa.and_(has_dead_holder(), _VOLUMES.c.lease_holder != holder)


def has_dead_holder() -> sa.ColumnElement[bool]:
    """Match volumes whose lease a dead process has."""
    return sa.and_(
        _VOLUMES.c.lease_holder.is_not(None),
        _VOLUMES.c.lease_holder.not_in(sa.select(_MEMBERS.c.id)),
    )
