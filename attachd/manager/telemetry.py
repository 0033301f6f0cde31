# SPDX-License-Identifier: Apache-2.0
"""Metrics, traces and Guru Meditation Reports of a manager process, as far as they are enabled."""

from collections.abc import Callable, Iterable, Sequence
import functools
from typing import Any

from oslo_log import log
from prometheus_client import core

from attachd import exception, service
from attachd.conf import CONF
from attachd.db import row_counts
from attachd.db.engine import session
from attachd.drivers.base import Driver
from attachd.lost_agents import Action
from attachd.manager import backends
from attachd.manager.agents.fence_limiter import WITHHELD
from attachd.manager.backends import Backend
from attachd.manager.ownership import volume_lease
from attachd.manager.ownership.membership import Membership
from attachd.rpc import fair_dispatch
from attachd.rpc.admission import DROP_REASONS
from attachd.telemetry import exporter, gmr, metrics, tracing
from attachd.telemetry.cached_probe import Probe

LOG = log.getLogger(__name__)

STEPS = (
    "create",
    "clone",
    "delete",
    "extend",
    "grant",
    "revoke",
    "get_stats",
    "boot_id",
    "revoke_all_except",
)
"""The calls of a driver that are measured: those that take time and may fail.

A driver that lacks an ability lacks some of them.
"""

OUTCOMES = ("ok", "refused", "failed", "error")

RECOVERY_ACTIONS = ("takeover", "finish", "postpone", "regrant", "expire")
"""What managers do for a backend without a request."""

OVERDUE_AFTER = 60.0
"""Seconds after which a volume or an attachment in a transitional state counts as overdue."""

COUNT_TIMEOUT = 2.0
"""Seconds that a request of Prometheus waits for the database."""


def load_backends(membership: Membership) -> list[Backend]:
    """Do as backends.load(), and instrument the backends.

    :raises ConfigurationError: also where a library that traces need is not installed
    """
    loaded = backends.load(membership)
    add_report_sections(loaded)
    tracing.setup("attachd-manager")
    instrument(loaded)
    return loaded


def instrument(loaded: Iterable[Backend]) -> None:
    """Record metrics and traces of these backends, as far as they are enabled."""
    if CONF.metrics.enabled:
        metrics_exporter = exporter.get_exporter(
            "manager", service.version(), row_counts.statement_totals
        )
        metrics_exporter.add(RowCountCollector())
        metrics_exporter.add(QueueCollector())
        metrics_exporter.start()
        _show_counters(loaded)
    if CONF.metrics.enabled or tracing.is_on():
        for backend in loaded:
            instrument_driver(backend.host, backend.driver)


def _show_counters(loaded: Iterable[Backend]) -> None:
    """Show counters before their first event: without a 0 before it, Prometheus sees no rise."""
    for action in (Action.MARK, Action.FENCE, WITHHELD):
        metrics.count(metrics.LOST_AGENTS, action, by=0)
    for reason in DROP_REASONS:
        metrics.count(metrics.AGENT_MESSAGES_DROPPED, reason, by=0)
    metrics.count(metrics.RECOVERED, "", "remove_member", by=0)
    for backend in loaded:
        for action in RECOVERY_ACTIONS:
            metrics.count(metrics.RECOVERED, backend.host, action, by=0)


def instrument_driver(backend: str, driver: Driver) -> None:
    """Measure each call of this driver, and make it a span."""
    for step in (name for name in STEPS if hasattr(driver, name)):
        for outcome in OUTCOMES:
            metrics.count(metrics.STEPS, backend, step, outcome, by=0)
        setattr(driver, step, _timed(getattr(driver, step), backend, step))


def _timed(call: Callable[..., Any], backend: str, step: str) -> Callable[..., Any]:
    labels = metrics.STEPS, metrics.STEP_DURATION, backend, step

    @functools.wraps(call)
    def timed(*args: Any, **kwargs: Any) -> Any:
        with tracing.span(step, backend=backend), metrics.timed(*labels, outcome_of=_outcome):
            return call(*args, **kwargs)

    return timed


def _outcome(error: Exception) -> str:
    """Return "refused" if surely nothing was done, else "failed" or "error"."""
    if isinstance(error, exception.BackendError):
        return "refused" if error.final else "failed"
    return "failed" if isinstance(error, exception.AttachdError) else "error"


