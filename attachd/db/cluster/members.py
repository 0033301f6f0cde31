# SPDX-License-Identifier: Apache-2.0
"""The processes table: which manager processes live; used by manager/ha/membership.py.

Who is in it lives.  Whoever is removed from it, by itself or by others, is dead for good: no
statement ever adds the same id again.  Nobody is judged by the time that a row tells, which is of
the database's clock and may jump, but by how long it has not changed.
"""

import datetime
from typing import Any

import sqlalchemy as sa

from attachd.db import models
from attachd.db.engine import clock_skew, session
from attachd.db.engine.retry import retried

Row = dict[str, Any]
_MEMBERS = models.members


@retried
def join(process_id: str, name: str) -> None:
    """Add a process; one that is there already is only seen.

    :param name: for people, such as ``host:pid``
    """
    with session.writer() as connection:
        present = clock_skew.database_now(connection)
        seen = sa.update(_MEMBERS).where(_MEMBERS.c.id == process_id).values(seen_at=present)
        if connection.execute(seen).rowcount == 0:
            values = {"id": process_id, "name": name[:255], "seen_at": present}
            connection.execute(sa.insert(_MEMBERS).values(values))


@retried
def heartbeat(process_id: str) -> bool:
    """Note that a process lives; False if others have taken it for dead meanwhile."""
    with session.writer() as connection:
        seen = (
            sa.update(_MEMBERS)
            .where(_MEMBERS.c.id == process_id)
            .values(seen_at=clock_skew.database_now(connection))
        )
        return connection.execute(seen).rowcount == 1


@retried
def expire(process_id: str, seen_at: datetime.datetime | None = None) -> bool:
    """Remove a process that is known to be dead, or about to end; False if it was not there.

    :param seen_at: only if it has not been seen since
    """
    same = [_MEMBERS.c.id == process_id]
    if seen_at is not None:
        same.append(_MEMBERS.c.seen_at == seen_at)
    with session.writer() as connection:
        return connection.execute(sa.delete(_MEMBERS).where(*same)).rowcount == 1


@retried
def list_living() -> list[Row]:
    """Return all processes that count as living, oldest first."""
    with session.reader() as connection:
        result = connection.execute(
            sa.select(_MEMBERS).order_by(_MEMBERS.c.started_at, _MEMBERS.c.id)
        )
        return [dict(row._mapping) for row in result]
