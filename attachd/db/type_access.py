# SPDX-License-Identifier: Apache-2.0
"""The volume_type_access table: which projects may use a private volume type; used by the API."""

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception
from attachd.db import api, models

_T = models.volume_type_access


@api.retried
def projects(type_id: str) -> list[str]:
    """Return the projects that have access to a type, sorted."""
    wanted = sa.select(_T.c.project_id).where(_T.c.volume_type_id == type_id)
    with api.reader() as connection:
        return list(connection.execute(wanted.order_by(_T.c.project_id)).scalars())


@api.retried
def add(type_id: str, project_id: str) -> None:
    """Give a project access to a type.

    :raises TypeAccessExists: it has it already
    :raises VolumeTypeNotFound: there is no such type
    """
    try:
        with api.writer() as connection:
            connection.execute(sa.insert(_T).values(volume_type_id=type_id, project_id=project_id))
    except db_exception.DBDuplicateEntry as error:
        raise exception.TypeAccessExists(volume_type_id=type_id, project_id=project_id) from error
    except db_exception.DBReferenceError as error:
        raise exception.VolumeTypeNotFound(volume_type_id=type_id) from error


@api.retried
def remove(type_id: str, project_id: str) -> None:
    """Take a project's access to a type away; its volumes of that type stay.

    :raises TypeAccessNotFound: it has none
    """
    mine = sa.and_(_T.c.volume_type_id == type_id, _T.c.project_id == project_id)
    with api.writer() as connection:
        done = connection.execute(sa.delete(_T).where(mine))
    if done.rowcount != 1:
        raise exception.TypeAccessNotFound(volume_type_id=type_id, project_id=project_id)
