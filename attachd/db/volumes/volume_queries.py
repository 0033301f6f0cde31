# SPDX-License-Identifier: Apache-2.0
"""Lists of volumes and sums over them.

A page of any size is two statements; with the attachments of its volumes
(attachment_queries.list_of_volumes) it is three.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import datetime
from typing import Final, NamedTuple, TypedDict

import sqlalchemy as sa

from attachd.db import models
from attachd.db.engine import paging, session
from attachd.db.engine.retry import retried
from attachd.db.row_types import ListedVolumeRow, VolumeRow, VolumeWithMetadataRow
from attachd.db.volumes.volume_store import WITH_TYPE
from attachd.states import VolumeState

_VOLUMES = models.volumes
_VOLUME_METADATA = models.volume_metadata
_VOLUME_IMAGE_METADATA = models.volume_image_metadata


class Filters(TypedDict, total=False):
    """Filters of a list; an absent key filters nothing.

    :ivar metadata: pairs that all have to exist
    :ivar image_metadata: the same, of the image on the volume
    :ivar like: columns, of SEARCHABLE, and a text that they contain
    :ivar times: comparisons that all have to hold
    """

    id: str
    project_id: str
    user_id: str
    name: str | None
    status: str
    attach_status: str
    host: str
    availability_zone: str
    volume_type_id: str | None
    bootable: bool
    multiattach: bool
    size_gib: int
    metadata: Mapping[str, str]
    image_metadata: Mapping[str, str]
    like: Mapping[str, str]
    times: Sequence[paging.Comparison]


SEARCHABLE = frozenset({"name", "description", "status", "host", "availability_zone"})
SORTABLE = frozenset(
    {
        "id",
        "name",
        "status",
        "attach_status",
        "size_gib",
        "host",
        "availability_zone",
        "bootable",
        "created_at",
        "updated_at",
        "launched_at",
        "user_id",
        "project_id",
        "volume_type_id",
    }
)
_SELECTIVE = frozenset(
    {"id", "user_id", "name", "host", "volume_type_id", "metadata", "image_metadata"}
)
_EQUAL = tuple(Filters.__annotations__.keys() - {"metadata", "image_metadata", "like", "times"})


class Usage(NamedTuple):
    """Number and total size of volumes."""

    volumes: int
    gib: int


@retried
def page(filters: Filters, page: paging.Page) -> list[ListedVolumeRow]:
    """Return one page of volumes.

    :raises MarkerNotFound: there is no such item
    :raises BadRequest: it would examine too many rows
    """
    visible = paging.equal(_VOLUMES, filters, ("project_id",))
    statement = WITH_TYPE.where(*_conditions(filters))
    index = paging.order_index(_VOLUMES, filters, page, _SELECTIVE)
    with session.reader() as connection:
        paging.check_examined(
            connection, _VOLUMES, _bounding(filters), page, is_search="like" in filters
        )
        rows = paging.fetch_page(
            connection, statement, _VOLUMES, visible, page, VolumeWithMetadataRow, index
        )
        pairs = _pairs(connection, [row["id"] for row in rows])
    return [
        {
            **row,
            "metadata": pairs[row["id"]]["metadata"],
            "image_metadata": pairs[row["id"]]["image_metadata"],
        }
        for row in rows
    ]


@retried
def count(filters: Filters) -> int:
    """Return the number of volumes on all pages; raises BadRequest if they are too many."""
    statement = sa.select(sa.func.count()).select_from(_VOLUMES).where(*_conditions(filters))
    with session.reader() as connection:
        paging.check_examined(connection, _VOLUMES, _bounding(filters))
        return int(connection.execute(statement).scalar_one())


@retried
def usage(filters: Filters) -> Usage:
    """Return number and total size of volumes."""
    total = sa.func.coalesce(sa.func.sum(_VOLUMES.c.size_gib), 0)
    statement = (
        sa.select(sa.func.count(), total).select_from(_VOLUMES).where(*_conditions(filters))
    )
    with session.reader() as connection:
        row = connection.execute(statement).one()
    return Usage(int(row[0]), int(row[1]))


@retried
def list_names(volume_ids: Iterable[str]) -> dict[str, str | None]:
    """Return the names of those of some volumes that exist, by their ids; None: without a name."""
    statement = sa.select(_VOLUMES.c.id, _VOLUMES.c.name).where(_VOLUMES.c.id.in_({*volume_ids}))
    return {row["id"]: row["name"] for row in session.fetch_all(statement, VolumeRow)}


PAGE: Final = 1000
"""Volumes of one page of list_ids()."""


@retried
def list_ids(backend: str, after: str = "") -> list[str]:
    """Return a page of the ids of the volumes of ``host@backend``, in their order.

    :param after: the last id of the page before
    """
    statement = (
        sa.select(_VOLUMES.c.id)
        .where(models.on_backend(backend), _VOLUMES.c.id > after)
        .order_by(_VOLUMES.c.id)
        .limit(PAGE)
    )
    with session.reader() as connection:
        return [*connection.scalars(statement)]


def page_ids(backend: str) -> Iterator[list[str]]:
    """Yield the ids of the volumes of ``host@backend`` in pages."""
    ids = list_ids(backend)
    while ids:
        yield ids
        ids = list_ids(backend, ids[-1]) if len(ids) == PAGE else []


@retried
def allocated(backend: str) -> dict[str, int]:
    """Return the GiB of the volumes of ``host@backend`` by ``host@backend#pool``.

    Without those that are being created: see :func:`allocated_since`.
    """
    statement = (
        sa.select(_VOLUMES.c.host, sa.func.sum(_VOLUMES.c.size_gib))
        .where(models.on_backend(backend), _VOLUMES.c.status != VolumeState.CREATING)
        .group_by(_VOLUMES.c.host)
    )
    with session.reader() as connection:
        return {host: int(gib) for host, gib in connection.execute(statement)}


@retried
def allocated_since(reports: Mapping[str, datetime.datetime]) -> dict[str, int]:
    """Return the GiB of volumes that backends may not have counted in their last reports.

    :param reports: when each ``host@backend`` reported last
    :returns: GiB by ``host@backend#pool``, of pools with such volumes
    """
    promised: dict[str, int] = {}
    uncounted = [
        sa.and_(
            models.on_backend(backend),
            sa.or_(_VOLUMES.c.created_at >= seen, _VOLUMES.c.status == VolumeState.CREATING),
        )
        for backend, seen in reports.items()
    ]
    if uncounted:
        # This follows from the other conditions, in a form for which every database uses its
        # indexes.
        recent = _VOLUMES.c.created_at >= min(reports.values())
        statement = (
            sa.select(_VOLUMES.c.host, sa.func.sum(_VOLUMES.c.size_gib))
            .where(sa.or_(recent, _VOLUMES.c.status == VolumeState.CREATING), sa.or_(*uncounted))
            .group_by(_VOLUMES.c.host)
        )
        with session.reader() as connection:
            for host, gib in connection.execute(statement):
                promised[host] = int(gib)
    return promised


@retried
def list_metadata_values(filters: Filters) -> dict[str, list[str]]:
    """Return each key of the volumes' metadata with its different values, sorted."""
    statement = (
        sa.select(_VOLUME_METADATA.c.key, _VOLUME_METADATA.c.value)
        .distinct()
        .join(_VOLUMES, _VOLUMES.c.id == _VOLUME_METADATA.c.volume_id)
        .where(*_conditions(filters))
        .order_by(_VOLUME_METADATA.c.key, _VOLUME_METADATA.c.value)
    )
    values: dict[str, list[str]] = {}
    with session.reader() as connection:
        for key, value in connection.execute(statement):
            values.setdefault(key, []).append(value)
    return values


