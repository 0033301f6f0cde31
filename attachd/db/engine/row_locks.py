# SPDX-License-Identifier: Apache-2.0
"""Rows that exist to be locked, before a transaction counts something and adds to it."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from attachd.db.engine import session


def lock_row(connection: sa.Connection, table: sa.Table, key: str) -> None:
    """Lock a row until this transaction ends; other transactions that lock it wait.

    :param table: with one column, its primary key; a missing row is inserted
    """
    kind = connection.dialect.name
    if kind == "sqlite":
        return  # SQLite has one writer at a time, see factory.py.
    (column,) = table.primary_key.columns
    lock = sa.select(column).where(column == key).with_for_update()
    if connection.execute(lock).first():
        return
    same = {column.name: key}
    if kind == "postgresql":
        # The second transaction waits for the first one, and has the lock then.
        made = postgresql.insert(table).values(same)
        connection.execute(made.on_conflict_do_update(index_elements=[column], set_=same))
    else:
        _insert_committed(mysql.insert(table).values(same).prefix_with("IGNORE"))
        connection.execute(lock)


def _insert_committed(row: sa.Insert) -> None:
    """Insert a row that stays even if the transaction that is to lock it is rolled back.

    If it were rolled back with that transaction, MariaDB would report a deadlock among the others
    that wait to insert the same row.
    """
    with session.reader() as connection:  # The reader commits each statement by itself.
        connection.execute(row)
