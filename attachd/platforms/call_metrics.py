# SPDX-License-Identifier: Apache-2.0
"""Metrics of the calls of a driver for a container platform."""

from collections import Counter
from collections.abc import Iterable, Iterator
import contextlib
import threading

from prometheus_client import core

from attachd import service
from attachd.platforms.calls import CallError
from attachd.telemetry import exporter, metrics


class CallMetrics:
    """Counts and times the calls of a driver; also a collector of those in progress.

    :param driver: its name
    """

    def __init__(self, driver: str) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._in_progress: Counter[str] = Counter()

    @contextlib.contextmanager
    def measure(self, call_name: str) -> Iterator[None]:
        """Measure a call, which fails with CallError, or by a fault of the host or the driver.

        :param call_name: one of few
        """
        self._change(call_name, 1)
        try:
            labels = metrics.PLATFORM_CALLS, metrics.PLATFORM_DURATION, self._driver, call_name
            with metrics.timed(*labels, outcome_of=_outcome):
                yield
        finally:
            self._change(call_name, -1)

    def _change(self, call_name: str, by: int) -> None:
        with self._lock:
            self._in_progress[call_name] += by

    def describe(self) -> Iterable[core.Metric]:
        """Return nothing: the calls are not known yet."""
        return ()

    def collect(self) -> Iterable[core.Metric]:
        """Return the numbers of calls in progress."""
        with self._lock:
            numbers = dict(self._in_progress)
        values: dict[tuple[str, ...], float]
        values = {(self._driver, name): float(number) for name, number in numbers.items()}
        yield metrics.PLATFORM_CALLS_IN_PROGRESS.family(values)


def _outcome(error: Exception) -> str:
    return error.code.name.lower() if isinstance(error, CallError) else "internal"


def export(address: exporter.Address, call_metrics: CallMetrics) -> exporter.Exporter:
    """Record metrics from now on, and serve them until the exporter is stopped."""
    made = exporter.Exporter(address, service.version(), dict)
    made.add(call_metrics)
    made.start()
    return made
