# SPDX-License-Identifier: Apache-2.0
"""The default_volume_types table: the type of volumes that name none, by project."""

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.row_types import DefaultTypeRow, VolumeTypeRow

_DEFAULT_VOLUME_TYPES = models.default_volume_types
_VOLUME_TYPES = models.volume_types


@retried
def list_all() -> list[DefaultTypeRow]:
    """Return all rows, sorted by project."""
    return session.fetch_all(
        sa.select(_DEFAULT_VOLUME_TYPES).order_by(_DEFAULT_VOLUME_TYPES.c.project_id),
        DefaultTypeRow,
    )


@retried
def get(project_id: str) -> DefaultTypeRow:
    """Return a project's row.

    :raises DefaultTypeNotFound: it has none
    """
    row = session.fetch_one(
        sa.select(_DEFAULT_VOLUME_TYPES).where(_DEFAULT_VOLUME_TYPES.c.project_id == project_id),
        DefaultTypeRow,
    )
    if row is None:
        raise exception.DefaultTypeNotFound(project_id=project_id)
    return row


@retried
def get_type(project_id: str | None) -> VolumeTypeRow | None:
    """Return the volume type that is a project's default; None if it has none of its own."""
    statement = (
        sa.select(_VOLUME_TYPES)
        .join(_DEFAULT_VOLUME_TYPES, _DEFAULT_VOLUME_TYPES.c.volume_type_id == _VOLUME_TYPES.c.id)
        .where(_DEFAULT_VOLUME_TYPES.c.project_id == project_id)
    )
    return session.fetch_one(statement, VolumeTypeRow)


@retried
def set_default(project_id: str, type_id: str) -> None:
    """Make a type a project's default.

    :raises VolumeTypeNotFound: there is no such type
    """
    try:
        if not _update(project_id, type_id):
            row = {"project_id": project_id, "volume_type_id": type_id}
            session.write(sa.insert(_DEFAULT_VOLUME_TYPES).values(row))
    except db_exception.DBDuplicateEntry:
        # Another request was first.
        _update(project_id, type_id)
    except db_exception.DBReferenceError as error:
        raise exception.VolumeTypeNotFound(volume_type_id=type_id) from error


def _update(project_id: str, type_id: str) -> bool:
    condition = _DEFAULT_VOLUME_TYPES.c.project_id == project_id
    change = sa.update(_DEFAULT_VOLUME_TYPES).where(condition).values(volume_type_id=type_id)
    return session.write(change) == 1


@retried
def delete(project_id: str) -> None:
    """Remove a project's default type, if it has one."""
    session.write(
        sa.delete(_DEFAULT_VOLUME_TYPES).where(_DEFAULT_VOLUME_TYPES.c.project_id == project_id)
    )
