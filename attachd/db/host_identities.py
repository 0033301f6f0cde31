# SPDX-License-Identifier: Apache-2.0
"""The host of each initiator and machine id, as connectors and agents name them.

The table has one row for each identifier, so the first host that names it is its owner.  A row is
a claim by its source.  It counts as long as its owner has an attachment or an agent with it, or
until an administrator removes the agent that it was assigned to.  Another host may take over what
nothing uses, and what only a source has claimed that is less trusted.
"""

from collections.abc import Collection, Sequence
import contextlib
import datetime
import enum
import functools
from typing import Any, Final, TypedDict

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception, host_identity
from attachd.db import host_fences, models
from attachd.db.engine import session
from attachd.db.engine.compiled import CompiledSelect
from attachd.db.engine.retry import retried
from attachd.db.row_types import AttachmentRow, HostIdentityRow
from attachd.host_identity import Connector, HostIdentity
from attachd.states import CONNECTOR_FIXED

_IDENTITIES = models.host_identities
_FENCES = models.host_fences
_AGENTS = models.agents
_ATTACHMENTS = models.attachments

UNUSED_AFTER: Final = datetime.timedelta(days=1)
"""When a claim is removed that no attachment uses."""

_SIZES: Final = (4, 16, host_identity.MAX_IDENTIFIERS)
"""The numbers of identifiers that the statement of :func:`admit` is compiled for."""


class Source(enum.StrEnum):
    """Who has named the host of an identifier; stored in ``host_identities.source``."""

    CONNECTOR = "connector"
    """A user, in a connector."""
    SERVICE = "service"
    """A service with a service token, in a connector."""
    AGENT = "agent"
    """The agent of the host, in a report."""
    ADMIN = "admin"
    """An administrator."""


_TRUST: Final = {Source.CONNECTOR: 0, Source.SERVICE: 1, Source.AGENT: 1, Source.ADMIN: 2}
"""Whose claims end those of others: a user cannot keep an initiator from its host."""


class OwnerRow(TypedDict):
    """The host that has an identifier, and who has said so."""

    identifier: str
    host: str
    source: str


@functools.cache
def _lookup(size: int) -> CompiledSelect[OwnerRow]:
    """Return the statement that reads owners, and the closed hosts whose names may be the same."""
    names = [sa.bindparam(f"match_{number}", type_=sa.String) for number in range(size)]
    owners = sa.select(_IDENTITIES.c.identifier, _IDENTITIES.c.host, _IDENTITIES.c.source).where(
        _IDENTITIES.c.identifier.in_(names)
    )
    closed = sa.select(sa.literal_column("''"), _FENCES.c.host, sa.literal_column("''")).where(
        _FENCES.c.host_key == sa.bindparam("match_key"), host_fences.IS_CLOSED
    )
    return CompiledSelect(sa.select(sa.union_all(owners, closed).subquery()), OwnerRow)


@retried
def admit(row: AttachmentRow) -> None:
    """Check that the host of an attachment may get access, and keep its identifiers for it.

    One statement, except where a host is closed, or names an identifier for the first time.

    :param row: of the attachment, which is connecting
    :raises HostFenced: the host is fenced or drained, under this or another name
    :raises InitiatorTaken: it names an initiator of another host
    """
    identity = host_identity.of_row(row)
    source = get_source(row.get("agent"), by_service=row.get("by_service"))
    with session.reader() as connection:
        owners, closed = _read(connection, identity)
        if closed or _foreign(owners, identity):
            host_fences.check_in(connection, identity)
    if _has_changes(owners, identity, source):
        claim(identity, source)


def get_source(agent: str | None, *, by_service: bool | None) -> Source:
    """Return who has named the host of an attachment, by these columns of it."""
    if agent:
        return Source.AGENT
    return Source.SERVICE if by_service else Source.CONNECTOR


