# SPDX-License-Identifier: Apache-2.0
"""The fences and drains of hosts: where nothing may be attached, since when and why.

Both are stored before the attachments of the host are listed, and a manager reads them after it
has stored that an attachment is connecting, and before it calls the driver.  So each connect is
either refused or listed.

A host may be fenced and drained, and both end independently.

Which host is meant, under each spelling of its name and by each of its initiators, is decided by
attachd.host_identity with the table that host_identities.py keeps.
"""

from collections.abc import Collection, Mapping, Sequence
import contextlib
import datetime
import enum
from typing import Any, Final

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception, host_identity
from attachd.db import models
from attachd.db.attachments import statements
from attachd.db.engine import paging, session
from attachd.db.engine.retry import retried
from attachd.db.row_types import AttachmentRow, AttachmentWithVolumeRow, HostFenceRow
from attachd.host_identity import HostIdentity, HostIndex
from attachd.states import CONNECTOR_FIXED, DETACHING, INACTIVE, AttachmentKind

_FENCES = models.host_fences
_IDENTITIES = models.host_identities
_AGENTS = models.agents
_ATTACHMENTS = models.attachments

_IS_FENCED = _FENCES.c.fenced_at.is_not(None)
_IS_DRAINED = _FENCES.c.drained_at.is_not(None)
IS_CLOSED: Final = sa.or_(_IS_FENCED, _IS_DRAINED)

NOTIFY_TIMEOUT: Final = datetime.timedelta(seconds=60)
"""How long other processes leave a notification to the one that has claimed it."""

_CONNECTIONS = _ATTACHMENTS.alias("connections")
_SERVED = sa.select(_CONNECTIONS.c.parent_id).where(
    _CONNECTIONS.c.parent_id.is_not(None), _CONNECTIONS.c.state.not_in(sorted(INACTIVE))
)

_MAY_HAVE_ACCESS: Final = (
    _ATTACHMENTS.c.state.in_(sorted(CONNECTOR_FIXED)),
    _ATTACHMENTS.c.connector.is_not(None),
)
_WITHOUT_CONNECTION: Final = (
    _ATTACHMENTS.c.kind == AttachmentKind.LEGACY.value,
    _ATTACHMENTS.c.connector.is_(None),
    _ATTACHMENTS.c.id.not_in(_SERVED),
)
"""Of legacy attachments."""


class Notified(enum.StrEnum):
    """The last notification about a fence; stored in ``host_fences.notified``."""

    START = "start"
    UNFINISHED = "unfinished"
    """That of the end, with attachments whose hosts may still have access."""
    END = "end"


class Lift(enum.StrEnum):
    """How a fence ends; stored in ``host_fences.lift``."""

    AUTO = "auto"
    """When the agent of the host reports that it was started again and has no device left."""
    MANUAL = "manual"
    """Only by a request."""


@retried
def fence(
    host: str, reason: str, user_id: str | None, lift: Lift = Lift.MANUAL
) -> tuple[HostFenceRow, bool]:
    """Fence a host; a host that is fenced stays as it is, except that its fence becomes manual.

    A caller that has fenced it has claimed the notification of the start.

    :returns: the row, and whether the host was not fenced before
    """
    while True:
        # Else another process has fenced or drained it meanwhile, for the first time.
        with contextlib.suppress(db_exception.DBDuplicateEntry):
            with session.writer() as connection:
                is_new = fence_in(connection, host, reason, user_id, lift=lift)
            row = _find(host)
            assert row is not None, "a fence is never deleted"
            return row, is_new


