# SPDX-License-Identifier: Apache-2.0
"""The entries of image caches: volumes of an internal project; used by the managers.

An entry is a volume with the data of an image.  Its row is inserted by one manager alone, which
fills it.  A volume that is made of an entry has the entry for its source until it has the data;
as any source of a clone, the entry is not removed meanwhile.
"""

from collections.abc import Mapping
import enum
from typing import Any, Final, NamedTuple, TypedDict

import sqlalchemy as sa

from attachd import exception
from attachd.db import models, quotas
from attachd.db.cluster import volume_leases
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.volumes import volume_store
from attachd.states import VolumeState

PROJECT: Final = "attachd-internal"
"""The project of all entries: no user has it, and no quota counts it."""

_VOLUMES = models.volumes


class Outcome(enum.Enum):
    """What came of adding an entry."""

    ADDED = "added"
    EXISTS = "exists"
    FULL = "full"


class Entry(NamedTuple):
    """What an entry is for.

    :ivar id: of its volume, made of all that an entry depends on
    :ivar image_id: the image whose data it has
    :ivar version: of the image; stored as the description of the volume
    """

    id: str
    image_id: str
    version: str


class EntryRow(TypedDict):
    """An entry as it is stored.

    :ivar abandoned: it is created, and no living process works on it
    """

    id: str
    image_id: str
    description: str
    state: str
    abandoned: bool


@retried
def add(values: Mapping[str, Any], max_entries: int, max_gib: int) -> Outcome:
    """Store an entry that the caller fills, unless it exists or does not fit.

    :param values: columns of the volume, ``lease_holder`` among them: the process of the caller
    :param max_entries: how many the backend may have; 0: unlimited
    :param max_gib: how many GiB they may have; 0: unlimited
    """
    row = volume_store.new_row({**values, "project_id": PROJECT})
    counted = sa.select(sa.func.count(), sa.func.sum(_VOLUMES.c.size_gib)).where(
        models.on_backend(str(row["backend_host"])),
        _VOLUMES.c.project_id == PROJECT,
        _VOLUMES.c.state != VolumeState.DELETING.value,
    )
    with session.writer() as connection:
        quotas.lock_project(connection, PROJECT)
        same = sa.select(_VOLUMES.c.id).where(_VOLUMES.c.id == row["id"])
        if connection.execute(same).first() is not None:
            return Outcome.EXISTS
        entries, gib = connection.execute(counted).one()
        if 0 < max_entries <= entries or 0 < max_gib < int(gib or 0) + row["size_gib"]:
            return Outcome.FULL
        connection.execute(sa.insert(_VOLUMES).values(row))
    return Outcome.ADDED


@retried
def find(entry_id: str, holder: str) -> EntryRow | None:
    """Return an entry; None: there is none.

    :param holder: the process that asks
    """
    found = session.fetch_all(_select(holder).where(_VOLUMES.c.id == entry_id), EntryRow)
    return found[0] if found else None


@retried
def list_of_backend(backend: str, holder: str) -> list[EntryRow]:
    """Return the entries of ``host@backend``, the one that was used least recently first."""
    used_at = sa.func.coalesce(_VOLUMES.c.updated_at, _VOLUMES.c.created_at)
    statement = _select(holder).where(models.on_backend(backend))
    return session.fetch_all(statement.order_by(used_at, _VOLUMES.c.id), EntryRow)


def _select(holder: str) -> sa.Select[Any]:
    works_on_it = sa.and_(
        _VOLUMES.c.lease_holder.is_not(None),
        sa.or_(
            _VOLUMES.c.lease_holder == holder, sa.not_(volume_leases.has_dead_holder(_VOLUMES))
        ),
    )
    abandoned = sa.and_(_VOLUMES.c.state == VolumeState.CREATING.value, sa.not_(works_on_it))
    columns = (_VOLUMES.c.id, _VOLUMES.c.image_id, _VOLUMES.c.description, _VOLUMES.c.state)
    return sa.select(*columns, abandoned.label("abandoned")).where(
        _VOLUMES.c.project_id == PROJECT
    )


@retried
def use(entry: Entry, volume_id: str) -> bool:
    """Make an entry the source of a volume that is being created; False: it cannot be used.

    From then on the entry stays until the volume is created, and it counts as used now.
    """
    creating = sa.and_(_VOLUMES.c.id == volume_id, _VOLUMES.c.state == VolumeState.CREATING.value)
    keep = sa.update(_VOLUMES).where(creating)
    with session.writer() as connection:
        try:
            row = volume_store.lock(connection, entry.id, PROJECT)
        except exception.VolumeNotFound:
            return False
        if row["status"] != "available":
            return False
        if (row["image_id"], row["description"]) != (entry.image_id, entry.version):
            return False
        values = {"source_volid": entry.id, "updated_at": _VOLUMES.c.updated_at}
        if connection.execute(keep.values(values)).rowcount != 1:
            return False
        used = sa.update(_VOLUMES).where(_VOLUMES.c.id == entry.id)
        connection.execute(used.values(updated_at=models.now()))
    return True
