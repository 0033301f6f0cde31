# SPDX-License-Identifier: Apache-2.0
"""The database's clock, and its offset from the clocks of the machines."""

import datetime
from typing import Any

import sqlalchemy as sa

from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.retry import retried


def database_now(connection: sa.Connection) -> sa.ColumnElement[Any]:
    """Return an expression for the present in UTC, to the microsecond, by the database's clock."""
    kind = connection.dialect.name
    if kind == "sqlite":  # It has no clock but that of this machine.
        return sa.literal(models.now())
    if kind == "postgresql":
        return sa.func.timezone("utc", sa.func.clock_timestamp())
    return sa.func.utc_timestamp(sa.literal_column("6"))


@retried
def database_offset() -> float:
    """Return by how many seconds the database's clock is ahead of this machine's.

    The duration of the query is included.
    """
    with session.reader() as connection:
        statement = sa.select(database_now(connection))
        database_time: datetime.datetime = connection.execute(statement).scalar_one()
    return (database_time - models.now()).total_seconds()


@retried
def future_reports() -> dict[str, float]:
    """Return by how many seconds the last report of a backend is in the future, by backend.

    The cause is a wrong clock: that of the reporting machine or of this one.
    """
    table = models.services
    now = models.now()
    statement = sa.select(table.c.host, table.c.seen_at).where(table.c.seen_at > now)
    with session.reader() as connection:
        rows = connection.execute(statement).all()
    return {host: (seen_at - now).total_seconds() for host, seen_at in rows}
