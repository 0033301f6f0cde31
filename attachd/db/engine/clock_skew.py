# SPDX-License-Identifier: Apache-2.0
"""The database's clock, and its offset from that of this machine."""

from collections.abc import Mapping
import datetime
from typing import Any, Final

from oslo_utils import timeutils
import sqlalchemy as sa

from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.retry import retried

NOW: Final[Mapping[str, sa.ColumnElement[Any]]] = {
    "mysql": sa.func.utc_timestamp(sa.literal_column("6")),
    "mariadb": sa.func.utc_timestamp(sa.literal_column("6")),
    "postgresql": sa.func.timezone("utc", sa.func.clock_timestamp()),
}
"""Expressions for the present in UTC by the clock of a database, by the names of dialects."""


def database_now(connection: sa.Connection) -> sa.ColumnElement[Any]:
    """Return an expression for the present in UTC, to the microsecond, by the database's clock."""
    kind = connection.dialect.name
    # SQLite has no clock but that of this machine.
    return sa.literal(models.now()) if kind == "sqlite" else NOW[kind]


@retried
def database_offset() -> float:
    """Return by how many seconds the database's clock is ahead of this machine's.

    The duration of the query is included.
    """
    with session.reader() as connection:
        statement = sa.select(database_now(connection))
        database_time: datetime.datetime = connection.execute(statement).scalar_one()
    return (database_time - timeutils.utcnow()).total_seconds()
