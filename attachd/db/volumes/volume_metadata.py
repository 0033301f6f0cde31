# SPDX-License-Identifier: Apache-2.0
"""The volume_metadata and volume_image_metadata tables: key and value pairs; used by the API.

Each change is made under the lock of its volume, so that two changes follow each other.
"""

from collections.abc import Mapping

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.volumes import metadata_pairs

Pairs = dict[str, str]
_VOLUMES = models.volumes
_VOLUME_METADATA = models.volume_metadata


@retried
def merge(
    volume_id: str, pairs: Mapping[str, str], expected: Mapping[str, str] | None = None
) -> Pairs:
    """Set some pairs, keep the others, and return all.

    :param expected: only if these are the present pairs
    :raises VolumeNotFound: there is no such volume
    :raises PreconditionFailed: it has other pairs than expected
    :raises BadRequest: it would have too many
    """
    with session.writer() as connection:
        before = _lock_pairs(connection, _VOLUME_METADATA, volume_id, expected)
        return _store_pairs(connection, _VOLUME_METADATA, volume_id, before, {**before, **pairs})


@retried
def replace(
    volume_id: str, pairs: Mapping[str, str], expected: Mapping[str, str] | None = None
) -> Pairs:
    """Set some pairs, remove the others, and return all; see :func:`merge`."""
    with session.writer() as connection:
        before = _lock_pairs(connection, _VOLUME_METADATA, volume_id, expected)
        return _store_pairs(connection, _VOLUME_METADATA, volume_id, before, dict(pairs))


@retried
def delete(volume_id: str, key: str) -> None:
    """Remove one pair.

    :raises NotFound: there is none, or no such volume
    """
    with session.writer() as connection:
        before = _lock_pairs(connection, _VOLUME_METADATA, volume_id)
        if key not in before:
            raise exception.NotFound(f"Volume {volume_id} has no metadata with key {key}.")
        _delete_pair(connection, _VOLUME_METADATA, volume_id, key)


def _lock_pairs(
    connection: sa.Connection,
    table: sa.Table,
    volume_id: str,
    expected: Mapping[str, str] | None = None,
) -> Pairs:
    """Lock a volume and return its pairs of a table; raises as :func:`merge`."""
    lock = sa.select(_VOLUMES.c.id).where(_VOLUMES.c.id == volume_id).with_for_update()
    if connection.execute(lock).first() is None:
        raise exception.VolumeNotFound(volume_id=volume_id)
    statement = sa.select(table.c.key, table.c.value).where(table.c.volume_id == volume_id)
    before = {row.key: row.value for row in connection.execute(statement)}
    if expected is not None and before != expected:
        raise exception.PreconditionFailed(volume_id=volume_id)
    return before


def _store_pairs(
    connection: sa.Connection, table: sa.Table, volume_id: str, before: Pairs, after: Pairs
) -> Pairs:
    """Store pairs instead of the present ones, and return them."""
    metadata_pairs.check(f"Volume {volume_id}", after)
    for key in before.keys() - after.keys():
        _delete_pair(connection, table, volume_id, key)
    for key, value in after.items():
        if key in before and before[key] != value:
            condition = sa.and_(table.c.volume_id == volume_id, table.c.key == key)
            connection.execute(sa.update(table).where(condition).values(value=value))
    added = {key: value for key, value in after.items() if key not in before}
    metadata_pairs.insert(connection, table, {"volume_id": volume_id}, added)
    return after


def _delete_pair(connection: sa.Connection, table: sa.Table, volume_id: str, key: str) -> None:
    """Remove one pair, if it exists."""
    condition = sa.and_(table.c.volume_id == volume_id, table.c.key == key)
    connection.execute(sa.delete(table).where(condition))


_VOLUME_IMAGE_METADATA = models.volume_image_metadata


@retried
def get_image_metadata(volume_id: str) -> Pairs:
    """Return all pairs of the image; none where there is no such volume."""
    statement = sa.select(_VOLUME_IMAGE_METADATA.c.key, _VOLUME_IMAGE_METADATA.c.value).where(
        _VOLUME_IMAGE_METADATA.c.volume_id == volume_id
    )
    with session.reader() as connection:
        return {row.key: row.value for row in connection.execute(statement)}


@retried
def merge_image_metadata(volume_id: str, pairs: Mapping[str, str]) -> Pairs:
    """Set some pairs of the image, keep the others, and return all.

    :raises VolumeNotFound: there is no such volume
    :raises BadRequest: it would have too many
    """
    with session.writer() as connection:
        before = _lock_pairs(connection, _VOLUME_IMAGE_METADATA, volume_id)
        after = {**before, **pairs}
        return _store_pairs(connection, _VOLUME_IMAGE_METADATA, volume_id, before, after)


def replace_image_metadata(
    connection: sa.Connection, volume_id: str, pairs: Mapping[str, str]
) -> None:
    """Set the pairs of another image instead of the present ones, within a transaction.

    The transaction holds the lock of the volume's row.
    """
    table = _VOLUME_IMAGE_METADATA
    connection.execute(sa.delete(table).where(table.c.volume_id == volume_id))
    _store_pairs(connection, table, volume_id, {}, dict(pairs))


@retried
def delete_image_metadata(volume_id: str, key: str) -> None:
    """Remove one pair of the image.

    :raises NotFound: there is none, or no such volume
    """
    with session.writer() as connection:
        if key not in _lock_pairs(connection, _VOLUME_IMAGE_METADATA, volume_id):
            raise exception.NotFound(f"Volume {volume_id} has no image metadata with key {key}.")
        _delete_pair(connection, _VOLUME_IMAGE_METADATA, volume_id, key)
