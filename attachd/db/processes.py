# SPDX-License-Identifier: Apache-2.0
"""The processes table: which manager processes live; used by manager/ha/membership.py.

Who is in it lives.  Whoever is removed from it, by itself or by others, is dead for good: no
statement ever adds the same id again.  Nobody is judged by the time that a row tells, which is of
the database's clock and may jump, but by how long it has not changed.
"""

import datetime
from typing import Any

import sqlalchemy as sa

from attachd.db import api, clocks, models

Row = dict[str, Any]
_T = models.processes


@api.retried
def join(process_id: str, name: str) -> None:
    """Add a process; one that is there already is only seen.

    :param name: for people, such as ``host:pid``
    """
    with api.writer() as connection:
        present = clocks.moment(connection)
        seen = sa.update(_T).where(_T.c.id == process_id).values(seen_at=present)
        if connection.execute(seen).rowcount == 0:
            values = {"id": process_id, "name": name[:255], "seen_at": present}
            connection.execute(sa.insert(_T).values(values))


@api.retried
def renew(process_id: str) -> bool:
    """Note that a process lives; False if others have taken it for dead meanwhile."""
    with api.writer() as connection:
        seen = sa.update(_T).where(_T.c.id == process_id).values(seen_at=clocks.moment(connection))
        return connection.execute(seen).rowcount == 1


@api.retried
def bury(process_id: str, seen_at: datetime.datetime | None = None) -> bool:
    """Remove a process that is known to be dead, or about to end; False if it was not there.

    :param seen_at: only if it has not been seen since
    """
    same = [_T.c.id == process_id]
    if seen_at is not None:
        same.append(_T.c.seen_at == seen_at)
    with api.writer() as connection:
        return connection.execute(sa.delete(_T).where(*same)).rowcount == 1


@api.retried
def living() -> list[Row]:
    """Return all processes that count as living, oldest first."""
    with api.reader() as connection:
        found = connection.execute(sa.select(_T).order_by(_T.c.started_at, _T.c.id))
        return [dict(row._mapping) for row in found]
