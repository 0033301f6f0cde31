# SPDX-License-Identifier: Apache-2.0
"""Counts of rows by state, for monitoring; four statements."""

from collections import Counter
from collections.abc import Mapping
import datetime
import math
from typing import Any, NamedTuple

import prometheus_client
import sqlalchemy as sa

from attachd.conf import CONF
from attachd.db import models
from attachd.db.cluster import services
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.states import VISIBLE_KINDS, AttachmentState, ConditionState, VolumeState
from attachd.telemetry.metrics import COMMITS, STATEMENTS

_ATTACHMENTS, _VOLUMES, _SERVICES, _AGENTS, _MEMBERS, _EVENTS = (
    models.attachments,
    models.volumes,
    models.services,
    models.agents,
    models.members,
    models.events,
)

_ATTACHMENTS_IN_PROGRESS = (
    AttachmentState.CONNECTING,
    AttachmentState.WITHDRAWING,
    AttachmentState.DISCONNECTING,
)
_VOLUMES_IN_PROGRESS = (
    *(VolumeState.CREATING, VolumeState.DELETING, VolumeState.EXTENDING),
    *(VolumeState.MANAGING, VolumeState.UNMANAGING),
)


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
    :ivar unread_events: events without a revision, because no watcher has read them yet
    """

    attachments: Counts
    conditions: dict[str, int]
    volumes: dict[str, int]
    overdue: Counts
    backends: list[BackendReport]
    pools: list[PoolReport]
    agents: dict[str, int]
    processes: int
    unread_events: int


@retried
def count(overdue_after: float) -> RowCounts:
    """Count the rows.

    :param overdue_after: seconds without a change, for rows with work in progress
    :raises Unavailable: the database does not answer
    """
    long_ago = models.now() - datetime.timedelta(seconds=overdue_after)
    with session.reader() as connection:
        attachments = connection.execute(_attachments(long_ago)).all()
        volumes = connection.execute(_volumes(long_ago)).all()
        backends = connection.execute(
            sa.select(_SERVICES.c.host, _SERVICES.c.up, _SERVICES.c.seen_at, _SERVICES.c.report)
        ).all()
        agents, alive, conflicts, processes, events = connection.execute(_others()).one()
    by_status: dict[str, int] = {}
    for status, _state, many, _late in volumes:
        by_status[status] = by_status.get(status, 0) + int(many)
    return RowCounts(
        _by_state(attachments),
        _by_condition(attachments),
        by_status,
        _overdue(attachments, volumes),
        [_to_report(*row[:3]) for row in backends],
        [pool for row in backends for pool in _to_pools(row.host, row.report)],
        {"up": alive, "down": agents - alive - conflicts, "conflict": conflicts},
        int(processes),
        int(events),
    )


def _by_state(attachments: Any) -> Counter[tuple[str, ...]]:
    counts = Counter[tuple[str, ...]]()
    for row in attachments:
        counts[row.kind, row.state] += int(row.many)
    return counts


def _by_condition(attachments: Any) -> dict[str, int]:
    counts = {state.value: 0 for state in ConditionState}
    for row in attachments:
        if row.state == AttachmentState.ATTACHED and row.kind in VISIBLE_KINDS:
            counts[row.condition_state or ConditionState.UNKNOWN.value] += int(row.many)
    return counts


def _overdue(attachments: Any, volumes: Any) -> dict[tuple[str, ...], int]:
    counts: dict[tuple[str, ...], int] = {
        ("attachment", str(item)): 0 for item in _ATTACHMENTS_IN_PROGRESS
    }
    counts |= {("volume", str(item)): 0 for item in _VOLUMES_IN_PROGRESS}
    for kind, rows in (("attachment", attachments), ("volume", volumes)):
        for _name, state, _many, late, *_condition in rows:
            if late and (kind, state) in counts:
                counts[kind, state] += int(late)
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


def _attachments(long_ago: datetime.datetime) -> sa.Select[Any]:
    return sa.select(
        _ATTACHMENTS.c.kind,
        _ATTACHMENTS.c.state,
        sa.func.count().label("many"),
        _count_late(_ATTACHMENTS, _ATTACHMENTS_IN_PROGRESS, long_ago),
        _ATTACHMENTS.c.condition_state,
    ).group_by(_ATTACHMENTS.c.kind, _ATTACHMENTS.c.state, _ATTACHMENTS.c.condition_state)


def _volumes(long_ago: datetime.datetime) -> sa.Select[Any]:
    return sa.select(
        _VOLUMES.c.status,
        _VOLUMES.c.state,
        sa.func.count(),
        _count_late(_VOLUMES, _VOLUMES_IN_PROGRESS, long_ago),
    ).group_by(_VOLUMES.c.status, _VOLUMES.c.state)


def _count_late(table: Any, states: Any, long_ago: datetime.datetime) -> Any:
    touched = sa.func.coalesce(table.c.updated_at, table.c.created_at)
    late = sa.and_(table.c.state.in_([str(item) for item in states]), touched < long_ago)
    return sa.func.sum(sa.case((late, 1), else_=0))


def _others() -> sa.Select[Any]:
    """Count agents, living ones, those in conflict, processes, and events without a revision."""
    oldest = models.now() - datetime.timedelta(seconds=CONF.agent.down_time)
    agents = sa.select(sa.func.count()).select_from(_AGENTS)
    is_single = _AGENTS.c.conflict.is_(None)
    alive = agents.where(_AGENTS.c.seen_at >= oldest, is_single)
    processes = sa.select(sa.func.count()).select_from(_MEMBERS)
    events = sa.select(sa.func.count()).select_from(_EVENTS).where(_EVENTS.c.revision.is_(None))
    return sa.select(
        agents.scalar_subquery(),
        alive.scalar_subquery(),
        agents.where(~is_single).scalar_subquery(),
        processes.scalar_subquery(),
        events.scalar_subquery(),
    )


def statement_totals() -> dict[prometheus_client.Counter, float]:
    """Return how many statements and transactions this process has sent to its database."""
    counters = session.counters()
    return {STATEMENTS: counters.statements, COMMITS: counters.writing_transactions}
