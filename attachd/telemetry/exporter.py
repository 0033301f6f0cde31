# SPDX-License-Identifier: Apache-2.0
"""Exporter of metrics over HTTP; started by the API's application, managers and drivers.

Of several processes with one port the first gets it.  The others retry, and one of them has it
soon after the first has ended.
"""

from collections.abc import Callable, Iterable, Mapping
import fcntl
import logging
import os
from pathlib import Path
import threading
from typing import Any, NamedTuple

from oslo_log import log
from oslo_utils import netutils
import prometheus_client
from prometheus_client import core, multiprocess

from attachd.conf import CONF
from attachd.telemetry import metrics

LOG = log.getLogger(__name__)

PAUSE = 2.0
"""Seconds between two attempts to get the port, and between two reads of external totals."""

Totals = Callable[[], Mapping[prometheus_client.Counter, float]]
"""Returns counters of this process that are counted outside of prometheus_client."""


class _Build:
    """Metric with the release."""

    def __init__(self, version: str) -> None:
        self._version = version

    def collect(self) -> Iterable[core.Metric]:
        """Return the one value."""
        return [metrics.BUILD.family({(self._version,): 1.0})]


class _SharedFolder:
    """Sums of the values of all processes that share a directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[core.Metric]:
        """Return the sums."""
        collector: Any = multiprocess.MultiProcessCollector
        with metrics.lock_folder(self._folder, fcntl.LOCK_SH):
            sums: list[core.Metric] = list(collector(None, str(self._folder)).collect())
        return sums


class Address(NamedTuple):
    """Where metrics are served.

    :ivar port: 0: a free one
    """

    host: str
    port: int


class Exporter:
    """Exporter of one process; may be started by many threads, and again after a fork.

    :ivar port: where this process listens; None: it does not, or not yet
    """

    def __init__(self, address: Address, version: str, totals: Totals) -> None:
        """Start to record."""
        metrics.enable()
        self._folder = metrics.shared_folder()
        self._registry = prometheus_client.CollectorRegistry()
        self.add(metrics.REGISTRY if self._folder is None else _SharedFolder(self._folder))
        self.add(_Build(version))
        self._address = address
        self._totals = totals
        self._lock = threading.Lock()
        self._pid = 0
        self._server: Any = None
        self._stop = threading.Event()
        self.port: int | None = None

    def add(self, collector: Any) -> None:
        """Add a collector of prometheus_client."""
        self._registry.register(collector)

    def start(self) -> None:
        """Start the threads that listen, or retry."""
        if self._pid == os.getpid():
            return
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._server, self.port = os.getpid(), None, None
                threading.Thread(target=self._run, name="metrics", daemon=True).start()

    def _run(self) -> None:
        logged = ""
        while not self._stop.is_set():
            try:
                metrics.sync_external(self._totals())
                self._listen()
            except Exception as error:  # noqa: BLE001  metrics must not end with what they measure
                if logged != (logged := str(error)):
                    self._log_failure(error)
            self._stop.wait(PAUSE)

    def _listen(self) -> None:
        if self._server is not None:
            return
        self._server, _thread = prometheus_client.start_http_server(
            self._address.port, self._address.host, self._registry
        )
        self.port = self._server.server_port
        host = netutils.escape_ipv6(self._address.host)
        LOG.info("Metrics are at http://%s:%d/metrics", host, self.port)

    def _log_failure(self, error: Exception) -> None:
        waits = self._folder is not None and isinstance(error, OSError)
        where = f"{self._address.host} port {self._address.port}"
        text = "Metrics are not served by this process at %s: %s"
        LOG.log(logging.DEBUG if waits else logging.WARNING, text, where, error)

    def stop(self) -> None:
        """Stop listening and recording."""
        self._stop.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        metrics.disable()


_exporters: list[Exporter] = []


def get_exporter(role: str, version: str, totals: Totals) -> Exporter:
    """Return the exporter of this process; the first call creates it, by [metrics].

    :param role: "api" or "manager": names the option with the port
    """
    if not _exporters:
        address = Address(CONF.metrics.listen, CONF.metrics[f"{role}_port"])
        _exporters.append(Exporter(address, version, totals))
    return _exporters[0]


def stop() -> None:
    """Stop and remove it; for tests."""
    while _exporters:
        _exporters.pop().stop()