def fence_in(
    connection: sa.Connection, host: str, reason: str, user_id: str | None, *, lift: Lift
) -> bool:
    """Do as :func:`fence`, as a part of a transaction; return whether the host was not fenced.

    :raises DBDuplicateEntry: another process has stored the host for the first time meanwhile
    """
    boot_id = sa.select(_AGENTS.c.boot_id).where(_AGENTS.c.host == host).scalar_subquery()
    present = models.now()
    values = {
        "fenced_at": present,
        "last_fenced_at": present,
        "reason": reason,
        "user_id": user_id,
        "boot_id": boot_id,
        "notified": None,
        "notify_after": present + NOTIFY_TIMEOUT,
        "lift": lift.value,
    }
    raised = (
        sa.update(_FENCES)
        .where(_FENCES.c.host == host, ~_IS_FENCED)
        .values(generation=_FENCES.c.generation + 1, updated_at=models.now(), **values)
    )
    if connection.execute(raised).rowcount == 1:
        return True
    if connection.execute(sa.select(_FENCES.c.host).where(_FENCES.c.host == host)).first():
        if lift is Lift.MANUAL:
            keep_in(connection, host)
        return False
    new = {"host": host, "host_key": host_identity.host_key(host), "generation": 1}
    connection.execute(sa.insert(_FENCES).values(**new, **values))
    return True


def keep_in(connection: sa.Connection, host: str) -> None:
    """Let the fence of a host end only by a request, as a part of a transaction."""
    is_auto = _FENCES.c.lift == Lift.AUTO.value
    kept = sa.update(_FENCES).where(_FENCES.c.host == host, _IS_FENCED, is_auto)
    connection.execute(kept.values(lift=Lift.MANUAL.value))


@retried
def drain(host: str, reason: str | None, user_id: str | None) -> tuple[HostFenceRow, bool]:
    """Take a host out of service; a host that is drained stays as it is.

    :returns: the row, and whether the host was not drained before
    """
    values: dict[str, Any] = {
        "drained_at": models.now(),
        "drain_reason": reason,
        "drain_user_id": user_id,
        "drain_detach": {},
        "drain_ended": False,
    }
    update = sa.update(_FENCES).where(_FENCES.c.host == host, ~_IS_DRAINED)
    while True:
        is_new = session.write(update.values(updated_at=models.now(), **values)) == 1
        is_new = is_new or _insert(host, {"generation": 0, **values})
        row = _find(host)
        # Another process may have fenced it meanwhile, for the first time.
        if row is not None and (is_new or row["drained_at"] is not None):
            return row, is_new


def _insert(host: str, values: Mapping[str, Any]) -> bool:
    try:
        new = {"host": host, "host_key": host_identity.host_key(host)}
        session.write(sa.insert(_FENCES).values(**new, **values))
    except db_exception.DBDuplicateEntry:
        return False
    return True


@retried
def add_detaches(drained: HostFenceRow, volume_ids: Mapping[str, str]) -> bool:
    """Store that attachments are to be detached from a drained host; False: it is not any more.

    Its drain begins anew.

    :param drained: the row, as of :func:`drain`
    :param volume_ids: of the attachments, by their ids
    """
    this = sa.and_(
        _FENCES.c.host == drained["host"], _FENCES.c.drained_at == drained["drained_at"]
    )
    with session.writer() as connection:
        asked = connection.execute(
            sa.select(_FENCES.c.drain_detach).where(this).with_for_update()
        ).first()
        if asked is None:
            return False
        detach = {**asked.drain_detach, **volume_ids}
        values = {"drain_detach": detach, "drain_ended": False}
        connection.execute(sa.update(_FENCES).where(this).values(values))
    return True


@retried
def list_draining() -> list[HostFenceRow]:
    """Return the rows of drained hosts whose drains have not ended yet, by name."""
    statement = sa.select(_FENCES).where(_IS_DRAINED, _FENCES.c.drain_ended.is_(False))
    return session.fetch_all(statement.order_by(_FENCES.c.host), HostFenceRow)


@retried
def claim_drain_end(drained: HostFenceRow) -> bool:
    """Claim the notification that a drain has ended.

    :param drained: the row as it was read
    :returns: False: another process has claimed it, or more was asked for since
    """
    claimed = sa.update(_FENCES).where(
        _FENCES.c.host == drained["host"],
        _FENCES.c.drained_at == drained["drained_at"],
        _FENCES.c.drain_ended.is_(False),
    )
    return session.write(claimed.values(drain_ended=True)) == 1


@retried
def resume(host: str) -> bool:
    """End the drain of a host; return whether it was drained."""
    ended = sa.update(_FENCES).where(_FENCES.c.host == host, _IS_DRAINED)
    values = {"drained_at": None, "drain_detach": None, "updated_at": models.now()}
    return session.write(ended.values(values)) == 1


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
def find(host: str) -> HostFenceRow | None:
    """Return the row of a host, also if all has ended; None: it was never fenced or drained."""
    return _find(host)


