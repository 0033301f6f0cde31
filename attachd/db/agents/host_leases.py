# SPDX-License-Identifier: Apache-2.0
"""The leases of agents: each report renews the lease of a host's attachments.

The clock is the database's alone.  A host whose lease is over is lost: that is stored by a
comparison with the last renewal, so that of a renewal and the end of a lease one fails.  Of
several managers one succeeds.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
import datetime
import functools
from typing import Any, Final, NamedTuple, TypedDict

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import lost_agents
from attachd.conf import CONF
from attachd.db import host_fences, models
from attachd.db.agents import machines
from attachd.db.attachments import statements
from attachd.db.cluster import services
from attachd.db.engine import clock_skew, session
from attachd.db.engine.compiled import CompiledStatement
from attachd.db.engine.retry import retried
from attachd.db.row_types import MachineRow
from attachd.host_identity import HostIdentity
from attachd.lost_agents import Action, Rule
from attachd.states import WITH_ACCESS

_AGENTS = models.agents
_ATTACHMENTS = models.attachments
_VOLUMES = models.volumes
_MEMBERS = models.members

LOST: Final = "The agent of its host is lost since "
"""The begin of the error of attachments."""


class HostLease(NamedTuple):
    """The lease of a host.

    :ivar heartbeat_at: when it was renewed
    :ivar age: seconds since then
    :ivar length: the longest that its agent may know, in seconds; None: it was given none
    :ivar lost_action: what was done because it was over; None: nothing
    :ivar lost_for: seconds since then; None: nothing was done
    """

    host: str
    heartbeat_at: datetime.datetime
    age: float
    length: int | None
    lost_action: str | None
    lost_for: float | None = None


class RuleRow(TypedDict):
    """What the rule of an attachment follows from: its backend, and its type's extra specs."""

    volume_host: str | None
    type_specs: dict[str, str | None] | None


class _RuleRowOfHost(RuleRow):
    agent: str


class TooManyFences(Exception):
    """As many hosts were fenced in the last minute as may be because of their leases."""


@retried
def list_all() -> list[HostLease]:
    """Return the leases of all hosts whose agents have reported."""
    with session.reader() as connection:
        columns = (
            _AGENTS.c.host,
            _AGENTS.c.heartbeat_at,
            _AGENTS.c.lease,
            _AGENTS.c.lost_action,
            _AGENTS.c.lost_at,
            clock_skew.database_now(connection).label("now"),
        )
        rows = connection.execute(
            sa.select(*columns).where(_AGENTS.c.heartbeat_at.is_not(None))
        ).all()
    return [
        HostLease(
            row.host,
            row.heartbeat_at,
            (row.now - row.heartbeat_at).total_seconds(),
            row.lease,
            row.lost_action,
            None if row.lost_at is None else (row.now - row.lost_at).total_seconds(),
        )
        for row in rows
    ]


@retried
def list_rules(hosts: Collection[str]) -> dict[str, list[Rule]]:
    """Return what the attachments of the agents of these hosts ask for, by host."""
    statement = (
        sa.select(
            _ATTACHMENTS.c.agent, _VOLUMES.c.host.label("volume_host"), statements.TYPE_SPECS
        )
        .join(_VOLUMES, _VOLUMES.c.id == _ATTACHMENTS.c.volume_id)
        .where(_ATTACHMENTS.c.agent.in_(hosts), _ATTACHMENTS.c.state.in_(sorted(WITH_ACCESS)))
    )
    rows = session.fetch_all(statement, _RuleRowOfHost) if hosts else []
    found: dict[str, list[RuleRow]] = {}
    for row in rows:
        found.setdefault(row["agent"], []).append(row)
    return {host: rules_of(rows) for host, rows in found.items()}


def rules_of(rows: Iterable[RuleRow]) -> list[Rule]:
    """Return what attachments ask for, each different rule once."""
    pairs = [
        (
            (row["volume_host"] or "").partition("#")[0],
            {key: value for key, value in (row["type_specs"] or {}).items()
             if key in lost_agents.KEYS and value},
        )
        for row in rows
    ]  # fmt: skip
    backends = {backend for backend, specs in pairs if len(specs) < len(lost_agents.KEYS)}
    reports = {backend: services.get_report(backend) for backend in backends}
    rules = (_rule(specs, reports.get(backend)) for backend, specs in pairs)
    return list(dict.fromkeys(rules))


