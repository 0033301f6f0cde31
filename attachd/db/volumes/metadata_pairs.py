# SPDX-License-Identifier: Apache-2.0
"""The insertion of key and value pairs, for the tables of metadata of volumes and snapshots."""

from collections.abc import Mapping

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception


def insert(
    connection: sa.Connection, table: sa.Table, owner: Mapping[str, str], pairs: Mapping[str, str]
) -> None:
    """Insert pairs that are not there yet.

    :param owner: the column with the id of the volume or snapshot, and the id
    :raises BadRequest: the database takes two keys as equal
    """
    if not pairs:
        return
    rows = [{**owner, "key": key, "value": value} for key, value in pairs.items()]
    try:
        connection.execute(sa.insert(table), rows)
    except db_exception.DBDuplicateEntry as error:
        # MariaDB compares "a" and "a " as equal.
        raise exception.BadRequest(
            reason="Two metadata keys differ only in blanks at their ends."
        ) from error
