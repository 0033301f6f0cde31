# SPDX-License-Identifier: Apache-2.0
"""Counts and measures, if that is wanted; else each call costs a look at a variable.

What one process counts is kept in its memory, or, where several tell it as one, in files that
they map into theirs (``slots``).  What cannot be counted there is lost: nobody's work may end
with an error of ours.  No gauge is kept: what may go down is found out when somebody asks, so a
process that dies leaves nothing behind that was true only of itself.
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
    """The counters of this process.

    :ivar registry: what Prometheus is told
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Make them all.

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
        """Have a counter follow one that is kept elsewhere, and may begin anew."""
        with self._lock:
            before = self._totals.get(metric.name, 0.0)
            self._totals[metric.name] = total
            more = total - before if total >= before else total
        self.child(metric, ()).inc(more)


def _map_into(folder: Path) -> None:
    """Keep values in files from now on.

    The library decides that by a variable of the environment when it is imported, long before
    any configuration is read; so it is told here.
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
    failure = ""  # what was wrong when something could not be counted last


_state = _State()


def start(folder: Path | None = None) -> Recorder:
    """Count in this process, and in what is forked from it, from now on.

    :param folder: see :class:`Recorder`
    :returns: the one that there is, if counting has begun already
    """
    if _state.recorder is None:
        _state.recorder = Recorder(folder)
    return _state.recorder


def stop() -> None:
    """Count no more, and forget what was counted; for tests."""
    _state.recorder, _state.failure = None, ""


def is_on() -> bool:
    """Tell whether anything is counted."""
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
    """Have a counter told as 0 from now on: what appears with its first rise has not risen."""
    count(metric, *labels, by=0)


def observe(metric: Metric, seconds: float, *labels: str) -> None:
    """Note in a histogram how long something took."""
    if (recorder := _state.recorder) is not None:
        try:
            recorder.child(metric, labels).observe(seconds)
        except Exception as error:  # noqa: BLE001  metrics must not end what they measure
            _log_failure(error)


def _log_failure(error: Exception) -> None:
    """Log what is wrong, once as long as it is the same."""
    if _state.failure != (said := f"{type(error).__name__}: {error}"):
        _state.failure = said
        LOG.warning("What this process does is not counted: %s", said)


def sync_external(totals: Mapping[Metric, float]) -> None:
    """Have counters show what somebody else counts."""
    if _state.recorder is not None:
        for metric, total in totals.items():
            _state.recorder.follow_total(metric, total)


OutcomeMapper = Callable[[Exception], str]
"""What an error is called in the label ``outcome``; there are few such names."""


@contextlib.contextmanager
def timed(
    counter: Metric,
    histogram: Metric,
    *labels: str,
    outcome_of: OutcomeMapper = lambda _error: "error",
) -> Iterator[None]:
    """Count what happens in the block and note how long it takes, whatever comes of it.

    :param counter: has the histogram's labels, and ``outcome``: "ok", or what ``outcome_of`` says
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
    """The numbers of those who share a folder; a process has one until it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._owner = 0
        self._number = 0
        self._file: int | None = None

    def acquire(self) -> int:
        """Return the number of the process that asks; a forked one has another than its parent.

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
