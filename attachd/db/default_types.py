# SPDX-License-Identifier: Apache-2.0
"""The default_volume_types table: what a project's volumes are that name no type; for the API."""

from typing import Any

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception
from attachd.db import api, models

Row = dict[str, Any]
_T = models.default_volume_types
_TYPES = models.volume_types


@api.retried
def all_rows() -> list[Row]:
    """Return all rows, sorted by project."""
    with api.reader() as connection:
        found = connection.execute(sa.select(_T).order_by(_T.c.project_id))
        return [dict(row._mapping) for row in found]


@api.retried
def get(project_id: str) -> Row:
    """Return a project's row.

    :raises DefaultTypeNotFound: it has none
    """
    with api.reader() as connection:
        row = connection.execute(sa.select(_T).where(_T.c.project_id == project_id)).one_or_none()
    if row is None:
        raise exception.DefaultTypeNotFound(project_id=project_id)
    return dict(row._mapping)


@api.retried
def type_of(project_id: str | None) -> Row | None:
    """Return the volume type that is a project's default; None if it has none of its own."""
    wanted = (
        sa.select(_TYPES)
        .join(_T, _T.c.volume_type_id == _TYPES.c.id)
        .where(_T.c.project_id == project_id)
    )
    with api.reader() as connection:
        row = connection.execute(wanted).one_or_none()
    return None if row is None else dict(row._mapping)


@api.retried
def put(project_id: str, type_id: str) -> None:
    """Make a type a project's default.

    :raises VolumeTypeNotFound: there is no such type
    """
    try:
        if not _update(project_id, type_id):
            with api.writer() as connection:
                connection.execute(
                    sa.insert(_T).values(project_id=project_id, volume_type_id=type_id)
                )
    except db_exception.DBDuplicateEntry:
        # Somebody else was first by a moment.
        _update(project_id, type_id)
    except db_exception.DBReferenceError as error:
        raise exception.VolumeTypeNotFound(volume_type_id=type_id) from error


def _update(project_id: str, type_id: str) -> bool:
    mine = _T.c.project_id == project_id
    with api.writer() as connection:
        done = connection.execute(sa.update(_T).where(mine).values(volume_type_id=type_id))
        return done.rowcount == 1


@api.retried
def delete(project_id: str) -> None:
    """Let a project have no default type of its own, as it may have been before."""
    with api.writer() as connection:
        connection.execute(sa.delete(_T).where(_T.c.project_id == project_id))
