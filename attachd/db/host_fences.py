# SPDX-License-Identifier: Apache-2.0
"""The fences of hosts: where nothing may be attached, since when and why.

A fence is stored before the attachments of its host are listed, and a manager reads the fence
after it has stored that an attachment is connecting, and before it calls the driver.  So each
connect is either refused or listed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.attachments import statements
from attachd.db.engine import session
from attachd.db.engine.compiled import CompiledStatement
from attachd.db.engine.retry import retried
from attachd.states import CONNECTOR_FIXED

Row = dict[str, Any]
_FENCES = models.host_fences
_AGENTS = models.agents
_ATTACHMENTS = models.attachments

_IS_FENCED = _FENCES.c.fenced_at.is_not(None)
_GET_FENCED: Final = CompiledStatement(
    sa.select(_FENCES).where(_FENCES.c.host == sa.bindparam("match_host"), _IS_FENCED)
)


@retried
def fence(host: str, reason: str, user_id: str | None) -> tuple[Row, bool]:
    """Fence a host; a host that is fenced stays as it is.

    :returns: the row, and whether the host was not fenced before
    """
    seen = sa.select(_AGENTS.c.boot_id).where(_AGENTS.c.host == host).scalar_subquery()
    values = {
        "fenced_at": models.now(),
        "reason": reason,
        "user_id": user_id,
        "boot_id": seen,
        "updated_at": models.now(),
    }
    raised = (
        sa.update(_FENCES)
        .where(_FENCES.c.host == host, ~_IS_FENCED)
        .values(generation=_FENCES.c.generation + 1, **values)
    )
    is_new = session.write(raised) == 1
    if not is_new and _find(host) is None:
        try:
            session.write(sa.insert(_FENCES).values(host=host, generation=1, **values))
            is_new = True
        except db_exception.DBDuplicateEntry:
            pass  # Another request has fenced it meanwhile.
    row = _find(host)
    assert row is not None, "a fence is never deleted"
    return row, is_new


@retried
def lift(host: str, *, generation: int | None = None) -> bool:
    """End the fence of a host; return whether it was fenced.

    :param generation: only this fence of the host
    """
    lifted = sa.update(_FENCES).where(_FENCES.c.host == host, _IS_FENCED)
    if generation is not None:
        lifted = lifted.where(_FENCES.c.generation == generation)
    return session.write(lifted.values(fenced_at=None, updated_at=models.now())) == 1


@retried
def find(host: str) -> Row | None:
    """Return the fence of a host, also one that has ended; None: it was never fenced."""
    return _find(host)


def _find(host: str) -> Row | None:
    return session.fetch_one(sa.select(_FENCES).where(_FENCES.c.host == host))


@retried
def list_fenced() -> list[Row]:
    """Return the fences of all hosts that are fenced, by name."""
    return session.fetch_all(sa.select(_FENCES).where(_IS_FENCED).order_by(_FENCES.c.host))


@retried
def check(host: str | None) -> None:
    """Check that a host is not fenced.

    :raises HostFenced: it is
    """
    with session.reader() as connection:
        check_in(connection, host)


def check_in(connection: sa.Connection, host: str | None) -> None:
    """Do as :func:`check`, as a part of a transaction."""
    row = _GET_FENCED.fetch_one(connection, {"match_host": host}) if host else None
    if row is not None:
        raise _error(row)


def _error(row: Mapping[str, Any]) -> exception.HostFenced:
    since = f"{row['fenced_at']:%Y-%m-%d %H:%M:%S} UTC"
    return exception.HostFenced(host=row["host"], since=since, reason=row["reason"])


@retried
def list_attachments(hosts: Sequence[str]) -> list[Row]:
    """Return the attachments whose hosts have access or may have it, oldest first.

    Those of an agent belong to the agent's host.

    :returns: rows as of attachments.store.get(), of all kinds
    """
    of_hosts = sa.or_(_ATTACHMENTS.c.host.in_(hosts), _ATTACHMENTS.c.agent.in_(hosts))
    statement = statements.WITH_VOLUME.where(
        of_hosts,
        _ATTACHMENTS.c.state.in_(sorted(CONNECTOR_FIXED)),
        _ATTACHMENTS.c.connector.is_not(None),
    )
    return session.fetch_all(statement.order_by(_ATTACHMENTS.c.created_at, _ATTACHMENTS.c.id))
