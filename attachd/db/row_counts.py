# SPDX-License-Identifier: Apache-2.0
"""Counts of rows by state, for monitoring: one process counts at a time, for all."""

from collections import Counter
from collections.abc import Mapping, Sequence
import datetime
import enum
import math
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypedDict

import prometheus_client
import sqlalchemy as sa

from attachd.conf import CONF
from attachd.db import models
from attachd.db.cluster import services
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.states import VISIBLE_KINDS, AttachmentState, ConditionState, VolumeState
from attachd.telemetry.metrics import COMMITS, STATEMENTS

_ATTACHMENTS, _VOLUMES, _SERVICES, _AGENTS, _MEMBERS, _EVENTS, _ROW_COUNTS = (
    models.attachments,
    models.volumes,
    models.services,
    models.agents,
    models.members,
    models.events,
    models.row_counts,
)

_VOLUMES_IN_PROGRESS = (
    *(VolumeState.CREATING, VolumeState.DELETING, VolumeState.EXTENDING),
    *(VolumeState.MANAGING, VolumeState.UNMANAGING),
    *(VolumeState.DOWNLOADING, VolumeState.UPLOADING),
)
_IN_PROGRESS: Final[Mapping[str, Sequence[enum.StrEnum]]] = MappingProxyType(
    {
        "attachment": (
            AttachmentState.CONNECTING,
            AttachmentState.WITHDRAWING,
            AttachmentState.DISCONNECTING,
        ),
        "volume": _VOLUMES_IN_PROGRESS,
    }
)

# in the order of an index, which counts without a temporary table
_STATES = (_ATTACHMENTS.c.state, _ATTACHMENTS.c.kind, _ATTACHMENTS.c.condition_state)
_BY_STATE = sa.select(*_STATES, sa.func.count()).group_by(*_STATES)
_STATUSES = (_VOLUMES.c.status, _VOLUMES.c.state)
_BY_STATUS = sa.select(*_STATUSES, sa.func.count()).group_by(*_STATUSES)
_BACKENDS = sa.select(_SERVICES.c.host, _SERVICES.c.up, _SERVICES.c.seen_at, _SERVICES.c.report)
_PROCESSES = sa.select(sa.func.count()).select_from(_MEMBERS)


Counts = Mapping[tuple[str, ...], int]
"""Numbers of rows, by their state."""


class BackendReport(NamedTuple):
    """The last report of a backend.

    :ivar age: seconds since then
    """

    backend: str
    up: bool
    age: float


class PoolReport(NamedTuple):
    """The capacity of a pool by the last report of its backend; ``inf``: no limit.

    :ivar pool: the name of the backend, if that reports no pools
    """

    backend: str
    pool: str
    total_gib: float
    free_gib: float
    allocated_gib: float


class RowCounts(NamedTuple):
    """Numbers of rows, by their states.

    :ivar attachments: by kind and state
    :ivar conditions: of attached attachments, by their states
    :ivar volumes: by status
    :ivar overdue: by "attachment" or "volume", and state
    :ivar agents: by "up", "down" and "conflict"
    :ivar processes: of managers
    :ivar events_without_revision: events without a revision yet
    :ivar age: seconds since the rows were counted; backends, pools and processes are of now
    """

    attachments: Counts
    conditions: dict[str, int]
    volumes: dict[str, int]
    overdue: Counts
    backends: list[BackendReport]
    pools: list[PoolReport]
    agents: dict[str, int]
    processes: int
    events_without_revision: int
    age: float


class _Numbers(TypedDict):
    """The numbers of a count of large tables, as they are stored for all processes.

    :ivar attachments: state, kind, condition and number
    :ivar volumes: status, state and number
    :ivar overdue: "attachment" or "volume", state and number
    """

    attachments: list[tuple[str, str, str | None, int]]
    volumes: list[tuple[str, str, int]]
    overdue: list[tuple[str, str, int]]
    agents: dict[str, int]
    events_without_revision: int


_COUNT_ABANDONED: Final = datetime.timedelta(seconds=300)
"""After so long a count has ended, or its process has died."""


@retried
def count(overdue_after: float, fresh_for: float) -> RowCounts:
    """Return the numbers of rows, which one process counts for all.

    :param overdue_after: seconds without a change, for rows with work in progress
    :param fresh_for: seconds after which they are counted again; meanwhile other processes get
        the former numbers
    :raises Unavailable: the database does not answer
    """
    now, seen = models.now(), session.fetch_one(sa.select(_ROW_COUNTS), _StoredRow)
    assert seen is not None, "the migration adds it"
    numbers, counted_at = seen["numbers"], seen["counted_at"] or now
    # Of another clock, or of one that was wrong, it may be from the future.
    is_fresh = abs((now - counted_at).total_seconds()) < fresh_for
    if numbers is None or (not is_fresh and _claim(seen, now)):
        numbers, counted_at = _count(now - datetime.timedelta(seconds=overdue_after)), now
        _store(numbers, counted_at)
    age = max(0.0, (models.now() - counted_at).total_seconds())
    return _combine(numbers, age)


class _StoredRow(TypedDict):
    """The last count, and the one in progress; None before the first."""

    id: int
    counted_at: datetime.datetime | None
    claimed_at: datetime.datetime | None
    numbers: _Numbers | None


