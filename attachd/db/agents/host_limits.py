# SPDX-License-Identifier: Apache-2.0
"""How many attachments a host can take, as its agent reports it.

The attachments of the agent count, from the reservation on, and the connections that Compute has
opened with a connector of the host's name.  Compute decides by itself how many it connects: it is
not refused.  Connections that users open do not count, because users name hosts as they like.
"""

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.states import INACTIVE, AttachmentKind

_AGENTS = models.agents
_ATTACHMENTS = models.attachments


def check_in(connection: sa.Connection, host: str) -> None:
    """Check that a host can take one more attachment.

    Until the transaction ends, which locks nothing after it, the host is not deleted, and no other
    transaction gives it an attachment.

    :raises AgentNotFound: it has been deleted
    :raises HostLimitExceeded: it has as many as it can take
    """
    limit = sa.select(_AGENTS.c.max_attachments).where(_AGENTS.c.host == host)
    row = connection.execute(limit.with_for_update()).first()
    if row is None:
        raise exception.AgentNotFound(host=host)
    if row.max_attachments is not None:
        _check_count(connection, host, row.max_attachments)


@retried
def check(host: str) -> None:
    """Check as :func:`check_in`, for this moment."""
    with session.writer() as connection:
        check_in(connection, host)


def _check_count(connection: sa.Connection, host: str, limit: int) -> None:
    is_of_compute = sa.and_(_ATTACHMENTS.c.host == host, _ATTACHMENTS.c.by_service.is_(True))
    statement = sa.select(sa.func.count()).where(
        sa.or_(_ATTACHMENTS.c.agent == host, is_of_compute),
        _ATTACHMENTS.c.kind.in_((AttachmentKind.ATTACHMENT, AttachmentKind.CONNECTION)),
        _ATTACHMENTS.c.state.not_in(INACTIVE),
    )
    count = connection.execute(statement).scalar_one()
    if count >= limit:
        raise exception.HostLimitExceeded(host=host, count=count, limit=limit)
