# SPDX-License-Identifier: Apache-2.0
"""The database's clock, and whether those of the machines agree with it and each other."""

import datetime
from typing import Any

import sqlalchemy as sa

from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.retry import retried


def database_now(connection: sa.Connection) -> sa.ColumnElement[Any]:
    """Return the present in UTC to the microsecond, as the database will find it."""
    kind = connection.dialect.name
    if kind == "sqlite":  # It has no clock but that of this machine.
        return sa.literal(models.now())
    if kind == "postgresql":
        return sa.func.timezone("utc", sa.func.clock_timestamp())
    return sa.func.utc_timestamp(sa.literal_column("6"))


@retried
def database_offset() -> float:
    """Return by how many seconds the database's clock is ahead of this machine's.

    What the question took is in it.
    """
    with session.reader() as connection:
        statement = sa.select(database_now(connection))
        database_time: datetime.datetime = connection.execute(statement).scalar_one()
    return (database_time - models.now()).total_seconds()


@retried
def future_reports() -> dict[str, float]:
    """Return by how many seconds the last report of a backend is in the future, by backend.

    Only the clock of a machine that is wrong, or ours, makes it so.
    """
    table = models.services
    now = models.now()
    statement = sa.select(table.c.host, table.c.seen_at).where(table.c.seen_at > now)
    with session.reader() as connection:
        rows = connection.execute(statement).all()
    return {host: (seen_at - now).total_seconds() for host, seen_at in rows}
