# SPDX-License-Identifier: Apache-2.0
"""Rows that are there to be locked: whoever counts something and adds to it takes one first."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql


def take(connection: sa.Connection, table: sa.Table, key: str) -> None:
    """Keep all others who take this row waiting until this transaction ends.

    :param table: with one column, its primary key; the row is made if there is none
    """
    kind = connection.dialect.name
    if kind == "sqlite":
        return  # It has one writer at a time, see engines.py.
    (column,) = table.primary_key.columns
    if connection.execute(sa.select(column).where(column == key).with_for_update()).first():
        return
    # Whoever comes second waits for the first one, and has the lock then.
    same = {column.name: key}
    if kind == "postgresql":
        made = postgresql.insert(table).values(same)
        connection.execute(made.on_conflict_do_update(index_elements=[column], set_=same))
    else:
        connection.execute(mysql.insert(table).values(same).on_duplicate_key_update(same))
