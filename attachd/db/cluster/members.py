# SPDX-License-Identifier: Apache-2.0
"""The members table: the living manager processes; used by manager/ownership/membership.py.

A process that is in it lives. A process that is removed from it, by itself or by others, is dead:
no statement ever inserts the same id again. A process is not judged by the time in its row, which
is of the database's clock and may jump, but by how long the time has not changed.
"""

import datetime

import sqlalchemy as sa

from attachd.db import models
from attachd.db.engine import clock_skew, session
from attachd.db.engine.retry import retried
from attachd.db.row_types import MemberRow

_MEMBERS = models.members


@retried
def join(process_id: str, name: str) -> None:
    """Insert a process; for an existing one only the time is updated.

    :param name: for operators, such as ``host:pid``
    """
    with session.writer() as connection:
        present = clock_skew.database_now(connection)
        seen = sa.update(_MEMBERS).where(_MEMBERS.c.id == process_id).values(seen_at=present)
        if connection.execute(seen).rowcount == 0:
            values = {"id": process_id, "name": name[:255], "seen_at": present}
            connection.execute(sa.insert(_MEMBERS).values(values))


@retried
def heartbeat(process_id: str) -> bool:
    """Store that a process lives; False if other processes have expired it meanwhile."""
    with session.writer() as connection:
        seen = (
            sa.update(_MEMBERS)
            .where(_MEMBERS.c.id == process_id)
            .values(seen_at=clock_skew.database_now(connection))
        )
        return connection.execute(seen).rowcount == 1


@retried
def expire(process_id: str, seen_at: datetime.datetime | None = None) -> bool:
    """Remove a process that is dead or about to end; False if it was not there.

    :param seen_at: only if its time is still this one
    """
    same = [_MEMBERS.c.id == process_id]
    if seen_at is not None:
        same.append(_MEMBERS.c.seen_at == seen_at)
    return session.write(sa.delete(_MEMBERS).where(*same)) == 1


@retried
def list_living() -> list[MemberRow]:
    """Return all processes that count as alive, oldest first."""
    return session.fetch_all(
        sa.select(_MEMBERS).order_by(_MEMBERS.c.started_at, _MEMBERS.c.id), MemberRow
    )
