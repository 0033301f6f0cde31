# SPDX-License-Identifier: Apache-2.0
"""Exporter of metrics over HTTP; started by the API's application and by managers.

Of several processes with one port the first gets it.  The others retry, and one of them has it
soon after the first has ended.
"""

from collections.abc import Callable, Mapping
import logging
import os
from pathlib import Path
import threading
from typing import Any

from oslo_log import log
import prometheus_client
from prometheus_client import core

from attachd.conf import CONF
from attachd.telemetry import recorder
from attachd.telemetry.catalogue import BUILD, Metric

LOG = log.getLogger(__name__)

PAUSE = 2.0
"""Seconds between two attempts to get the port, and between two reads of external totals."""

Totals = Callable[[], Mapping[Metric, float]]
"""Returns counters of this process that are kept elsewhere."""


class _Build:
    """Metric with the release."""

    def __init__(self, version: str) -> None:
        self._version = version

    def collect(self) -> list[core.Metric]:
        """Return the one value."""
        return [gauge(BUILD, {(self._version,): 1.0})]


def gauge(metric: Metric, found: Mapping[tuple[str, ...], float]) -> core.GaugeMetricFamily:
    """Return a gauge with its values, by the values of its labels."""
    made = core.GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in found.items():
        made.add_metric(labels, value)
    return made


class Exporter:
    """Exporter of one process; may be started by many threads, and again after a fork.

    :ivar port: where this process listens; None: it does not, or not yet
    """

    def __init__(self, role: str, version: str, totals: Totals) -> None:
        """Start to record.

        :param role: names the option with the port, and a folder
        """
        shared = CONF.metrics.directory
        # Another release may have other buckets.
        folder = Path(shared) / f"{role}-{version}" if shared else None
        self._recorder = recorder.start(folder)
        self.add(_Build(version))
        self._port = CONF.metrics[f"{role}_port"]
        self._totals = totals
        self._lock = threading.Lock()
        self._pid = 0
        self._server: Any = None
        self._stop = threading.Event()
        self.port: int | None = None

    def add(self, collector: Any) -> None:
        """Add a collector of prometheus_client."""
        self._recorder.registry.register(collector)

    def start(self) -> None:
        """Start the threads that listen, or retry."""
        if self._pid == os.getpid():
            return
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._server, self.port = os.getpid(), None, None
                threading.Thread(target=self._run, name="metrics", daemon=True).start()

    def _run(self) -> None:
        said = ""
        while not self._stop.is_set():
            try:
                recorder.sync_external(self._totals())
                self._listen()
            except Exception as error:  # noqa: BLE001  metrics must not end with what they measure
                if said != (said := str(error)):
                    self._log_failure(error)
            self._stop.wait(PAUSE)

    def _listen(self) -> None:
        if self._server is not None:
            return
        self._server, _thread = prometheus_client.start_http_server(
            self._port, CONF.metrics.listen, self._recorder.registry
        )
        self.port = self._server.server_port
        LOG.info("Metrics are at http://%s:%d/metrics", CONF.metrics.listen, self.port)

    def _log_failure(self, error: Exception) -> None:
        waits = CONF.metrics.directory and isinstance(error, OSError)
        where = f"{CONF.metrics.listen} port {self._port}"
        text = "Metrics are not served by this process at %s: %s"
        LOG.log(logging.DEBUG if waits else logging.WARNING, text, where, error)

    def stop(self) -> None:
        """Stop to listen and to record."""
        self._stop.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        recorder.stop()


_exporters: list[Exporter] = []


def get_exporter(role: str, version: str, totals: Totals) -> Exporter:
    """Return the exporter of this process; the first call creates it.

    :param role: "api" or "manager"
    """
    if not _exporters:
        _exporters.append(Exporter(role, version, totals))
    return _exporters[0]


def stop() -> None:
    """Stop and remove it; for tests."""
    while _exporters:
        _exporters.pop().stop()
