# SPDX-License-Identifier: Apache-2.0
"""The agents table: which hosts attach by themselves; for the API, and the managers' registry.

Of the key that an agent proves itself with there is only a digest.
"""

from collections.abc import Mapping
import datetime
import hashlib
import hmac
from typing import Any

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import api, models
from attachd.states import WITH_ACCESS

Row = dict[str, Any]
_T = models.agents
_A = models.attachments
_V = models.volumes


def digest(key: str) -> str:
    """Return what is stored of a key; it is long and drawn by chance, so one round will do."""
    return hashlib.sha256(key.encode()).hexdigest()


@api.retried
def add(host: str, key: str) -> bool:
    """Make a host known; False if it is already, whatever its key."""
    try:
        with api.writer() as connection:
            values = {"host": host, "key_digest": digest(key)}
            connection.execute(sa.insert(_T).values(values))
    except db_exception.DBDuplicateEntry:
        return False
    return True


@api.retried
def remove(host: str) -> bool:
    """Forget a host, and its key with it; False if nobody knew it."""
    with api.writer() as connection:
        return connection.execute(sa.delete(_T).where(_T.c.host == host)).rowcount == 1


def keep(connection: sa.Connection, host: str) -> None:
    """Keep a host from being forgotten until a transaction ends, which locks nothing after it.

    :raises AgentNotFound: it is, already
    """
    wanted = sa.select(_T.c.host).where(_T.c.host == host)
    if connection.execute(wanted.with_for_update(read=True, key_share=True)).first() is None:
        raise exception.AgentNotFound(host=host)


@api.retried
def get(host: str) -> Row:
    """Return what is known of a host.

    :returns: the row, without the digest, and ``alive``
    :raises AgentNotFound: nothing
    """
    with api.reader() as connection:
        row = connection.execute(sa.select(_T).where(_T.c.host == host)).one_or_none()
    if row is None:
        raise exception.AgentNotFound(host=host)
    return _known(row)


@api.retried
def all_() -> list[Row]:
    """Return all hosts, by name; rows as of :func:`get`."""
    with api.reader() as connection:
        return [_known(row) for row in connection.execute(sa.select(_T).order_by(_T.c.host))]


def _known(row: sa.Row[Any]) -> Row:
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


@api.retried
def check(host: str, key: str) -> None:
    """Let whoever shows a key be the agent of a host.

    :raises AgentNotFound: nobody knows the host
    :raises Forbidden: another one is its agent
    """
    with api.reader() as connection:
        stored = connection.execute(sa.select(_T.c.key_digest).where(_T.c.host == host)).scalar()
    if stored is None:
        raise exception.AgentNotFound(host=host)
    if not hmac.compare_digest(stored, digest(key)):
        raise exception.Forbidden(
            f"Another one is the agent of host {host}, by its key. If it is gone for good, "
            f"an administrator removes it: attachd-manage agent remove {host}"
        )


@api.retried
def report(host: str, values: Mapping[str, Any]) -> None:
    """Note what a known host says of itself.

    :param values: connector, devices, connector_type, version, error
    """
    stored = {
        **values,
        "error": models.shortened(values.get("error")),
        "seen_at": models.now(),
    }
    with api.writer() as connection:
        connection.execute(sa.update(_T).where(_T.c.host == host).values(stored))


@api.retried
def work(host: str, attachment_id: str | None = None) -> list[Row]:
    """Return what the agent of a host has to see to: it makes a device of each, or takes it away.

    :param attachment_id: only this one
    :returns: rows of attachments, oldest first, with secrets, and ``volume_size_gib``,
        ``volume_shared_targets``, ``volume_host``
    """
    columns = (
        _V.c[name].label(f"volume_{name}") for name in ("size_gib", "shared_targets", "host")
    )
    wanted = (
        sa.select(_A, *columns)
        .join(_V, _V.c.id == _A.c.volume_id)
        .where(_A.c.agent == host, _A.c.state.in_(sorted(WITH_ACCESS)))
        .order_by(_A.c.created_at, _A.c.id)
    )
    if attachment_id is not None:
        wanted = wanted.where(_A.c.id == attachment_id)
    with api.reader() as connection:
        return [dict(row._mapping) for row in connection.execute(wanted)]
