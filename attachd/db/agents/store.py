# SPDX-License-Identifier: Apache-2.0
"""The agents table: which hosts attach by themselves; for the API, and the managers' registry.

Of the key that an agent proves itself with there is only a digest.
"""

from collections.abc import Mapping
import datetime
import hashlib
import hmac
from typing import Any, Final

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.states import WITH_ACCESS

Row = dict[str, Any]
_AGENTS = models.agents
_ATTACHMENTS = models.attachments
_VOLUMES = models.volumes


def digest(key: str) -> str:
    """Return what is stored of a key; it is long and drawn by chance, so one round will do."""
    return hashlib.sha256(key.encode()).hexdigest()


@retried
def create(host: str, key: str) -> bool:
    """Make a host known; False if it is already, whatever its key."""
    try:
        with session.writer() as connection:
            values = {"host": host, "key_digest": digest(key)}
            connection.execute(sa.insert(_AGENTS).values(values))
    except db_exception.DBDuplicateEntry:
        return False
    return True


@retried
def _delete(host: str) -> bool:
    """Forget a host, and its key with it; False if nobody knew it."""
    with session.writer() as connection:
        return connection.execute(sa.delete(_AGENTS).where(_AGENTS.c.host == host)).rowcount == 1


def lock_for_share(connection: sa.Connection, host: str) -> None:
    """Keep a host from being forgotten until a transaction ends, which locks nothing after it.

    :raises AgentNotFound: it is, already
    """
    statement = sa.select(_AGENTS.c.host).where(_AGENTS.c.host == host)
    if connection.execute(statement.with_for_update(read=True, key_share=True)).first() is None:
        raise exception.AgentNotFound(host=host)


@retried
def get(host: str) -> Row:
    """Return what is known of a host.

    :returns: the row, without the digest, and ``alive``
    :raises AgentNotFound: nothing
    """
    with session.reader() as connection:
        row = connection.execute(sa.select(_AGENTS).where(_AGENTS.c.host == host)).one_or_none()
    if row is None:
        raise exception.AgentNotFound(host=host)
    return _to_row(row)


@retried
def list_all() -> list[Row]:
    """Return all hosts, by name; rows as of :func:`get`."""
    with session.reader() as connection:
        return [
            _to_row(row) for row in connection.execute(sa.select(_AGENTS).order_by(_AGENTS.c.host))
        ]


def _to_row(row: sa.Row[Any]) -> Row:
    known = {name: value for name, value in row._mapping.items() if name != "key_digest"}
    return {**known, "alive": _is_alive(known["seen_at"])}


def state(row: Mapping[str, Any]) -> str:
    """Say in a word how an agent is: "up", "down", or "new" if it has never reported.

    :param row: as of :func:`get`
    """
    if row["seen_at"] is None:
        return "new"
    return "up" if row["alive"] else "down"


def _is_alive(seen_at: datetime.datetime | None) -> bool:
    limit = datetime.timedelta(seconds=CONF.agent.down_time)
    return seen_at is not None and models.now() - seen_at <= limit


@retried
def check_key(host: str, key: str) -> None:
    """Let whoever shows a key be the agent of a host.

    :raises AgentNotFound: nobody knows the host
    :raises Forbidden: another one is its agent
    """
    with session.reader() as connection:
        stored = connection.execute(
            sa.select(_AGENTS.c.key_digest).where(_AGENTS.c.host == host)
        ).scalar()
    if stored is None:
        raise exception.AgentNotFound(host=host)
    if not hmac.compare_digest(stored, digest(key)):
        raise exception.Forbidden(
            f"Another one is the agent of host {host}, by its key. If it is gone for good, "
            f"an administrator removes it: attachd-manage agent remove {host}"
        )


@retried
def record_report(host: str, values: Mapping[str, Any]) -> None:
    """Note what a known host says of itself.

    :param values: connector, devices, connector_type, version, error
    """
    stored = {
        **values,
        "error": models.truncate_error(values.get("error")),
        "seen_at": models.now(),
    }
    with session.writer() as connection:
        connection.execute(sa.update(_AGENTS).where(_AGENTS.c.host == host).values(stored))


@retried
def list_assigned(host: str, attachment_id: str | None = None) -> list[Row]:
    """Return what the agent of a host has to see to: it makes a device of each, or takes it away.

    :param attachment_id: only this one
    :returns: rows of attachments, oldest first, with secrets, and ``volume_size_gib``,
        ``volume_shared_targets``, ``volume_host``
    """
    columns = (
        _VOLUMES.c[name].label(f"volume_{name}") for name in ("size_gib", "shared_targets", "host")
    )
    statement = (
        sa.select(_ATTACHMENTS, *columns)
        .join(_VOLUMES, _VOLUMES.c.id == _ATTACHMENTS.c.volume_id)
        .where(_ATTACHMENTS.c.agent == host, _ATTACHMENTS.c.state.in_(sorted(WITH_ACCESS)))
        .order_by(_ATTACHMENTS.c.created_at, _ATTACHMENTS.c.id)
    )
    if attachment_id is not None:
        statement = statement.where(_ATTACHMENTS.c.id == attachment_id)
    with session.reader() as connection:
        return [dict(row._mapping) for row in connection.execute(statement)]


_MAX_LISTED: Final = 10


def delete(host: str) -> None:
    """Forget a host that has nothing attached.

    :raises AgentNotFound: nobody knows it
    :raises Conflict: there are attachments that its agent sees to; ten of them are named
    """
    if not _delete_unused(host):
        get(host)
        raise _in_use_error(host, list_attachment_ids(host))


def force_delete(host: str) -> None:
    """Forget a host, whatever there is of it.

    :raises AgentNotFound: nobody knows it
    """
    if not _delete(host):
        raise exception.AgentNotFound(host=host)


@retried
def list_attachment_ids(host: str) -> list[str]:
    """Return the ids of the attachments that the agent of a host sees to, oldest first."""
    statement = (
        sa.select(_ATTACHMENTS.c.id)
        .where(_ATTACHMENTS.c.agent == host)
        .order_by(_ATTACHMENTS.c.created_at, _ATTACHMENTS.c.id)
    )
    with session.reader() as connection:
        return [str(item) for item in connection.execute(statement).scalars()]


@retried
def _delete_unused(host: str) -> bool:
    with session.writer() as connection:
        # Whoever is about to have it attach something is waited for, or waits; see
        # agents.lock_for_share().
        connection.execute(
            sa.select(_AGENTS.c.host).where(_AGENTS.c.host == host).with_for_update()
        )
        if connection.execute(
            sa.select(_ATTACHMENTS.c.id).where(_ATTACHMENTS.c.agent == host).limit(1)
        ).first():
            return False
        return connection.execute(sa.delete(_AGENTS).where(_AGENTS.c.host == host)).rowcount == 1


def _in_use_error(host: str, remaining: list[str]) -> exception.Conflict:
    more = f" and {len(remaining) - _MAX_LISTED} more" if len(remaining) > _MAX_LISTED else ""
    return exception.Conflict(
        reason=f"The agent of host {host} sees to {len(remaining)} attachments: "
        f"{', '.join(remaining[:_MAX_LISTED])}{more}. Delete them first."
    )