def _find(host: str) -> HostFenceRow | None:
    return session.fetch_one(sa.select(_FENCES).where(_FENCES.c.host == host), HostFenceRow)


@retried
def find_fence(host: str) -> HostFenceRow | None:
    """Return the fence of a host under any spelling of its name; None: it is not fenced."""
    key = host_identity.host_key(host)
    statement = sa.select(_FENCES).where(_FENCES.c.host_key == key, _IS_FENCED)
    rows = session.fetch_all(statement, HostFenceRow)
    if all(row["host"] == host for row in rows):
        return next(iter(rows), None)
    with session.reader() as connection:
        known = _get_identities(connection, [host, *(row["host"] for row in rows)])
    return next(
        (row for row in rows if host_identity.is_same_host(known[row["host"]], known[host])), None
    )


@retried
def list_closed() -> list[HostFenceRow]:
    """Return the rows of all hosts that are fenced or drained, by name."""
    statement = sa.select(_FENCES).where(IS_CLOSED).order_by(_FENCES.c.host)
    return session.fetch_all(statement, HostFenceRow)


@retried
def page_closed(page: paging.NamePage) -> list[HostFenceRow]:
    """Return the rows of one page of :func:`list_closed`."""
    statement = sa.select(_FENCES).where(IS_CLOSED)
    return session.fetch_all(paging.select_by_name(statement, _FENCES.c.host, page), HostFenceRow)


@retried
def count_closed() -> int:
    """Return the number of hosts that are fenced or drained."""
    statement = sa.select(sa.func.count()).select_from(_FENCES).where(IS_CLOSED)
    with session.reader() as connection:
        return int(connection.execute(statement).scalar_one())


@retried
def check(host: str) -> None:
    """Check that no host of a name is fenced or drained.

    :raises HostFenced: it is fenced, or drained (HostDrained)
    """
    with session.reader() as connection:
        check_in(connection, HostIdentity(host))


def check_in(connection: sa.Connection, identity: HostIdentity, *, is_new: bool = True) -> None:
    """Check that a host is neither fenced nor drained, as a part of a transaction.

    :param is_new: whether it is for a new connection: a drain does not concern the others
    :raises HostFenced: it is fenced, or drained (HostDrained); the error has the name under which
        it was fenced
    """
    rows = find_closed_in(connection, identity)
    for row in rows:
        if row["fenced_at"] is not None:
            raise exception.HostFenced(
                host=row["host"], since=_moment(row["fenced_at"]), reason=row["reason"]
            )
    for row in rows if is_new else ():
        raise exception.HostDrained(
            host=row["host"],
            since=_moment(row["drained_at"]),
            user_id=row["drain_user_id"],
            reason=row["drain_reason"] or "no reason was given",
        )


def find_closed_in(connection: sa.Connection, identity: HostIdentity) -> list[HostFenceRow]:
    """Return the rows of fenced or drained hosts that are this host, by name."""
    owners = sa.select(_IDENTITIES.c.host_key).where(
        _IDENTITIES.c.identifier.in_(sorted(identity.identifiers))
    )
    is_candidate = sa.or_(_FENCES.c.host_key == identity.key, _FENCES.c.host_key.in_(owners))
    statement = sa.select(_FENCES).where(is_candidate, IS_CLOSED).order_by(_FENCES.c.host)
    found: list[Any] = [dict(row._mapping) for row in connection.execute(statement)]
    rows: list[HostFenceRow] = found
    known = _get_identities(connection, [row["host"] for row in rows]) if rows else {}
    return [row for row in rows if host_identity.is_same_host(identity, known[row["host"]])]


