# SPDX-License-Identifier: Apache-2.0
"""The snapshot_metadata table: key and value pairs; used by the API.

Each change is made under the lock of its snapshot, so that two changes follow each other.
"""

from collections.abc import Mapping

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.volumes import metadata_pairs, snapshot_rules

Pairs = dict[str, str]
_METADATA = models.snapshot_metadata


@retried
def merge(snapshot_id: str, pairs: Mapping[str, str]) -> Pairs:
    """Set some pairs, keep the others, and return all.

    :raises SnapshotNotFound: there is no such snapshot
    :raises BadRequest: it would have too many
    """
    with session.writer() as connection:
        before = _lock_pairs(connection, snapshot_id)
        return _store(connection, snapshot_id, before, {**before, **pairs})


@retried
def replace(snapshot_id: str, pairs: Mapping[str, str]) -> Pairs:
    """Set some pairs, remove the others, and return all; see :func:`merge`."""
    with session.writer() as connection:
        before = _lock_pairs(connection, snapshot_id)
        return _store(connection, snapshot_id, before, dict(pairs))


@retried
def delete(snapshot_id: str, key: str) -> None:
    """Remove one pair.

    :raises NotFound: there is none, or no such snapshot
    """
    with session.writer() as connection:
        before = _lock_pairs(connection, snapshot_id)
        if key not in before:
            raise exception.NotFound(f"Snapshot {snapshot_id} has no metadata with key {key}.")
        _store(connection, snapshot_id, before, {k: before[k] for k in before if k != key})


def _lock_pairs(connection: sa.Connection, snapshot_id: str) -> Pairs:
    snapshot_rules.lock(connection, snapshot_id)
    statement = sa.select(_METADATA.c.key, _METADATA.c.value)
    found = connection.execute(statement.where(_METADATA.c.snapshot_id == snapshot_id))
    return {row.key: row.value for row in found}


def _store(connection: sa.Connection, snapshot_id: str, before: Pairs, after: Pairs) -> Pairs:
    """Store pairs instead of the present ones, and return them."""
    metadata_pairs.check(f"Snapshot {snapshot_id}", after)
    removed = [key for key in before if after.get(key) != before[key]]
    if removed:
        of_snapshot = _METADATA.c.snapshot_id == snapshot_id
        connection.execute(sa.delete(_METADATA).where(of_snapshot, _METADATA.c.key.in_(removed)))
    added = {key: value for key, value in after.items() if before.get(key) != value}
    metadata_pairs.insert(connection, _METADATA, {"snapshot_id": snapshot_id}, added)
    return after