@retried
def check(connector: Connector, source: Source, former_host: str | None = None) -> None:
    """Check as :func:`admit`, and store nothing.

    :param connector: of an attachment that is to be made
    :param former_host: whose access ends before; what it has may become this host's
    :raises HostFenced, InitiatorTaken: as :func:`admit`
    """
    identity = host_identity.of_connector(connector)
    with session.reader() as connection:
        owners, closed = _read(connection, identity)
        foreign = _foreign(owners, identity)
        if closed or foreign:
            host_fences.check_in(connection, identity)
        for owner in foreign:
            is_former = former_host and host_identity.is_same_name(owner["host"], former_host)
            if owner["identifier"] in identity.initiators and not is_former:
                _check_may_take(connection, owner, identity, source, ends_use=True)


def _read(connection: sa.Connection, identity: HostIdentity) -> tuple[list[OwnerRow], bool]:
    """Return the rows of a host's identifiers, and whether a closed host has a similar name."""
    names = sorted(identity.identifiers)[: host_identity.MAX_IDENTIFIERS] or [""]
    size = next(size for size in _SIZES if size >= len(names))
    padded = [*names, *[names[0]] * (size - len(names))]
    values = {f"match_{number}": name for number, name in enumerate(padded)}
    rows = _lookup(size).fetch_all(connection, {**values, "match_key": identity.key})
    owners = [row for row in rows if row["identifier"]]
    return owners, len(owners) < len(rows)


def _foreign(owners: Sequence[OwnerRow], identity: HostIdentity) -> list[OwnerRow]:
    """Return the rows whose owner has another name than a host."""
    return [row for row in owners if not host_identity.is_same_name(row["host"], identity.name)]


def _has_changes(owners: Sequence[OwnerRow], identity: HostIdentity, source: Source) -> bool:
    """Return whether a claim is to be stored; a machine id stays that of the first host."""
    known = {row["identifier"]: row for row in owners}
    return any(
        item not in known
        or (item in identity.initiators and _is_to_change(known[item], identity, source))
        for item in identity.identifiers
    )


def _is_to_change(row: OwnerRow, identity: HostIdentity, source: Source) -> bool:
    """Return whether a claim replaces a row; of a host's own the most trusted source stays."""
    sources = [*Source]
    is_own = host_identity.is_same_name(row["host"], identity.name)
    return not is_own or sources.index(source) > sources.index(Source(row["source"]))


@retried
def claim(identity: HostIdentity, source: Source, *, ends_use: bool = True) -> None:
    """Store that the identifiers of a host are its own.

    :param ends_use: whether it may take what another host uses that a less trusted source named
    :raises InitiatorTaken: another host has one of them
    """
    while True:
        # Another process may store or change one at this moment: read again.
        with contextlib.suppress(db_exception.DBDuplicateEntry):
            with session.writer() as connection:
                taken = _claim_in(connection, identity, source, ends_use=ends_use)
            if source is not Source.ADMIN:
                _confirm(taken, identity, source, ends_use=ends_use)
            return


def _claim_in(
    connection: sa.Connection, identity: HostIdentity, source: Source, *, ends_use: bool
) -> list[OwnerRow]:
    """Store a claim; return the rows of former owners of other names that were not weaker.

    :raises InitiatorTaken: another host has one of the identifiers
    :raises DBDuplicateEntry: a row has changed since it was read
    """
    known = {row["identifier"]: row for row in _read(connection, identity)[0]}
    taken = []
    for item in sorted(identity.identifiers):
        row = known.get(item)
        if row is None:
            values = {"identifier": item, **_owner(identity, source)}
            connection.execute(sa.insert(_IDENTITIES).values(values))
        elif item in identity.initiators and _is_to_change(row, identity, source):
            if _foreign([row], identity):
                _check_may_take(connection, row, identity, source, ends_use=ends_use)
                taken.append(row)
            _swap(connection, row, _owner(identity, source))
    return taken


def _owner(identity: HostIdentity, source: str) -> dict[str, Any]:
    return {"host": identity.name, "host_key": identity.key, "source": str(source)}


