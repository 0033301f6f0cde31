# SPDX-License-Identifier: Apache-2.0
"""Forgetting the agents of hosts; for the API and for operators.

A key that is forgotten proves nothing any more: whatever such an agent was to see to can only be
removed by force, until its host is made known again.
"""

from typing import Final

import sqlalchemy as sa

from attachd import exception
from attachd.db import agents, api, models

_T = models.agents
_A = models.attachments
_NAMED: Final = 10


def remove(host: str) -> None:
    """Forget a host that has nothing attached.

    :raises AgentNotFound: nobody knows it
    :raises Conflict: there are attachments that its agent sees to; ten of them are named
    """
    if not _remove_unused(host):
        agents.get(host)
        raise _in_use(host, attachments_of(host))


def remove_by_force(host: str) -> None:
    """Forget a host, whatever there is of it.

    :raises AgentNotFound: nobody knows it
    """
    if not agents.remove(host):
        raise exception.AgentNotFound(host=host)


@api.retried
def attachments_of(host: str) -> list[str]:
    """Return the ids of the attachments that the agent of a host sees to, oldest first."""
    wanted = sa.select(_A.c.id).where(_A.c.agent == host).order_by(_A.c.created_at, _A.c.id)
    with api.reader() as connection:
        return [str(each) for each in connection.execute(wanted).scalars()]


@api.retried
def _remove_unused(host: str) -> bool:
    with api.writer() as connection:
        # Whoever is about to have it attach something is waited for, or waits; see agents.keep().
        connection.execute(sa.select(_T.c.host).where(_T.c.host == host).with_for_update())
        if connection.execute(sa.select(_A.c.id).where(_A.c.agent == host).limit(1)).first():
            return False
        return connection.execute(sa.delete(_T).where(_T.c.host == host)).rowcount == 1


def _in_use(host: str, left: list[str]) -> exception.Conflict:
    more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    return exception.Conflict(
        reason=f"The agent of host {host} sees to {len(left)} attachments: "
        f"{', '.join(left[:_NAMED])}{more}. Delete them first."
    )
