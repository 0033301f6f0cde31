# SPDX-License-Identifier: Apache-2.0
"""Rows that are there to be locked: whoever counts something and adds to it takes one first."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from attachd.db.engine import session


def lock_row(connection: sa.Connection, table: sa.Table, key: str) -> None:
    """Keep all others who take this row waiting until this transaction ends.

    :param table: with one column, its primary key; the row is made if there is none
    """
    kind = connection.dialect.name
    if kind == "sqlite":
        return  # It has one writer at a time, see factory.py.
    (column,) = table.primary_key.columns
    lock = sa.select(column).where(column == key).with_for_update()
    if connection.execute(lock).first():
        return
    same = {column.name: key}
    if kind == "postgresql":
        # Whoever comes second waits for the first one, and has the lock then.
        made = postgresql.insert(table).values(same)
        connection.execute(made.on_conflict_do_update(index_elements=[column], set_=same))
    else:
        _insert_committed(mysql.insert(table).values(same).prefix_with("IGNORE"))
        connection.execute(lock)


def _insert_committed(row: sa.Insert) -> None:
    """Make a row for good, whatever becomes of the transaction that is to lock it.

    Were it undone with that transaction, MariaDB would find the others who wait to make the same
    row in a deadlock with each other.
    """
    with session.reader() as connection:  # It commits each statement by itself.
        connection.execute(row)