def _swap(connection: sa.Connection, row: OwnerRow, values: dict[str, Any]) -> None:
    """Change a row that is as it was read; raises DBDuplicateEntry: it is not."""
    same = (_IDENTITIES.c[name] == row[name] for name in ("identifier", "host", "source"))
    changed = sa.update(_IDENTITIES).where(*same).values(**values, updated_at=models.now())
    if connection.execute(changed).rowcount != 1:
        raise db_exception.DBDuplicateEntry


def _confirm(
    taken: Sequence[OwnerRow], identity: HostIdentity, source: Source, *, ends_use: bool
) -> None:
    """Return identifiers to former owners that have come to use them, or were fenced, meanwhile.

    An owner stores its attachment before it reads who has its initiators: so one of both sees the
    other.

    :raises InitiatorTaken: there is such an owner
    """
    for row in taken:
        former = HostIdentity(row["host"], frozenset({row["identifier"]}))
        with session.writer() as connection:
            try:
                _check_may_take(connection, row, identity, source, ends_use=ends_use)
            except exception.InitiatorTaken:
                own: OwnerRow = {**row, "host": identity.name, "source": str(source)}
                _swap(connection, own, _owner(former, row["source"]))
            else:
                continue
        raise _taken(row, identity)


def _check_may_take(
    connection: sa.Connection,
    row: OwnerRow,
    identity: HostIdentity,
    source: Source,
    *,
    ends_use: bool,
) -> None:
    """Check that nothing keeps an identifier for its owner.

    :raises InitiatorTaken: something does
    :raises HostFenced: an administrator assigns that of a fenced host
    """
    owner = HostIdentity(row["host"], frozenset({row["identifier"]}))
    if source is Source.ADMIN:
        host_fences.check_in(connection, owner, is_new=False)
        return
    if host_fences.find_closed_in(connection, owner):
        raise _taken(row, identity)
    if ends_use and _TRUST[Source(row["source"])] < _TRUST[source]:
        return
    if row["source"] == Source.ADMIN or _is_in_use(connection, owner):
        raise _taken(row, identity)


def _taken(row: OwnerRow, identity: HostIdentity) -> exception.InitiatorTaken:
    initiator = host_identity.value(row["identifier"])
    return exception.InitiatorTaken(host=identity.name, initiator=initiator, owner=row["host"])


def _is_in_use(connection: sa.Connection, owner: HostIdentity) -> bool:
    """Return whether a host has an attachment or an agent with an identifier."""
    agent = sa.select(_AGENTS.c.connector, _AGENTS.c.initiators).where(
        _AGENTS.c.host == owner.name
    )
    for connector, initiators in connection.execute(agent):
        reported = host_identity.of_connector(connector or {}).identifiers
        if owner.identifiers & {*reported, *(initiators or ())}:
            return True
    return bool(owner.identifiers & _list_attached(connection, owner))


def _list_attached(connection: sa.Connection, owner: HostIdentity) -> frozenset[str]:
    """Return the identifiers with which a host has attachments."""
    columns = (_ATTACHMENTS.c.host, _ATTACHMENTS.c.connector)
    attached = sa.select(*columns).where(
        _ATTACHMENTS.c.host_key == owner.key, _ATTACHMENTS.c.state.in_(sorted(CONNECTOR_FIXED))
    )
    return frozenset().union(
        *(
            host_identity.of_connector(connector or {}).identifiers
            for host, connector in connection.execute(attached)
            if host_identity.is_same_name(host, owner.name)
        )
    )


