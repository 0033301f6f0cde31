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


def later(kind: str, moment: sa.ColumnElement[Any], microseconds: Any) -> sa.ColumnElement[Any]:
    """Return an expression for a moment that is so much later.

    :param kind: the name of the dialect
    :param moment: such as :func:`database_now`
    :param microseconds: a number, or an expression for one; SQLite takes numbers only
    """
    if kind == "sqlite":
        assert isinstance(moment, sa.BindParameter)
        present: Any = moment.value
        return sa.literal(present + datetime.timedelta(microseconds=microseconds))
    if kind == "postgresql":
        seconds = microseconds / sa.literal_column("1000000.0")
        return moment + sa.func.make_interval(*[sa.literal_column("0")] * 6, seconds)
    return sa.func.timestampadd(sa.literal_column("MICROSECOND"), microseconds, moment)


@retried
def database_offset() -> float:
    """Return by how many seconds the database's clock is ahead of this machine's.

    The duration of the query is included.
    """
    with session.reader() as connection:
        statement = sa.select(database_now(connection))
        database_time: datetime.datetime = connection.execute(statement).scalar_one()
    return (database_time - timeutils.utcnow()).total_seconds()