def _rule(specs: lost_agents.Specs, report: Mapping[str, Any] | None) -> Rule:
    backend = {key: report[key] for key in lost_agents.KEYS if key in report} if report else {}
    return lost_agents.parse(specs, backend)


@retried
def renew_unchanged(row: MachineRow, accepted: Mapping[str, Any], length: int | None) -> bool:
    """Store that a host has reported, with nothing new, and renew its lease.

    :param row: the row that the report was judged by, as of machines.read()
    :param accepted: as of machines.accept(), of the process whose report was stored before
    :param length: in seconds, as the agent has it and as the answer gives it
    :returns: False: another report was stored since, or the host counts as lost
    """
    values = {
        **accepted,
        "match_host": row["host"],
        **{f"match_{name}": row[name] for name in machines.ORDER},
        "lease": length,
        "seen_at": models.now(),
        "updated_at": models.now(),
    }
    with session.writer() as connection:
        kind = connection.dialect.name
        if kind == "sqlite":
            values["heartbeat_at"] = models.now()
        return _renewal(kind).execute(connection, values) == 1


@functools.cache
def _renewal(kind: str) -> CompiledStatement:
    """Return the statement of :func:`renew_unchanged`."""
    changed = sa.update(_AGENTS).where(
        _AGENTS.c.host == sa.bindparam("match_host"),
        *(_AGENTS.c[name] == sa.bindparam(f"match_{name}") for name in machines.ORDER),
        _AGENTS.c.lost_at.is_(None),
    )
    if kind != "sqlite":  # It has no clock but that of this machine.
        changed = changed.values(heartbeat_at=clock_skew.NOW[kind])
    return CompiledStatement(changed)


@retried
def check_writable(hosts: Collection[str]) -> None:
    """Write to the rows of hosts, as their reports do.

    :raises Unavailable: reports cannot be stored either
    """
    with session.writer() as connection:
        present = clock_skew.database_now(connection)
        rows = sa.update(_AGENTS).where(_AGENTS.c.host.in_(hosts))
        connection.execute(rows.values(updated_at=present))


def renew(
    connection: sa.Connection,
    host: str,
    values: Mapping[str, Any],
    length: int | None,
    reported: int | None = None,
    read: MachineRow | None = None,
) -> bool:
    """Store the report of a host, and renew its lease, unless the host was fenced as lost.

    :param length: in seconds, as the answer gives it to the agent
    :param reported: the length by which the agent says that it goes on, 0 if by none; None: the
        same
    :param read: the row that the report was judged by, as of machines.read(); None: any
    :returns: whether the host counted as lost, and does not any more
    :raises Changed: another report was stored since the row was read
    """
    renewed = {
        **values,
        "heartbeat_at": clock_skew.database_now(connection),
        "lease": length if reported is None else _longest(length, reported),
        "lost_at": None,
        "lost_action": None,
    }
    is_same = _AGENTS.c.host == host if read is None else machines.is_unchanged(read)
    changed = sa.update(_AGENTS).where(is_same)
    if connection.execute(changed.where(_AGENTS.c.lost_at.is_(None)).values(renewed)).rowcount:
        return False
    lost_at = connection.execute(sa.select(_AGENTS.c.lost_at).where(_AGENTS.c.host == host))
    same = _AGENTS.c.lost_at == lost_at.scalar()
    if not _is_fenced(connection, host) and (
        connection.execute(changed.where(same).values(renewed)).rowcount
    ):
        _store_error(connection, host, None)
        return True
    if not connection.execute(changed.values(**values)).rowcount and read is not None:
        raise machines.Changed
    return False


def _longest(length: int | None, reported: int) -> int | sa.ColumnElement[int]:
    """Return the longest lease by which an agent may go on: it may not get the answer.

    What it reports counts up to what it was given before, so that no host postpones its own fence.
    An agent without a lease counts as lost after down_time.
    """
    given, claimed = (seconds or CONF.agent.down_time for seconds in (length, reported))
    if claimed <= given:
        return given
    former = sa.func.coalesce(_AGENTS.c.lease, CONF.agent.down_time)
    return sa.case((former >= claimed, claimed), (former > given, former), else_=given)


