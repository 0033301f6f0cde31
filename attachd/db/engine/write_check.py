# SPDX-License-Identifier: Apache-2.0
"""The check that the database stores what is written, for the health check.

A server that is read-only or full answers reads as if nothing were wrong.
"""

import sqlalchemy as sa

from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.retry import retried

_LOCKS = models.host_locks


@retried
def check_writable() -> None:
    """Write a row, and remove it in the same transaction.

    :raises Unavailable: with the reason; the database may still answer reads
    """
    key = f"write check {models.new_id()}"
    with session.writer() as connection:
        connection.execute(sa.insert(_LOCKS).values(host=key))
        connection.execute(sa.delete(_LOCKS).where(_LOCKS.c.host == key))