def _get_identities(connection: sa.Connection, hosts: Collection[str]) -> dict[str, HostIdentity]:
    """Return the identities of hosts by their names.

    A host has the identifiers that are stored for its name; if there are none, those of the only
    host that another spelling of the name is stored for.
    """
    keys = sorted({host_identity.host_key(host) for host in hosts})
    columns = (_IDENTITIES.c.identifier, _IDENTITIES.c.host)
    rows = connection.execute(sa.select(*columns).where(_IDENTITIES.c.host_key.in_(keys))).all()
    index = HostIndex((HostIdentity(row.host), row) for row in rows)
    return {
        host: HostIdentity(host, _find_identifiers(host, index.list_same(HostIdentity(host))))
        for host in hosts
    }


def _find_identifiers(host: str, similar: Sequence[Any]) -> frozenset[str]:
    """Return the identifiers of a host.

    :param similar: rows of the table under spellings of its name
    """
    own = {row.identifier for row in similar if host_identity.is_equal_name(row.host, host)}
    if not own and len({row.host for row in similar}) == 1:
        own = {row.identifier for row in similar}
    return frozenset(own)


@retried
def get_identities(hosts: Collection[str]) -> dict[str, HostIdentity]:
    """Return what is known of hosts, by the names under which they are known."""
    with session.reader() as connection:
        return _get_identities(connection, hosts)


@retried
def get_identity(host: str) -> HostIdentity:
    """Return what is known of a host under any spelling of its name.

    :returns: with the name under which it was fenced or drained, or else under which it is known;
        the given name if it is unknown
    :raises Conflict: several hosts may be meant
    """
    key = host_identity.host_key(host)
    with session.reader() as connection:
        fences = sa.select(_FENCES.c.host).where(_FENCES.c.host_key == key)
        owners = sa.select(_IDENTITIES.c.host).where(_IDENTITIES.c.host_key == key)
        stored = [sorted({*connection.scalars(names)}) for names in (fences, owners)]
        known = _get_identities(connection, {host, *stored[0], *stored[1]})
    for names in stored:
        if host in names:
            break
        same = [name for name in names if host_identity.is_same_host(known[name], known[host])]
        equal = [name for name in same if host_identity.is_equal_name(name, host)]
        if len(same) > 1 and not equal:
            raise exception.Conflict(
                reason=f"Several hosts may be called {host}: {', '.join(same)}. Give one of these "
                "names."
            )
        if same:
            return known[(equal or same)[0]]
    return known[host]


def _moment(value: datetime.datetime | None) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S} UTC"


def is_fenced_in(connection: sa.Connection, row: AttachmentRow) -> bool:
    """Return whether the host of an attachment is fenced, as a part of a transaction."""
    return any(
        closed["fenced_at"] is not None
        for identity in _identities_of(row)
        for closed in find_closed_in(connection, identity)
    )


@retried
def check_attachment(row: AttachmentRow) -> None:
    """Check that the host of an attachment is not fenced, before access is granted again.

    :raises HostFenced: it is
    """
    with session.reader() as connection:
        for identity in _identities_of(row):
            check_in(connection, identity, is_new=False)


def _identities_of(row: AttachmentRow) -> list[HostIdentity]:
    """Return the identities of the host of an attachment, and of that of its agent."""
    agent = [HostIdentity(row["agent"])] if row["agent"] else []
    return [host_identity.of_row(row), *agent]


@retried
def list_attachments(host: str) -> list[AttachmentWithVolumeRow]:
    """Return the attachments by which a host has access or may have it, oldest first.

    Those of an agent belong to the agent's host.

    :returns: rows as of attachment_store.get(), of all kinds
    """
    return list_attachments_of([host])[host]


@retried
def list_attachments_of(hosts: Sequence[str]) -> dict[str, list[AttachmentWithVolumeRow]]:
    """Do as :func:`list_attachments` for several hosts; return the rows by host."""
    return _list_rows(hosts, *_MAY_HAVE_ACCESS)


@retried
def list_to_fence(hosts: Sequence[str]) -> list[AttachmentWithVolumeRow]:
    """Return what is fenced with hosts: what :func:`list_attachments` returns, and legacy
    attachments that name one of them and have no connection.

    :returns: rows as there, each once
    """
    return _list_to_fence(hosts)


def _list_to_fence(
    hosts: Sequence[str], *conditions: sa.ColumnElement[bool]
) -> list[AttachmentWithVolumeRow]:
    found = [
        rows
        for kind in (_MAY_HAVE_ACCESS, _WITHOUT_CONNECTION)
        for rows in _list_rows(hosts, *kind, *conditions).values()
    ]
    return [*{row["id"]: row for rows in found for row in rows}.values()]