def _is_fenced(connection: sa.Connection, host: str) -> bool:
    closed = host_fences.find_closed_in(connection, HostIdentity(host))
    return any(row["fenced_at"] is not None for row in closed)


@retried
def mark(host_lease: HostLease) -> bool:
    """Store that a host is lost, and show that at its attachments.

    :returns: False: its lease was renewed meanwhile, or another process has done it
    """
    with session.writer() as connection:
        if not _end(connection, host_lease, Action.MARK):
            return False
        _store_error(connection, host_lease.host, describe(host_lease))
    return True


@retried
def fence(
    host_lease: HostLease,
    max_per_minute: int | None = None,
    check: Callable[[], object] = lambda: None,
) -> bool:
    """Fence a host because it is lost, unless its lease was renewed meanwhile.

    :param max_per_minute: how many hosts all managers may fence so; None: any number
    :param check: is called before the commit; raises an exception if that was long in coming: a
        database that stores nothing for a while has reports wait as well
    :returns: False: it was renewed, the host is fenced already, or another process has done it
    :raises TooManyFences: as many were fenced in the last minute
    """
    reason = f"agent lost since {host_lease.heartbeat_at:%Y-%m-%d %H:%M:%S} UTC"
    try:
        with session.writer() as connection:
            _check_rate(connection, max_per_minute)
            ended = _end(connection, host_lease, Action.FENCE)
            is_new = ended and host_fences.fence_in(
                connection, host_lease.host, reason, None, lift=host_fences.Lift.AUTO
            )
            check()
            return is_new
    except db_exception.DBDuplicateEntry:
        return False  # An administrator fences it for the first time at this moment.


def _check_rate(connection: sa.Connection, max_per_minute: int | None) -> None:
    """Check that another host may be fenced now.

    A lock of one row that all managers know keeps others from the same check until the end of the
    transaction.

    :raises TooManyFences: it may not
    """
    if max_per_minute is None:
        return
    first = sa.select(_MEMBERS.c.id).order_by(_MEMBERS.c.started_at, _MEMBERS.c.id).limit(1)
    connection.execute(first.with_for_update()).all()
    present = connection.execute(sa.select(clock_skew.database_now(connection))).scalar_one()
    minute = datetime.timedelta(minutes=1)
    recent = sa.select(sa.func.count()).where(
        _AGENTS.c.lost_action == Action.FENCE.value,
        _AGENTS.c.lost_at.between(present - minute, present + minute),
    )
    if connection.execute(recent).scalar_one() >= max_per_minute:
        raise TooManyFences


def _end(connection: sa.Connection, host_lease: HostLease, action: Action) -> bool:
    """Store the end of a lease; False: it was renewed, or its end was stored, meanwhile."""
    same = _AGENTS.c.lost_action == host_lease.lost_action
    ended = (
        sa.update(_AGENTS)
        .where(
            _AGENTS.c.host == host_lease.host,
            _AGENTS.c.heartbeat_at == host_lease.heartbeat_at,
            _AGENTS.c.lost_action.is_(None) if host_lease.lost_action is None else same,
        )
        .values(lost_at=clock_skew.database_now(connection), lost_action=action.value)
    )
    return connection.execute(ended).rowcount == 1


def _store_error(connection: sa.Connection, host: str, error: str | None) -> None:
    """Store the error of a lost host with its attachments that have no other one."""
    known = _ATTACHMENTS.c.error.is_(None) if error else _ATTACHMENTS.c.error.startswith(LOST)
    connection.execute(
        sa.update(_ATTACHMENTS)
        .where(_ATTACHMENTS.c.agent == host, _ATTACHMENTS.c.state.in_(sorted(WITH_ACCESS)), known)
        .values(error=models.truncate_error(error))
    )


def describe(host_lease: HostLease) -> str:
    """Return the error of the attachments of a lost host."""
    return (
        f"{LOST}{host_lease.heartbeat_at:%Y-%m-%d %H:%M:%S} UTC: it may be dead, hang or be cut "
        "off. To attach its volumes elsewhere, fence it: openstack volume host fence "
        f"{host_lease.host}"
    )