@retried
def release_former(identity: HostIdentity, limit: int) -> None:
    """End the claims of an agent that it does not report any more, and that its host does not use.

    Those of a closed host stay: they keep it from attaching under another name.

    :param identity: as the agent reports it now
    :raises Conflict: with those that stay, it has more than the limit
    """
    own = sa.and_(_IDENTITIES.c.host == identity.name, _IDENTITIES.c.source == Source.AGENT.value)
    ended: frozenset[str] = frozenset()
    with session.writer() as connection:
        claimed = frozenset(connection.scalars(sa.select(_IDENTITIES.c.identifier).where(own)))
        former = claimed - identity.identifiers
        if former and not host_fences.find_closed_in(connection, identity):
            ended = former - _list_attached(connection, identity)
            is_ended = _IDENTITIES.c.identifier.in_(sorted(ended))
            connection.execute(sa.delete(_IDENTITIES).where(own, is_ended))
            former -= ended
    if ended:
        # A connect that was stored meanwhile may have seen them.
        with session.reader() as connection:
            used = ended & _list_attached(connection, identity)
        claim(HostIdentity(identity.name, used), Source.AGENT, ends_use=False)
    if len(former | identity.identifiers) > limit:
        raise exception.Conflict(
            reason=f"Host {identity.name} reports {len(identity.identifiers)} initiators beside "
            f"{len(former)} that it had before, and may have {limit}."
        )


@retried
def list_assigned(host: str) -> frozenset[str]:
    """Return the identifiers that an administrator has assigned to a host."""
    statement = sa.select(_IDENTITIES.c.identifier).where(
        _IDENTITIES.c.host == host, _IDENTITIES.c.source == Source.ADMIN.value
    )
    with session.reader() as connection:
        return frozenset(connection.scalars(statement))


def release_in(connection: sa.Connection, host: str) -> None:
    """End what was assigned to a host; it keeps what it uses."""
    assigned = sa.update(_IDENTITIES).where(
        _IDENTITIES.c.host == host, _IDENTITIES.c.source == Source.ADMIN.value
    )
    connection.execute(assigned.values(source=Source.AGENT.value, updated_at=models.now()))


def purge(limit: int) -> int:
    """Remove claims of connectors that nothing has used for UNUSED_AFTER; return how many.

    Those of closed hosts stay.

    :param limit: how many at most
    """
    removed = _remove_unused(limit)
    # A connect that was stored meanwhile may have seen them.
    attached = _find_attached({row["host_key"] for row in removed})
    for row in removed:
        if row["host_key"] in attached:
            owner = HostIdentity(row["host"], frozenset({row["identifier"]}))
            with contextlib.suppress(exception.InitiatorTaken):
                claim(owner, Source(row["source"]), ends_use=False)
    return len(removed)


@retried
def _find_attached(keys: Collection[str]) -> set[str]:
    """Return those of some hosts, by their keys, that have an attachment."""
    if not keys:
        return set()
    found = sa.select(_ATTACHMENTS.c.host_key).where(_ATTACHMENTS.c.host_key.in_(keys)).distinct()
    with session.reader() as connection:
        return set(connection.scalars(found))


@retried
def _remove_unused(limit: int) -> list[HostIdentityRow]:
    """Remove some claims of connectors that nothing uses, and return them."""
    has_attachment = sa.exists().where(_ATTACHMENTS.c.host_key == _IDENTITIES.c.host_key)
    is_closed = sa.exists().where(
        _FENCES.c.host_key == _IDENTITIES.c.host_key, host_fences.IS_CLOSED
    )
    claimed_at = sa.func.coalesce(_IDENTITIES.c.updated_at, _IDENTITIES.c.created_at)
    is_unused = sa.and_(
        _IDENTITIES.c.source.in_([Source.CONNECTOR.value, Source.SERVICE.value]),
        claimed_at < models.now() - UNUSED_AFTER,
        ~has_attachment,
        ~is_closed,
    )
    with session.writer() as connection:
        unused = connection.execute(sa.select(_IDENTITIES).where(is_unused).limit(limit))
        found: list[Any] = [dict(row._mapping) for row in unused]
        rows: list[HostIdentityRow] = found
        names = [row["identifier"] for row in rows]
        if names:
            is_named = _IDENTITIES.c.identifier.in_(names)
            connection.execute(sa.delete(_IDENTITIES).where(is_named, is_unused))
    return rows
