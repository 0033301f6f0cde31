# SPDX-License-Identifier: Apache-2.0
"""Metrics of attachd for Prometheus, and the functions that record them.

While metrics are disabled, recording costs one test of a variable.  A value that cannot be
recorded is lost: an operation must not fail because of metrics.

If the environment has PROMETHEUS_MULTIPROC_DIR, prometheus_client keeps the values of each
process in files of that directory, and the processes export their sums.  Gauges are computed on
request and stored nowhere, so none has to be removed when a process ends.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import fcntl
import functools
import os
from pathlib import Path
import time
from typing import Any, Final, NamedTuple

from oslo_log import log
import prometheus_client
from prometheus_client import core

from attachd import exception

LOG = log.getLogger(__name__)

FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
BUCKETS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Upper bounds in seconds, from a fast database statement to a slow storage operation."""


def shared_folder() -> Path | None:
    """Return the directory through which several processes export as one; None: there is none."""
    path = os.environ.get(FOLDER_VARIABLE)
    return Path(path) if path else None


@contextlib.contextmanager
def lock_folder(folder: Path, mode: int) -> Iterator[None]:
    """Lock the names of the files, with fcntl.LOCK_SH to read them or LOCK_EX to change them."""
    with (folder / "lock").open("ab") as file:
        fcntl.flock(file, mode)
        yield


def continue_files() -> None:
    """Rename files of a process that has ended to those of this process.

    So there are never more files than processes at a time, and no sum decreases when a process
    ends.  Called before the first value of a process: on import, and after a fork.

    :raises ConfigurationError: the directory cannot be used
    """
    folder = shared_folder()
    if folder is None:
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock_folder(folder, fcntl.LOCK_EX):
            for kind in ("counter", "histogram"):
                _continue_file(folder, kind)
    except OSError as error:
        raise exception.ConfigurationError(
            reason=f"{FOLDER_VARIABLE}: {folder} cannot be used: {error.strerror}."
        ) from error


def _continue_file(folder: Path, kind: str) -> None:
    own = folder / f"{kind}_{os.getpid()}.db"
    if own.exists():
        return
    for path in folder.glob(f"{kind}_*.db"):
        if not Path("/proc", path.stem.removeprefix(f"{kind}_")).exists():
            path.rename(own)
            return


def _continue_files_after_fork() -> None:
    try:
        continue_files()
    except exception.ConfigurationError as error:
        _log_failure(error)


continue_files()
os.register_at_fork(after_in_child=_continue_files_after_fork)

REGISTRY: Final = prometheus_client.CollectorRegistry()
"""Counters and histograms; in files of several processes, if they share a directory."""

_counter = functools.partial(prometheus_client.Counter, registry=REGISTRY)
_duration = functools.partial(prometheus_client.Histogram, registry=REGISTRY, buckets=BUCKETS)

API_REQUESTS: Final = _counter(
    "attachd_api_requests_total",
    "Requests that the API has answered.",
    ("method", "endpoint", "status"),
)
API_DURATION: Final = _duration(
    "attachd_api_request_duration_seconds",
    "How long the API took for a request.",
    ("method", "endpoint"),
)
RPC_CALLS: Final = _counter(
    "attachd_rpc_calls_total",
    "Calls to managers and agents, as their senders saw them.",
    ("method", "outcome"),
)
RPC_DURATION: Final = _duration(
    "attachd_rpc_call_duration_seconds", "How long senders waited for an answer.", ("method",)
)
RPC_REFUSED: Final = _counter(
    "attachd_rpc_refused_total",
    "Calls that the API has refused, by the limit that they have reached.",
    ("limit",),
)
RPC_TURN_DURATION: Final = _duration(
    "attachd_rpc_turn_duration_seconds",
    "How long calls waited in the API for their turn, by the limit for which they had to wait.",
    ("limit",),
)
SERVED: Final = _counter(
    "attachd_served_total",
    "Calls that a backend has worked on.",
    ("server", "method", "outcome"),
)
SERVED_DURATION: Final = _duration(
    "attachd_served_duration_seconds",
    "How long a backend worked on a call, including the wait for the lease of the volume.",
    ("server", "method"),
)
QUEUE_DURATION: Final = _duration(
    "attachd_queue_duration_seconds",
    "How long calls waited in a manager for a thread, or for their volume.",
    ("server",),
)
STEPS: Final = _counter(
    "attachd_steps_total",
    "Steps of attaches, detaches and the like.",
    ("backend", "step", "outcome"),
)
STEP_DURATION: Final = _duration(
    "attachd_step_duration_seconds",
    "How long a storage driver took for a step.",
    ("backend", "step"),
)
RECOVERED: Final = _counter(
    "attachd_recovery_actions_total",
    "Actions of managers without a request.",
    ("backend", "action"),
)
PATHS_RESTORED: Final = _counter(
    "attachd_rpc_paths_restored_total",
    "Times that a server declared its exchange, queues and bindings again.",
    ("server",),
)
AGENT_MESSAGES_DROPPED: Final = _counter(
    "attachd_agent_messages_dropped_total",
    "Messages to the server for agents that no agent sends, by what was wrong.",
    ("reason",),
)
LOST_AGENTS: Final = _counter(
    "attachd_lost_agents_total",
    "Hosts whose agents were lost, by what was done: mark, fence or withheld.",
    ("action",),
)
PLATFORM_CALLS: Final = _counter(
    "attachd_platform_calls_total",
    "Calls that a driver for a container platform has answered.",
    ("driver", "call", "outcome"),
)
PLATFORM_DURATION: Final = _duration(
    "attachd_platform_call_duration_seconds",
    "How long a driver for a container platform took for a call.",
    ("driver", "call"),
)
STATEMENTS: Final = _counter(
    "attachd_database_statements_total", "SQL statements, without those that end transactions."
)
COMMITS: Final = _counter("attachd_database_commits_total", "Committed transactions.")