def _pairs(
    connection: sa.Connection, volume_ids: Sequence[str]
) -> dict[str, dict[str, dict[str, str]]]:
    """Return ``metadata`` and ``image_metadata`` of volumes, in one statement."""
    pairs: dict[str, dict[str, dict[str, str]]] = {
        volume_id: {"metadata": {}, "image_metadata": {}} for volume_id in volume_ids
    }
    kinds = (("metadata", _VOLUME_METADATA), ("image_metadata", _VOLUME_IMAGE_METADATA))
    selects = [
        sa.select(sa.literal_column(f"'{kind}'").label("kind"), *table.c).where(
            table.c.volume_id.in_(volume_ids)
        )
        for kind, table in kinds
    ]
    if volume_ids:
        for kind, volume_id, key, value in connection.execute(sa.union_all(*selects)):
            pairs[volume_id][kind][key] = value
    return pairs


def _bounding(filters: Filters) -> list[paging.Condition]:
    """Return the conditions on columns of the table that have an index."""
    return paging.equal(_VOLUMES, filters, {"project_id", *_SELECTIVE} & set(_EQUAL))


def _conditions(filters: Filters) -> list[paging.Condition]:
    conditions = paging.equal(_VOLUMES, filters, _EQUAL)
    conditions += [
        _has_pair(_VOLUME_METADATA, *pair) for pair in filters.get("metadata", {}).items()
    ]
    conditions += [
        _has_pair(_VOLUME_IMAGE_METADATA, *pair)
        for pair in filters.get("image_metadata", {}).items()
    ]
    conditions += paging.compare(_VOLUMES, filters.get("times", ()))
    return conditions + paging.like(_VOLUMES, filters.get("like", {}), SEARCHABLE)


def _has_pair(table: sa.Table, key: str, value: str) -> paging.Condition:
    of_volume = table.c.volume_id == _VOLUMES.c.id
    return (
        sa.select(table.c.volume_id)
        .where(of_volume, table.c.key == key, table.c.value == value)
        .exists()
    )
