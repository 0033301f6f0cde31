# SPDX-License-Identifier: Apache-2.0
"""The identities of the storage that backends have served; one row for each pool.

The first manager of a backend stores what it serves.  One that serves other storage under the same
name, such as with a copied configuration, is told so, and must not use it.
"""

from collections.abc import Mapping

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.row_types import StorageRow

_STORAGES = models.storages


@retried
def list_known(backend: str) -> dict[str, str]:
    """Return the identities of the storage of a backend by its pools.

    :param backend: ``host@backend``
    """
    statement = sa.select(_STORAGES).where(_STORAGES.c.backend == backend)
    rows = session.fetch_all(statement, StorageRow)
    return {row["pool"]: row["storage_id"] for row in rows}


def claim(backend: str, storage_ids: Mapping[str, str]) -> dict[str, str]:
    """Store the identities of pools that are not known; those of known pools stay as they are.

    :returns: as of :func:`list_known`
    """
    known = list_known(backend)
    for pool, storage_id in storage_ids.items():
        if pool not in known:
            known[pool] = storage_id if _insert(backend, pool, storage_id) else ""
    # Another process may have been first.
    return list_known(backend) if "" in known.values() else known


@retried
def _insert(backend: str, pool: str, storage_id: str) -> bool:
    values = {"backend": backend, "pool": pool, "storage_id": storage_id}
    try:
        session.write(sa.insert(_STORAGES).values(values))
    except db_exception.DBDuplicateEntry:
        return False
    return True


@retried
def replace(backend: str, storage_ids: Mapping[str, str]) -> None:
    """Store the identities of all pools of a backend in place of the known ones."""
    rows = [
        {"backend": backend, "pool": pool, "storage_id": storage_id}
        for pool, storage_id in storage_ids.items()
    ]
    with session.writer() as connection:
        connection.execute(sa.delete(_STORAGES).where(_STORAGES.c.backend == backend))
        if rows:
            connection.execute(sa.insert(_STORAGES), rows)
