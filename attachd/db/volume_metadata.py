# SPDX-License-Identifier: Apache-2.0
"""The volume_metadata table: a volume's free key and value pairs; used by the API.

Each change is made under the lock of its volume, so that two of them follow each other.
"""

from collections.abc import Mapping

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception
from attachd.db import api, models

Pairs = dict[str, str]
_V = models.volumes
_M = models.volume_metadata


@api.retried
def merge(
    volume_id: str, pairs: Mapping[str, str], expected: Mapping[str, str] | None = None
) -> Pairs:
    """Set some pairs, keep the others, and return all.

    :param expected: only if these are the pairs so far
    :raises VolumeNotFound: there is no such volume
    :raises PreconditionFailed: it has other pairs than expected
    """
    with api.writer() as connection:
        before = _lock(connection, volume_id, expected)
        return _store(connection, volume_id, before, {**before, **pairs})


@api.retried
def replace(
    volume_id: str, pairs: Mapping[str, str], expected: Mapping[str, str] | None = None
) -> Pairs:
    """Set some pairs, remove the others, and return all; see :func:`merge`."""
    with api.writer() as connection:
        before = _lock(connection, volume_id, expected)
        return _store(connection, volume_id, before, dict(pairs))


@api.retried
def delete(volume_id: str, key: str) -> None:
    """Remove one pair.

    :raises NotFound: there is none, or no such volume
    """
    with api.writer() as connection:
        before = _lock(connection, volume_id)
        if key not in before:
            raise exception.NotFound(f"Volume {volume_id} has no metadata with key {key}.")
        _remove(connection, volume_id, key)


def _lock(
    connection: sa.Connection, volume_id: str, expected: Mapping[str, str] | None = None
) -> Pairs:
    locked = sa.select(_V.c.id).where(_V.c.id == volume_id).with_for_update()
    if connection.execute(locked).first() is None:
        raise exception.VolumeNotFound(volume_id=volume_id)
    pairs = connection.execute(sa.select(_M.c.key, _M.c.value).where(_M.c.volume_id == volume_id))
    before = {row.key: row.value for row in pairs}
    if expected is not None and before != expected:
        raise exception.PreconditionFailed(volume_id=volume_id)
    return before


def _store(connection: sa.Connection, volume_id: str, before: Pairs, after: Pairs) -> Pairs:
    for key in before.keys() - after.keys():
        _remove(connection, volume_id, key)
    for key, value in after.items():
        if key in before and before[key] != value:
            mine = sa.and_(_M.c.volume_id == volume_id, _M.c.key == key)
            connection.execute(sa.update(_M).where(mine).values(value=value))
    added = [
        {"volume_id": volume_id, "key": key, "value": value}
        for key, value in after.items()
        if key not in before
    ]
    if added:
        try:
            connection.execute(sa.insert(_M), added)
        except db_exception.DBDuplicateEntry as error:
            # MariaDB takes "a" and "a " for the same.
            raise exception.BadRequest(
                reason="Two metadata keys differ only in blanks at their ends."
            ) from error
    return after


def _remove(connection: sa.Connection, volume_id: str, key: str) -> None:
    connection.execute(sa.delete(_M).where(_M.c.volume_id == volume_id, _M.c.key == key))