def _list_rows(
    hosts: Sequence[str], *conditions: sa.ColumnElement[bool]
) -> dict[str, list[AttachmentWithVolumeRow]]:
    """Return the attachments of hosts that meet conditions, by host, oldest first."""
    if not hosts:
        return {}
    with session.reader() as connection:
        known = _get_identities(connection, hosts)
    identifiers = sorted(frozenset().union(*(item.identifiers for item in known.values())))
    is_of_host = sa.or_(
        _ATTACHMENTS.c.host_key.in_(sorted({item.key for item in known.values()})),
        _ATTACHMENTS.c.agent.in_(sorted(known)),
        _ATTACHMENTS.c.initiator_key.in_(identifiers),
    )
    statement = statements.WITH_VOLUME.where(is_of_host, *conditions)
    ordered = statement.order_by(_ATTACHMENTS.c.created_at, _ATTACHMENTS.c.id)
    rows = session.fetch_all(ordered, AttachmentWithVolumeRow)
    index = HostIndex((known[host], host) for host in known)
    found: dict[str, list[AttachmentWithVolumeRow]] = {host: [] for host in hosts}
    for row in rows:
        same = {*index.list_same(host_identity.of_row(row))}
        if row["agent"] in found:
            same.add(row["agent"])
        for host in same:
            found[host].append(row)
    return found


@retried
def list_unfenced(hosts: Sequence[str]) -> list[AttachmentWithVolumeRow]:
    """Return the attachments of fenced hosts for which the fence has not begun yet.

    Those that are detached already are left out: a user who forces that needs no proof.

    :returns: as :func:`list_to_fence`
    """
    return _list_to_fence(
        hosts,
        _ATTACHMENTS.c.fenced.is_not(sa.true()),
        _ATTACHMENTS.c.state.not_in(sorted(DETACHING)),
    )


@retried
def list_fenced() -> list[HostFenceRow]:
    """Return the rows of all hosts that are fenced, by name."""
    statement = sa.select(_FENCES).where(_IS_FENCED).order_by(_FENCES.c.host)
    return session.fetch_all(statement, HostFenceRow)


@retried
def list_to_notify() -> list[HostFenceRow]:
    """Return the fences whose start or end has to be notified.

    A fence that is lifted has an end if it had a start.

    :returns: rows of hosts, by name
    """
    is_open = sa.or_(_FENCES.c.notified.is_(None), _FENCES.c.notified != Notified.END.value)
    is_due = sa.or_(_IS_FENCED, _FENCES.c.notified.is_not(None))
    statement = sa.select(_FENCES).where(is_open, is_due).order_by(_FENCES.c.host)
    return session.fetch_all(statement, HostFenceRow)


@retried
def claim_notification(fenced: HostFenceRow) -> bool:
    """Claim the next notification about a fence for this process, for NOTIFY_TIMEOUT.

    :param fenced: the row as it was read
    :returns: False: another process has claimed or sent it
    """
    is_free = sa.or_(_FENCES.c.notify_after.is_(None), _FENCES.c.notify_after <= models.now())
    claimed = sa.update(_FENCES).where(_is_same_notification(fenced), is_free)
    return session.write(claimed.values(notify_after=models.now() + NOTIFY_TIMEOUT)) == 1


@retried
def record_notified(fenced: HostFenceRow, notified: Notified) -> None:
    """Store that a notification about a fence was sent.

    :param fenced: the row as it was read before
    """
    sent = sa.update(_FENCES).where(_is_same_notification(fenced))
    session.write(sent.values(notified=notified.value, notify_after=None))


def _is_same_notification(fenced: HostFenceRow) -> sa.ColumnElement[bool]:
    """Return whether a fence is the one that was read, and nothing was notified since."""
    last = fenced["notified"]
    return sa.and_(
        _FENCES.c.host == fenced["host"],
        _FENCES.c.generation == fenced["generation"],
        _FENCES.c.notified.is_(None) if last is None else _FENCES.c.notified == last,
    )
