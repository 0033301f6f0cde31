# SPDX-License-Identifier: Apache-2.0
"""Lists of volumes and sums over them; read by the API.

A page is two statements, whatever its size; with the attachments of its volumes
(attachment_queries.brief_of_volumes) it is three.
"""

from collections.abc import Mapping, Sequence
import datetime
import operator
from typing import Any, NamedTuple, TypedDict

import sqlalchemy as sa

from attachd.db import api, models, paging, volumes
from attachd.states import VolumeState

Row = dict[str, Any]
_V = models.volumes
_M = models.volume_metadata


class Comparison(NamedTuple):
    """A column that is compared with a moment: ``verb`` is one of gt, gte, eq, neq, lt, lte."""

    column: str
    verb: str
    moment: datetime.datetime


class Filters(TypedDict, total=False):
    """Which volumes are wanted; a key that is absent filters nothing.

    :ivar metadata: pairs which all have to be there
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
    like: Mapping[str, str]
    times: Sequence[Comparison]


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
_EQUAL = tuple(Filters.__annotations__.keys() - {"metadata", "like", "times"})
_VERBS = {
    "gt": operator.gt,
    "gte": operator.ge,
    "eq": operator.eq,
    "neq": operator.ne,
    "lt": operator.lt,
    "lte": operator.le,
}


class Usage(NamedTuple):
    """How much there is."""

    volumes: int
    gib: int


@api.retried
def page(filters: Filters, page: paging.Page) -> list[Row]:
    """Return one page of volumes.

    :returns: rows as of volumes.get()
    :raises BadRequest: there is no such marker
    """
    visible = paging.equal(_V, filters, ("project_id",))
    statement = volumes.with_type().where(*_conditions(filters))
    with api.reader() as connection:
        rows = paging.rows(connection, statement, _V, visible, page)
        metadata = _metadata(connection, [row["id"] for row in rows])
    return [{**row, "metadata": metadata.get(row["id"], {})} for row in rows]


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


def _metadata(connection: sa.Connection, volume_ids: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    if volume_ids:
        statement = sa.select(_M).where(_M.c.volume_id.in_(volume_ids))
        for row in connection.execute(statement):
            found.setdefault(row.volume_id, {})[row.key] = row.value
    return found


def _conditions(filters: Filters) -> list[paging.Condition]:
    conditions = paging.equal(_V, filters, _EQUAL)
    for key, value in filters.get("metadata", {}).items():
        pair = sa.select(_M.c.volume_id).where(
            _M.c.volume_id == _V.c.id, _M.c.key == key, _M.c.value == value
        )
        conditions.append(pair.exists())
    for column, verb, moment in filters.get("times", ()):
        conditions.append(_VERBS[verb](_V.c[column], moment))
    return conditions + paging.like(_V, filters.get("like", {}), SEARCHABLE)
