# SPDX-License-Identifier: Apache-2.0
"""Lists of volumes and sums over them; read by the API.

A page is two statements, whatever its size; with the attachments of its volumes
(attachment_queries.brief_of_volumes) it is three.
"""

from collections.abc import Mapping, Sequence
import datetime
from typing import Any, NamedTuple, TypedDict

import sqlalchemy as sa

from attachd.db import api, models, paging
from attachd.db.volume_statements import WITH_TYPE
from attachd.states import VolumeState

Row = dict[str, Any]
_V = models.volumes
_M = models.volume_metadata
_I = models.volume_image_metadata


class Filters(TypedDict, total=False):
    """Which volumes are wanted; a key that is absent filters nothing.

    :ivar metadata: pairs which all have to be there
    :ivar image_metadata: the same, of the image that is on the volume
    :ivar like: columns, of SEARCHABLE, and a text that is somewhere in them
    :ivar times: comparisons which all have to hold
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
    """How much there is."""

    volumes: int
    gib: int


@api.retried
def page(filters: Filters, page: paging.Page) -> list[Row]:
    """Return one page of volumes.

    :returns: rows as of volumes.get(), with ``image_metadata``, a dict
    :raises MarkerNotFound: there is no such item
    """
    visible = paging.equal(_V, filters, ("project_id",))
    statement = WITH_TYPE.where(*_conditions(filters))
    index = paging.order_index(_V, filters, page, _SELECTIVE)
    with api.reader() as connection:
        rows = paging.rows(connection, statement, _V, visible, page, index)
        pairs = _pairs(connection, [row["id"] for row in rows])
    return [{**row, **pairs[row["id"]]} for row in rows]


@api.retried
def count(filters: Filters) -> int:
    """Return how many volumes there are on all pages together."""
    statement = sa.select(sa.func.count()).select_from(_V).where(*_conditions(filters))
    with api.reader() as connection:
        return int(connection.execute(statement).scalar_one())


@api.retried
def usage(filters: Filters) -> Usage:
    """Return number and total size of volumes."""
    total = sa.func.coalesce(sa.func.sum(_V.c.size_gib), 0)
    statement = sa.select(sa.func.count(), total).select_from(_V).where(*_conditions(filters))
    with api.reader() as connection:
        row = connection.execute(statement).one()
    return Usage(int(row[0]), int(row[1]))


@api.retried
def promised_since(reports: Mapping[str, datetime.datetime]) -> dict[str, int]:
    """Return the GiB of volumes that backends may not have counted in their last reports.

    :param reports: when each ``host@backend`` reported last
    :returns: GiB by ``host@backend``
    """
    promised = dict.fromkeys(reports, 0)
    uncounted = [
        sa.and_(
            models.served_by(backend),
            sa.or_(_V.c.created_at >= seen, _V.c.status == VolumeState.CREATING),
        )
        for backend, seen in reports.items()
    ]
    if uncounted:
        # This follows from the rest, in a form that lets every database use its indexes.
        recent = _V.c.created_at >= min(reports.values())
        statement = (
            sa.select(_V.c.host, sa.func.sum(_V.c.size_gib))
            .where(sa.or_(recent, _V.c.status == VolumeState.CREATING), sa.or_(*uncounted))
            .group_by(_V.c.host)
        )
        with api.reader() as connection:
            for host, gib in connection.execute(statement):
                promised[models.backend_of(host) or ""] += int(gib)
    return promised


@api.retried
def metadata_values(filters: Filters) -> dict[str, list[str]]:
    """Return each key of the volumes' metadata with its different values, sorted."""
    statement = (
        sa.select(_M.c.key, _M.c.value)
        .distinct()
        .join(_V, _V.c.id == _M.c.volume_id)
        .where(*_conditions(filters))
        .order_by(_M.c.key, _M.c.value)
    )
    found: dict[str, list[str]] = {}
    with api.reader() as connection:
        for key, value in connection.execute(statement):
            found.setdefault(key, []).append(value)
    return found


def _pairs(
    connection: sa.Connection, volume_ids: Sequence[str]
) -> dict[str, dict[str, dict[str, str]]]:
    """Return ``metadata`` and ``image_metadata`` of volumes, in one statement."""
    found: dict[str, dict[str, dict[str, str]]] = {
        each: {"metadata": {}, "image_metadata": {}} for each in volume_ids
    }
    kinds = (("metadata", _M), ("image_metadata", _I))
    selects = [
        sa.select(sa.literal_column(f"'{kind}'").label("kind"), *table.c).where(
            table.c.volume_id.in_(volume_ids)
        )
        for kind, table in kinds
    ]
    if volume_ids:
        for kind, volume_id, key, value in connection.execute(sa.union_all(*selects)):
            found[volume_id][kind][key] = value
    return found


def _conditions(filters: Filters) -> list[paging.Condition]:
    conditions = paging.equal(_V, filters, _EQUAL)
    conditions += [_has_pair(_M, *pair) for pair in filters.get("metadata", {}).items()]
    conditions += [_has_pair(_I, *pair) for pair in filters.get("image_metadata", {}).items()]
    conditions += paging.compared(_V, filters.get("times", ()))
    return conditions + paging.like(_V, filters.get("like", {}), SEARCHABLE)


def _has_pair(table: sa.Table, key: str, value: str) -> paging.Condition:
    mine = table.c.volume_id == _V.c.id
    return (
        sa.select(table.c.volume_id)
        .where(mine, table.c.key == key, table.c.value == value)
        .exists()
    )