class Gauge(NamedTuple):
    """A metric whose values are computed when Prometheus requests them.

    :ivar labels: their names, in the order of the values
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()

    def family(self, values: Mapping[tuple[str, ...], float]) -> core.GaugeMetricFamily:
        """Return the gauge with its values, by the values of its labels."""
        family = core.GaugeMetricFamily(self.name, self.help, labels=self.labels)
        for labels, value in values.items():
            family.add_metric(labels, value)
        return family


ATTACHMENTS: Final = Gauge(
    "attachd_attachments", "Attachments, by kind and state.", ("kind", "state")
)
CONDITIONS: Final = Gauge(
    "attachd_attachment_conditions", "Attached attachments, by their condition.", ("state",)
)
VOLUMES: Final = Gauge("attachd_volumes", "Volumes, by status.", ("status",))
OVERDUE: Final = Gauge(
    "attachd_overdue", "Rows that have been in a transitional state for too long.",
    ("kind", "state"),
)  # fmt: skip
BACKEND_UP: Final = Gauge(
    "attachd_backend_up", "1: the backend reports, and its storage works.", ("backend",)
)
BACKEND_AGE: Final = Gauge(
    "attachd_backend_report_age_seconds", "Seconds since the backend's last report.", ("backend",)
)
POOL_TOTAL: Final = Gauge(
    "attachd_pool_total_gib", "GiB of the pool, by its last report.", ("backend", "pool")
)
POOL_FREE: Final = Gauge(
    "attachd_pool_free_gib", "GiB that are free, by the last report.", ("backend", "pool")
)
POOL_ALLOCATED: Final = Gauge(
    "attachd_pool_allocated_gib", "GiB that are promised to volumes.", ("backend", "pool")
)
QUEUED_CALLS: Final = Gauge(
    "attachd_queued_calls", "Calls that wait in the manager process that answers.", ("server",)
)
AGENTS: Final = Gauge("attachd_agents", "Agents of hosts: up, down or conflict.", ("status",))
MANAGERS: Final = Gauge("attachd_manager_processes", "Live processes of managers.")
EVENTS_WITHOUT_REVISION: Final = Gauge(
    "attachd_events_without_revision", "Events without a revision yet."
)
DATABASE_UP: Final = Gauge("attachd_database_up", "1: the database answered the last query.")
COUNT_AGE: Final = Gauge("attachd_count_age_seconds", "Seconds since the rows were counted last.")
PLATFORM_CALLS_IN_PROGRESS: Final = Gauge(
    "attachd_platform_calls_in_progress",
    "Calls on which the driver works that answers.",
    ("driver", "call"),
)
BUILD: Final = Gauge("attachd_build_info", "Always 1; the label is the release.", ("version",))


class _State:
    enabled = False
    failure = ""  # the last failure to record a value


_state = _State()
_totals: dict[Any, float] = {}


def enable() -> None:
    """Record in this process, and in its forked children, from now on."""
    _state.enabled = True


def disable() -> None:
    """Stop recording; for tests."""
    _state.enabled, _state.failure = False, ""
    _totals.clear()
    _child.cache_clear()


def is_enabled() -> bool:
    """Return whether metrics are recorded."""
    return _state.enabled


@functools.cache
def _child(metric: Any, labels: tuple[str, ...]) -> Any:
    """Return a metric with labels; cached, because labels() takes 2 microseconds."""
    return metric.labels(*labels) if labels else metric


def count(counter: prometheus_client.Counter, *labels: str, by: float = 1) -> None:
    """Add to a counter.

    :param labels: values, in the order of the metric's names; a value of 0 makes the counter
        visible, so that its first increment is visible as a rise
    """
    if _state.enabled:
        try:
            _child(counter, labels).inc(by)
        except Exception as error:  # noqa: BLE001  metrics must not end what they measure
            _log_failure(error)


def observe(histogram: prometheus_client.Histogram, seconds: float, *labels: str) -> None:
    """Record a duration in a histogram."""
    if _state.enabled:
        try:
            _child(histogram, labels).observe(seconds)
        except Exception as error:  # noqa: BLE001  metrics must not end what they measure
            _log_failure(error)


def _log_failure(error: Exception) -> None:
    """Log why metrics are not recorded, once per reason."""
    reason = f"{type(error).__name__}: {error}"
    if _state.failure != reason:
        _state.failure = reason
        LOG.warning("Metrics of this process are not recorded: %s", reason)


def sync_external(totals: Mapping[prometheus_client.Counter, float]) -> None:
    """Update counters from totals of another source, and may restart at 0.

    Called by one thread, that of the exporter.
    """
    for counter, total in totals.items() if _state.enabled else ():
        before = _totals.get(counter, 0.0)
        _totals[counter] = total
        count(counter, by=total - before if total >= before else total)


OutcomeMapper = Callable[[Exception], str]
"""Maps an error to a value of the label ``outcome``; there are few such values."""


@contextlib.contextmanager
def timed(
    counter: prometheus_client.Counter,
    histogram: prometheus_client.Histogram,
    *labels: str,
    outcome_of: OutcomeMapper = lambda _error: "error",
) -> Iterator[None]:
    """Count the block and record its duration, whether it succeeds or fails.

    :param counter: has the histogram's labels, and ``outcome``: "ok", or the value of
        ``outcome_of``
    """
    if not _state.enabled:
        yield
        return
    started, outcome = time.monotonic(), "ok"
    try:
        yield
    except Exception as error:
        outcome = outcome_of(error)
        raise
    finally:
        observe(histogram, time.monotonic() - started, *labels)
        count(counter, *labels, outcome)
