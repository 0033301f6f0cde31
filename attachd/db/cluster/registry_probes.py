# SPDX-License-Identifier: Apache-2.0
"""The answers of managers to probes of the way that reports of agents take.

Each process has the time at which the last probe was sent that it has answered, by the database's
clock.  So an answer to a later probe is one to each earlier probe as well, of any sender.
"""

import datetime
from typing import NamedTuple

import sqlalchemy as sa

from attachd.db import columns, models
from attachd.db.engine import clock_skew, session
from attachd.db.engine.retry import retried

_MEMBERS = models.members


class Server(NamedTuple):
    """A process that serves agents.

    :ivar id: of its member
    :ivar name: host name and process id
    :ivar consumers: how many consumers of each queue it has
    :ivar is_answering: whether it has answered a probe
    :ivar is_reading_queue: whether it has answered one from the common queue
    """

    id: str
    name: str
    consumers: int
    is_answering: bool
    is_reading_queue: bool


@retried
def read_clock() -> datetime.datetime:
    """Return the present by the clock of the database, as the time of a probe."""
    with session.reader() as connection:
        present = sa.select(clock_skew.database_now(connection))
        time: datetime.datetime = connection.execute(present).scalar_one()
        return time


@retried
def record(process_id: str, sent_at: datetime.datetime, consumers: int, *, by_queue: bool) -> None:
    """Store that a process has got a probe; do nothing if it has answered a later one.

    A time in the future is none that this database has given.

    :param by_queue: whether the probe came by the common queue, and not to all processes
    """
    column = _MEMBERS.c.queue_probed_at if by_queue else _MEMBERS.c.probed_at
    with session.writer() as connection:
        present = clock_skew.database_now(connection)
        connection.execute(
            sa.update(_MEMBERS)
            .where(
                _MEMBERS.c.id == process_id,
                sa.literal(sent_at, columns.Moment) <= present,
                sa.or_(column.is_(None), column < sent_at, column > present),
            )
            .values({column: sent_at, _MEMBERS.c.consumers: consumers})
        )


@retried
def leave(process_id: str) -> None:
    """Store that a process serves no agents any more."""
    values = {"consumers": None, "probed_at": None, "queue_probed_at": None}
    session.write(sa.update(_MEMBERS).where(_MEMBERS.c.id == process_id).values(values))


@retried
def list_servers(sent_at: datetime.datetime) -> list[Server]:
    """Return the living processes that serve agents.

    :param sent_at: of the probe
    """
    with session.reader() as connection:
        columns = (
            _MEMBERS.c.id,
            _MEMBERS.c.name,
            _MEMBERS.c.consumers,
            _MEMBERS.c.probed_at,
            _MEMBERS.c.queue_probed_at,
            clock_skew.database_now(connection).label("now"),
        )
        statement = sa.select(*columns).where(_MEMBERS.c.consumers.is_not(None))
        rows = connection.execute(statement.order_by(_MEMBERS.c.name)).all()
    return [
        Server(
            row.id,
            row.name,
            row.consumers,
            _is_between(sent_at, row.probed_at, row.now),
            _is_between(sent_at, row.queue_probed_at, row.now),
        )
        for row in rows
    ]


def _is_between(
    sent_at: datetime.datetime, probed_at: datetime.datetime | None, now: datetime.datetime
) -> bool:
    return probed_at is not None and sent_at <= probed_at <= now
