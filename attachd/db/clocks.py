# SPDX-License-Identifier: Apache-2.0
"""Whether the clocks of the machines agree; read by attachd-status."""

import datetime
from typing import Any

import sqlalchemy as sa

from attachd.db import api, columns, models

_MOMENT: dict[str, Any] = {
    "mysql": sa.func.utc_timestamp(),
    "postgresql": sa.func.timezone("utc", sa.func.clock_timestamp()),
}
"""The present moment in UTC, by dialect; a file has no clock of its own."""


@api.retried
def database_ahead() -> float:
    """Return by how many seconds the database's clock is ahead of this machine's.

    What the question took is in it, and for MariaDB up to a second more.
    """
    moment = _MOMENT.get(api.dialect())
    if moment is None:
        return 0.0
    with api.reader() as connection:
        said: datetime.datetime = connection.execute(sa.select(moment)).scalar_one()
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