def count_recovery(backend: Backend, action: str, by: int = 1) -> None:
    """Count actions for a backend that no client has requested."""
    if by:
        metrics.count(metrics.RECOVERED, backend.host, action, by=by)


class RowCountCollector:
    """A Prometheus collector that counts rows, at most once in ``[metrics]count_interval``."""

    def __init__(self) -> None:
        self._probe = Probe(_count_rows, CONF.metrics.count_interval, COUNT_TIMEOUT)

    def describe(self) -> Iterable[core.Metric]:
        """Return nothing: a registration must not query the database."""
        return ()

    def collect(self) -> Iterable[core.Metric]:
        """Return the last counts with their age; without a database, only that it is down."""
        result = self._probe.answer()
        yield metrics.DATABASE_UP.family({(): float(result.error is None)})
        if result.error is not None:
            LOG.warning("Metrics: counting rows failed: %s", type(result.error).__name__)
        if result.value is not None:
            yield metrics.COUNT_AGE.family({(): result.age + result.value.age})
            # Old counts would look like present ones.
            if result.error is None:
                yield from _row_counts(result.value, result.age)


def _count_rows() -> row_counts.RowCounts:
    return row_counts.count(OVERDUE_AFTER, CONF.metrics.count_interval)


def _row_counts(counts: row_counts.RowCounts, age: float) -> Iterable[core.Metric]:
    yield metrics.ATTACHMENTS.family(counts.attachments)
    yield metrics.CONDITIONS.family({(key,): value for key, value in counts.conditions.items()})
    yield metrics.VOLUMES.family({(key,): value for key, value in counts.volumes.items()})
    yield metrics.OVERDUE.family(counts.overdue)
    yield metrics.AGENTS.family({(key,): value for key, value in counts.agents.items()})
    yield metrics.MANAGERS.family({(): counts.processes})
    yield metrics.EVENTS_WITHOUT_REVISION.family({(): counts.events_without_revision})
    yield metrics.BACKEND_UP.family({(row.backend,): row.up for row in counts.backends})
    yield metrics.BACKEND_AGE.family({(row.backend,): row.age + age for row in counts.backends})
    pools = {(row.backend, row.pool): row for row in counts.pools}
    yield metrics.POOL_TOTAL.family({key: row.total_gib for key, row in pools.items()})
    yield metrics.POOL_FREE.family({key: row.free_gib for key, row in pools.items()})
    yield metrics.POOL_ALLOCATED.family({key: row.allocated_gib for key, row in pools.items()})


class QueueCollector:
    """A Prometheus collector of the lengths of the queues of this process."""

    def describe(self) -> Iterable[core.Metric]:
        """Return nothing, as RowCountCollector."""
        return ()

    def collect(self) -> Iterable[core.Metric]:
        """Return how many calls wait for each server."""
        lengths: dict[tuple[str, ...], float]
        lengths = {(server,): float(calls) for server, calls, _ in fair_dispatch.queue_lengths()}
        yield metrics.QUEUED_CALLS.family(lengths)


def add_report_sections(loaded: Sequence[Backend]) -> None:
    """Add sections about these backends to the Guru Meditation Report of this process."""
    gmr.setup("attachd-manager")
    gmr.register_section("Database", session.pools)
    gmr.register_section("Backends", lambda: [_describe_backend(backend) for backend in loaded])
    gmr.register_section("Waiting calls", _describe_queues)
    gmr.register_section("Volume locks", _describe_locks)


def _describe_backend(backend: Backend) -> str:
    state = "ready" if backend.error is None else "down"
    tasks = "some" if backend.background_tasks.is_busy else "none"
    return (
        f"{backend.host} ({type(backend.driver).__name__}): {state}; threads for calls: "
        f"{CONF.manager.threads_per_backend}; background tasks: {tasks}; process "
        f"{backend.membership.id}"
    )


def _describe_queues() -> Iterable[str]:
    return [
        f"{server}: {calls} of {projects} projects"
        for server, calls, projects in fair_dispatch.queue_lengths()
    ]


def _describe_locks() -> Iterable[str]:
    """Describe who works on a volume or waits for it, without waiting for a lock."""
    return [
        f"{name}: held by one thread, {many - 1} waiting"
        for name, many in volume_lease.lock_waiters()
    ]
