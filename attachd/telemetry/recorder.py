# SPDX-License-Identifier: Apache-2.0
"""Record metrics, if they are enabled; otherwise each call costs one test of a variable.

The values of a process are in its memory, or, where several processes export as one, in files that
they map.  A value that cannot be recorded is lost: an operation must not fail because of metrics.
There are no gauges here: they are computed on request, so a process that dies leaves no stale
values.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import fcntl
import functools
import os
from pathlib import Path
import threading
import time
from typing import Any

from oslo_log import log
import prometheus_client
from prometheus_client import multiprocess, values

from attachd import exception
from attachd.telemetry.catalogue import COUNTED, FAST, Metric

LOG = log.getLogger(__name__)


class Recorder:
    """The counters and histograms of this process.

    :ivar registry: the registry that is exported
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Create all metrics.

        :param folder: shared with other processes; None: there are none
        :raises ConfigurationError: it cannot be used
        """
        self._lock = threading.Lock()
        self._totals: dict[str, float] = {}
        own = self.registry = prometheus_client.CollectorRegistry()
        if folder is not None:
            _map_into(folder)
            self.registry = prometheus_client.CollectorRegistry()
            collector: Any = multiprocess.MultiProcessCollector
            collector(self.registry, str(folder))
        self._made = {each.name: _make(each, own) for each in COUNTED}
        self.child = functools.cache(self._child)

    def _child(self, metric: Metric, labels: tuple[str, ...]) -> Any:
        made = self._made[metric.name]
        return made.labels(*labels) if metric.labels else made

    def follow_total(self, metric: Metric, total: float) -> None:
        """Update a counter from an external total, which may restart at 0."""
        with self._lock:
            before = self._totals.get(metric.name, 0.0)
            self._totals[metric.name] = total
            more = total - before if total >= before else total
        self.child(metric, ()).inc(more)


def _map_into(folder: Path) -> None:
    """Keep values in files from now on.

    The library decides that by an environment variable when it is imported, long before the
    configuration is read, so its value class is set here.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
        own: Any = values.MultiProcessValue(ProcessSlots(folder).acquire)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise exception.ConfigurationError(
            reason=f"[metrics]directory: {folder} cannot be used: {error.strerror}."
        ) from error
    values.ValueClass = own


def _make(metric: Metric, registry: prometheus_client.CollectorRegistry) -> Any:
    if metric.kind == "counter":
        return prometheus_client.Counter(
            metric.name, metric.help, metric.labels, registry=registry
        )
    return prometheus_client.Histogram(
        metric.name, metric.help, metric.labels, registry=registry, buckets=FAST
    )


class _State:
    recorder: Recorder | None = None
    failure = ""  # the last failure to record a value


_state = _State()


def start(folder: Path | None = None) -> Recorder:
    """Record in this process, and in its forked children, from now on.

    :param folder: see :class:`Recorder`
    :returns: the existing recorder, if there is one
    """
    if _state.recorder is None:
        _state.recorder = Recorder(folder)
    return _state.recorder


def stop() -> None:
    """Stop recording, and drop the values; for tests."""
    _state.recorder, _state.failure = None, ""


def is_on() -> bool:
    """Return whether metrics are recorded."""
    return _state.recorder is not None


def count(metric: Metric, *labels: str, by: float = 1) -> None:
    """Add to a counter.

    :param labels: values, in the order of the metric's names
    """
    if (recorder := _state.recorder) is not None:
        try:
            recorder.child(metric, labels).inc(by)
        except Exception as error:  # noqa: BLE001  metrics must not end what they measure
            _log_failure(error)


def init_counter(metric: Metric, *labels: str) -> None:
    """Export a counter as 0 from now on, so that its first increment is visible as a rise."""
    count(metric, *labels, by=0)


def observe(metric: Metric, seconds: float, *labels: str) -> None:
    """Record a duration in a histogram."""
    if (recorder := _state.recorder) is not None:
        try:
            recorder.child(metric, labels).observe(seconds)
        except Exception as error:  # noqa: BLE001  metrics must not end what they measure
            _log_failure(error)


def _log_failure(error: Exception) -> None:
    """Log why metrics are not recorded, once per reason."""
    if _state.failure != (said := f"{type(error).__name__}: {error}"):
        _state.failure = said
        LOG.warning("Metrics of this process are not recorded: %s", said)


def sync_external(totals: Mapping[Metric, float]) -> None:
    """Update counters from totals that are counted elsewhere."""
    if _state.recorder is not None:
        for metric, total in totals.items():
            _state.recorder.follow_total(metric, total)


OutcomeMapper = Callable[[Exception], str]
"""Maps an error to a value of the label ``outcome``; there are few such values."""


@contextlib.contextmanager
def timed(
    counter: Metric,
    histogram: Metric,
    *labels: str,
    outcome_of: OutcomeMapper = lambda _error: "error",
) -> Iterator[None]:
    """Count the block and record its duration, whether it succeeds or fails.

    :param counter: has the histogram's labels, and ``outcome``: "ok", or the value of
        ``outcome_of``
    """
    if _state.recorder is None:
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


class ProcessSlots:
    """Small numbers for the living processes of a machine that share a folder.

    The values of a process are in files with its number.  The next process that gets the number
    continues them, so there are never more files than processes at a time, and no counter
    decreases when a process ends.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._owner = 0
        self._number = 0
        self._file: int | None = None

    def acquire(self) -> int:
        """Return the number of the calling process; a forked one gets another than its parent.

        :raises OSError: the folder cannot be used
        """
        if self._owner == os.getpid():
            return self._number
        with self._lock:
            if self._owner != os.getpid():
                self._take()
            return self._number

    def _take(self) -> None:
        former, self._file = self._file, None
        if former is not None:
            os.close(former)  # the parent's, whose lock this does not end
        number = 0
        while (file := _locked(self._folder / f"process-{number}.lock")) is None:
            number += 1
        self._file, self._number, self._owner = file, number, os.getpid()


def _locked(path: Path) -> int | None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file
