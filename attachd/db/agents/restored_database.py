# SPDX-License-Identifier: Apache-2.0
"""What is known of agents after the database was restored from a backup.

Reports are newer than the database.  So the next report of each agent is accepted, and devices
that hosts report without an attachment count for a time: see orphan_devices.py.
"""

from collections.abc import Collection
import datetime

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.row_types import AgentRow

_AGENTS = models.agents


@retried
def begin(seconds: float) -> int:
    """Accept the next report of each agent, and believe what all report for a time.

    :returns: the number of agents
    """
    until = models.now() + datetime.timedelta(seconds=seconds)
    unknown = dict.fromkeys(
        (
            *("report_token", "report_process", "report_start", "report_number"),
            *("content_number", "conflict"),
        )
    )
    return session.write(sa.update(_AGENTS).values(**unknown, believed_until=until))


@retried
def end(hosts: Collection[str] = ()) -> int:
    """Believe nothing more about attachments that the database does not have.

    :param hosts: only of these; none: of all
    :returns: the number of agents
    :raises AgentNotFound: a host is not registered
    """
    ended = sa.update(_AGENTS)
    if hosts:
        statement = sa.select(_AGENTS.c.host).where(_AGENTS.c.host.in_(hosts))
        known = session.fetch_all(statement, AgentRow)
        for host in sorted({*hosts} - {row["host"] for row in known}):
            raise exception.AgentNotFound(host=host)
        ended = ended.where(_AGENTS.c.host.in_(hosts))
    return session.write(ended.values(believed_until=None))
