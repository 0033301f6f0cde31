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
from attachd.conf.manager import DEFAULT_LEASE
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
_NOT_FENCED: Final = sa.or_(
    _AGENTS.c.lost_action.is_(None), _AGENTS.c.lost_action != Action.FENCE.value
)

LOST: Final = "The agent of its host is lost since "
"""The begin of the error of attachments."""


SILENT_AFTER: Final = 1 / 3
"""The share of a lease without a heartbeat after which a host counts as silent."""


class HostLease(NamedTuple):
    """The lease of a host.

    :ivar heartbeat_at: when it was renewed
    :ivar silent_at: since when the host counts as silent
    :ivar age: seconds since the renewal
    :ivar length: the longest that its agent may know, in seconds; None: it was given none
    :ivar lost_action: what was done because it was over; None: nothing
    """

    host: str
    heartbeat_at: datetime.datetime
    silent_at: datetime.datetime
    age: float
    length: int | None
    lost_action: str | None


class Silence(NamedTuple):
    """Which hosts are silent at one moment.

    :ivar now: the moment, by the clock of the database
    :ivar host_leases: those of the hosts that are silent and not fenced because of it
    :ivar any_leased: whether any host that is not fenced so has a lease
    """

    now: datetime.datetime
    host_leases: list[HostLease]
    any_leased: bool


class FencedHost(NamedTuple):
    """A host that was fenced because its lease was over.

    :ivar length: as of :class:`HostLease`
    """

    host: str
    length: int | None


Report = dict[str, Any] | None
"""The last report of a backend; None: it has not reported."""


class RuleRow(TypedDict):
    """What the rule of an attachment follows from: its backend, and its type's extra specs."""

    volume_host: str | None
    type_specs: dict[str, str | None] | None


class _RuleRowOfHost(RuleRow):
    agent: str


class TooManyFences(Exception):
    """As many hosts were fenced in the last minute as may be because of their leases."""


@retried
def read_silence() -> Silence:
    """Return which hosts are silent: of the others nothing is read."""
    with session.reader() as connection:
        present = clock_skew.database_now(connection)
        leased = sa.exists().where(_AGENTS.c.lease.is_not(None), _NOT_FENCED)
        now, any_leased = connection.execute(sa.select(present.label("now"), leased)).one()
        names = ("host", "heartbeat_at", "silent_at", "lease", "lost_action")
        silent = sa.select(*(_AGENTS.c[name] for name in names)).where(
            _AGENTS.c.silent_at <= sa.bindparam("now", now, _AGENTS.c.silent_at.type), _NOT_FENCED
        )
        rows = connection.execute(silent.order_by(_AGENTS.c.host)).all()
    found = [
        HostLease(
            row.host,
            row.heartbeat_at,
            row.silent_at,
            (now - row.heartbeat_at).total_seconds(),
            row.lease,
            row.lost_action,
        )
        for row in rows
    ]
    return Silence(now, found, bool(any_leased))


@retried
def postpone(hosts: Collection[str], seconds: int) -> None:
    """Have silent hosts not count as silent for a while, unless their leases are renewed."""
    if not hosts:
        return
    with session.writer() as connection:
        present = clock_skew.database_now(connection)
        later = clock_skew.later(connection.dialect.name, present, seconds * 1_000_000)
        rows = sa.update(_AGENTS).where(_AGENTS.c.host.in_(hosts), _AGENTS.c.silent_at <= present)
        connection.execute(rows.values(silent_at=later))


@retried
def list_fenced(seconds: float) -> list[FencedHost]:
    """Return the hosts that were fenced because of their leases in the last seconds.

    A moment in the future counts as one in the past: the clock of the database may have been set.
    """
    with session.reader() as connection:
        present = connection.execute(sa.select(clock_skew.database_now(connection))).scalar_one()
        statement = sa.select(_AGENTS.c.host, _AGENTS.c.lease).where(
            _fenced_about(present, seconds)
        )
        return [FencedHost(*row) for row in connection.execute(statement)]


def _fenced_about(present: datetime.datetime, seconds: float) -> sa.ColumnElement[bool]:
    about = datetime.timedelta(seconds=seconds)
    return sa.and_(
        _AGENTS.c.lost_action == Action.FENCE.value,
        _AGENTS.c.lost_at.between(present - about, present + about),
    )


@retried
def count_leased() -> int:
    """Return the number of hosts that have, or had when they were fenced, a lease."""
    with session.reader() as connection:
        statement = sa.select(sa.func.count()).where(_AGENTS.c.lease.is_not(None))
        return int(connection.execute(statement).scalar_one())


@retried
def find_shortest() -> int | None:
    """Return the length of the shortest lease, in seconds; None: there is no lease."""
    with session.reader() as connection:
        found: int | None = connection.execute(sa.select(sa.func.min(_AGENTS.c.lease))).scalar()
        return found


@retried
def list_some(most: int) -> list[str]:
    """Return the names of some hosts."""
    with session.reader() as connection:
        statement = sa.select(_AGENTS.c.host).order_by(_AGENTS.c.host).limit(most)
        return [*connection.execute(statement).scalars()]


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
    reports = functools.cache(services.get_report)
    return {host: rules_of(rows, reports) for host, rows in found.items()}


def rules_of(
    rows: Iterable[RuleRow], get_report: Callable[[str], Report] = services.get_report
) -> list[Rule]:
    """Return what attachments ask for, each different rule once.

    :param get_report: returns the last report of a backend
    """
    pairs = [
        (
            (row["volume_host"] or "").partition("#")[0],
            {key: value for key, value in (row["type_specs"] or {}).items()
             if key in lost_agents.KEYS and value},
        )
        for row in rows
    ]  # fmt: skip
    backends = {backend for backend, specs in pairs if len(specs) < len(lost_agents.KEYS)}
    reports = {backend: get_report(backend) for backend in backends}
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
        if kind == "sqlite":  # It has no clock but that of this machine.
            silence = datetime.timedelta(microseconds=_silence(length))
            values |= {"heartbeat_at": models.now(), "silent_at": models.now() + silence}
        else:
            values["silence"] = _silence(length)
        return _renewal(kind).execute(connection, values) == 1


def _silence(length: int | None) -> int:
    """Return after how many microseconds without a heartbeat a host counts as silent.

    That is before it is fenced: an agent without a lease is not fenced before down_time.
    """
    seconds: int = length or min(CONF.agent.down_time, DEFAULT_LEASE)
    return round(seconds * SILENT_AFTER * 1_000_000)


@functools.cache
def _renewal(kind: str) -> CompiledStatement:
    """Return the statement of :func:`renew_unchanged`."""
    changed = sa.update(_AGENTS).where(
        _AGENTS.c.host == sa.bindparam("match_host"),
        *(_AGENTS.c[name] == sa.bindparam(f"match_{name}") for name in machines.ORDER),
        _AGENTS.c.lost_at.is_(None),
    )
    if kind != "sqlite":
        now, silence = clock_skew.NOW[kind], sa.bindparam("silence", type_=sa.BigInteger)
        silent_at = clock_skew.later(kind, now, silence)
        changed = changed.values(heartbeat_at=now, silent_at=silent_at)
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
    present = clock_skew.database_now(connection)
    renewed = {
        **values,
        "heartbeat_at": present,
        "silent_at": clock_skew.later(connection.dialect.name, present, _silence(length)),
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
    recent = sa.select(sa.func.count()).where(_fenced_about(present, 60))
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
    if action is Action.FENCE:
        ended = ended.values(silent_at=None)
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
