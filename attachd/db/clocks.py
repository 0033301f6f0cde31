# SPDX-License-Identifier: Apache-2.0
"""The database's clock, and whether those of the machines agree with it and each other."""

import datetime
from typing import Any

import sqlalchemy as sa

from attachd.db import api, columns, models


def moment(connection: sa.Connection) -> sa.ColumnElement[Any]:
    """Return the present in UTC to the microsecond, as the database will find it."""
    kind = connection.dialect.name
    if kind == "sqlite":  # It has no clock but that of this machine.
        return sa.literal(columns.now())
    if kind == "postgresql":
        return sa.func.timezone("utc", sa.func.clock_timestamp())
    return sa.func.utc_timestamp(sa.literal_column("6"))


@api.retried
def database_ahead() -> float:
    """Return by how many seconds the database's clock is ahead of this machine's.

    What the question took is in it.
    """
    with api.reader() as connection:
        wanted = sa.select(moment(connection))
        said: datetime.datetime = connection.execute(wanted).scalar_one()
    return (said - columns.now()).total_seconds()


@api.retried
def reports_ahead() -> dict[str, float]:
    """Return by how many seconds the last report of a backend is in the future, by backend.

    Only the clock of a machine that is wrong, or ours, makes it so.
    """
    table = models.services
    now = columns.now()
    wanted = sa.select(table.c.host, table.c.seen_at).where(table.c.seen_at > now)
    with api.reader() as connection:
        rows = connection.execute(wanted).all()
    return {host: (seen_at - now).total_seconds() for host, seen_at in rows}
