# SPDX-License-Identifier: Apache-2.0
"""Lists of snapshots.  A page of any size is two statements."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

import sqlalchemy as sa

from attachd.db import models
from attachd.db.engine import paging, session
from attachd.db.engine.retry import retried
from attachd.db.row_types import SnapshotWithVolumeRow
from attachd.db.volumes.snapshot_store import WITH_VOLUME

_SNAPSHOTS = models.snapshots
_METADATA = models.snapshot_metadata
_VOLUMES = models.volumes


class Filters(TypedDict, total=False):
    """Filters of a list; an absent key filters nothing.

    :ivar availability_zone: of the volume; so is ``host``
    :ivar metadata: pairs that all have to exist
    :ivar like: columns, of SEARCHABLE, and a text that they contain
    """

    id: str
    project_id: str
    user_id: str
    volume_id: str
    name: str | None
    state: str
    availability_zone: str
    host: str
    metadata: Mapping[str, str]
    like: Mapping[str, str]


SEARCHABLE = frozenset({"name", "description", "state", "volume_id"})
SORTABLE = frozenset(
    {
        *("id", "name", "state", "volume_id", "size_gib", "created_at", "updated_at", "user_id"),
        "project_id",
    }
)
_SELECTIVE = frozenset({"id", "user_id", "volume_id", "name", "metadata"})
_OF_VOLUME = ("availability_zone", "host")
_EQUAL = tuple(Filters.__annotations__.keys() - {"metadata", "like", *_OF_VOLUME})


@retried
def page(filters: Filters, page: paging.Page) -> list[SnapshotWithVolumeRow]:
    """Return one page of snapshots.

    :raises MarkerNotFound: there is no such item
    :raises BadRequest: it would examine too many rows
    """
    visible = paging.equal(_SNAPSHOTS, filters, ("project_id",))
    statement = WITH_VOLUME.where(*_conditions(filters))
    index = paging.order_index(_SNAPSHOTS, filters, page, _SELECTIVE)
    with session.reader() as connection:
        is_search = bool({"like", *_OF_VOLUME} & filters.keys())
        paging.check_examined(
            connection, _SNAPSHOTS, _bounding(filters), page, is_search=is_search
        )
        rows = paging.fetch_page(
            connection, statement, _SNAPSHOTS, visible, page, SnapshotWithVolumeRow, index
        )
        pairs = _pairs(connection, [row["id"] for row in rows])
    return [{**row, "metadata": pairs[row["id"]]} for row in rows]


@retried
def count(filters: Filters) -> int:
    """Return the number of snapshots on all pages; raises BadRequest if they are too many."""
    joined = _SNAPSHOTS.join(_VOLUMES, _VOLUMES.c.id == _SNAPSHOTS.c.volume_id)
    statement = sa.select(sa.func.count()).select_from(joined).where(*_conditions(filters))
    with session.reader() as connection:
        paging.check_examined(connection, _SNAPSHOTS, _bounding(filters))
        return int(connection.execute(statement).scalar_one())


def _pairs(connection: sa.Connection, snapshot_ids: Sequence[str]) -> dict[str, dict[str, str]]:
    pairs: dict[str, dict[str, str]] = {snapshot_id: {} for snapshot_id in snapshot_ids}
    if snapshot_ids:
        statement = sa.select(_METADATA).where(_METADATA.c.snapshot_id.in_(snapshot_ids))
        for row in connection.execute(statement):
            pairs[row.snapshot_id][row.key] = row.value
    return pairs


def _bounding(filters: Filters) -> list[paging.Condition]:
    """Return the conditions on columns of the table that have an index."""
    return paging.equal(_SNAPSHOTS, filters, {"project_id", *_SELECTIVE} & set(_EQUAL))


def _conditions(filters: Filters) -> list[paging.Condition]:
    conditions = paging.equal(_SNAPSHOTS, filters, _EQUAL)
    conditions += paging.equal(_VOLUMES, filters, _OF_VOLUME)
    conditions += [_has_pair(*pair) for pair in filters.get("metadata", {}).items()]
    return conditions + paging.like(_SNAPSHOTS, filters.get("like", {}), SEARCHABLE)


def _has_pair(key: str, value: str) -> paging.Condition:
    of_snapshot = _METADATA.c.snapshot_id == _SNAPSHOTS.c.id
    return (
        sa.select(_METADATA.c.snapshot_id)
        .where(of_snapshot, _METADATA.c.key == key, _METADATA.c.value == value)
        .exists()
    )