def _claim(seen: _StoredRow, now: datetime.datetime) -> bool:
    """Return whether this process is to count."""
    claimed = _ROW_COUNTS.c.claimed_at
    statement = (
        sa.update(_ROW_COUNTS)
        .where(
            _ROW_COUNTS.c.counted_at == seen["counted_at"],
            claimed.is_(None) | ~claimed.between(now - _COUNT_ABANDONED, now + _COUNT_ABANDONED),
        )
        .values(claimed_at=now)
    )
    with session.writer() as connection:
        return connection.execute(statement).rowcount == 1


def _store(numbers: _Numbers, counted_at: datetime.datetime) -> None:
    values = {"numbers": numbers, "counted_at": counted_at, "claimed_at": None}
    with session.writer() as connection:
        connection.execute(sa.update(_ROW_COUNTS).values(values))


def _count(long_ago: datetime.datetime) -> _Numbers:
    """Count the rows of large tables, most of them by entries of indexes alone."""
    with session.reader() as connection:
        attachments = connection.execute(_BY_STATE).all()
        volumes = connection.execute(_BY_STATUS).all()
        busy = {status for status, state, _many in volumes if state in _VOLUMES_IN_PROGRESS}
        overdue = [
            *connection.execute(_count_late("attachment", _ATTACHMENTS, long_ago)),
            *connection.execute(
                _count_late("volume", _VOLUMES, long_ago).where(_VOLUMES.c.status.in_(busy))
            ),
        ]
        agents, alive, conflicts, events = connection.execute(_others()).one()
    return {
        "attachments": [tuple(row) for row in attachments],
        "volumes": [tuple(row) for row in volumes],
        "overdue": [tuple(row) for row in overdue],
        "agents": {"up": alive, "down": agents - alive - conflicts, "conflict": conflicts},
        "events_without_revision": events,
    }


def _combine(numbers: _Numbers, age: float) -> RowCounts:
    """Return numbers that were counted before, with the backends and processes of now."""
    with session.reader() as connection:
        backends = connection.execute(_BACKENDS).all()
        processes = connection.execute(_PROCESSES).scalar_one()
    by_status = Counter[str]()
    for status, _state, many in numbers["volumes"]:
        by_status[status] += many
    return RowCounts(
        _by_state(numbers),
        _by_condition(numbers),
        {**by_status},
        _by_work(numbers),
        [_to_report(*row[:3]) for row in backends],
        [pool for row in backends for pool in _to_pools(row.host, row.report)],
        numbers["agents"],
        int(processes),
        numbers["events_without_revision"],
        age,
    )


def _by_state(numbers: _Numbers) -> Counter[tuple[str, ...]]:
    counts = Counter[tuple[str, ...]]()
    for state, kind, _condition, many in numbers["attachments"]:
        counts[kind, state] += many
    return counts


def _by_condition(numbers: _Numbers) -> dict[str, int]:
    counts = {state.value: 0 for state in ConditionState}
    for state, kind, condition, many in numbers["attachments"]:
        if state == AttachmentState.ATTACHED and kind in VISIBLE_KINDS:
            counts[condition or ConditionState.UNKNOWN.value] += many
    return counts


def _by_work(numbers: _Numbers) -> dict[tuple[str, ...], int]:
    counts: dict[tuple[str, ...], int] = {
        (resource, state.value): 0 for resource, states in _IN_PROGRESS.items() for state in states
    }
    counts |= {(resource, state): many for resource, state, many in numbers["overdue"]}
    return counts


def _to_report(host: str, up: bool, seen_at: datetime.datetime) -> BackendReport:  # noqa: FBT001  a column
    age = max(0.0, (models.now() - seen_at).total_seconds())
    return BackendReport(host, bool(up) and seen_at >= services.alive_since(), age)


def _to_pools(backend: str, report: Mapping[str, Any] | None) -> list[PoolReport]:
    """Return the pools of a report; a backend that reports none is one."""
    if not report:
        return []
    name = report.get("capabilities", {}).get("pool_name", backend.rpartition("@")[2])
    return [
        PoolReport(
            backend,
            pool["name"],
            *(
                math.inf if pool.get(field) is None else pool[field]
                for field in ("total_gib", "free_gib", "allocated_gib")
            ),
        )
        for pool in report.get("pools") or [{**report, "name": name}]
    ]


def _count_late(resource: str, table: sa.Table, long_ago: datetime.datetime) -> sa.Select[Any]:
    touched = sa.func.coalesce(table.c.updated_at, table.c.created_at)
    states = [state.value for state in _IN_PROGRESS[resource]]
    return (
        sa.select(sa.literal(resource), table.c.state, sa.func.count())
        .where(table.c.state.in_(states), touched < long_ago)
        .group_by(table.c.state)
    )


def _others() -> sa.Select[Any]:
    """Count agents, living ones, those in conflict, and events without a revision."""
    oldest = models.now() - datetime.timedelta(seconds=CONF.agent.down_time)
    agents = sa.select(sa.func.count()).select_from(_AGENTS)
    is_single = _AGENTS.c.conflict.is_(None)
    alive = agents.where(_AGENTS.c.seen_at >= oldest, is_single)
    events = sa.select(sa.func.count()).select_from(_EVENTS).where(_EVENTS.c.revision.is_(None))
    return sa.select(
        agents.scalar_subquery(),
        alive.scalar_subquery(),
        agents.where(~is_single).scalar_subquery(),
        events.scalar_subquery(),
    )


def statement_totals() -> dict[prometheus_client.Counter, float]:
    """Return how many statements and transactions this process has sent to its database."""
    counters = session.counters()
    return {STATEMENTS: counters.statements, COMMITS: counters.writing_transactions}
