# SPDX-License-Identifier: Apache-2.0
"""The life of one backend in one manager process: set up, then report and watch."""

import dataclasses
import math
import threading
import time
from typing import Any

from oslo_log import log

from attachd import exception
from attachd.conf import CONF
from attachd.db import services, volume_changes
from attachd.drivers.base import BackendStats
from attachd.manager.backends import Backend
from attachd.manager.ha import purge
from attachd.objects import manifests
from attachd.rpc import manager_api

LOG = log.getLogger(__name__)

BINARY = "attachd-manager"


class Upkeep:
    """What is done for a backend every ``report_interval`` seconds.

    :ivar reported: set once placement knows of the backend
    """

    def __init__(self, backend: Backend) -> None:
        self.reported = threading.Event()
        self._backend = backend
        self._ready = False
        self._reaped = -math.inf

    def run(self, stop: threading.Event) -> None:
        """Repeat until ``stop`` is set; meant for a thread of its own."""
        while True:
            try:
                self.once()
            except Exception as error:  # noqa: BLE001  the next one may go well
                self._tell_of(error)
            if stop.wait(CONF.manager.report_interval):
                return

    def _tell_of(self, error: Exception) -> None:
        """Log a failure; a database that does not answer needs no traceback each time."""
        unforeseen = not isinstance(error, exception.Unavailable)
        LOG.error(
            "Upkeep of backend %s failed, trying again: %s",
            self._backend.name,
            error,
            exc_info=error if unforeseen else None,
        )

    def once(self) -> None:
        """Set a broken backend up again, and report."""
        if self._backend.error is not None:
            self._ready = False
            self._backend.setup()
        if self._backend.error is None and not self._ready:
            LOG.info("Backend %s is ready", self._backend.name)
            self._correct_shared_targets()
            self._ready = True
        report = self._ask()
        services.report(
            binary=BINARY,
            host=self._backend.host,
            availability_zone=CONF.storage_availability_zone,
            up=report is not None,
            error=self._backend.error,
            report=report,
            spoken=services.Spoken(manager_api.VERSION, manifests.to_text(manifests.newest())),
        )
        self.reported.set()
        self._reap()

    def _reap(self) -> None:
        if time.monotonic() >= self._reaped + CONF.manager.purge_interval:
            self._reaped = time.monotonic()
            purge.reap()

    def _correct_shared_targets(self) -> None:
        """Have volumes say what this release of the driver says of their connections."""
        told = self._backend.driver.SHARED_TARGETS
        if corrected := volume_changes.set_shared_targets(self._backend.host, told):
            LOG.info(
                "%d volumes of %s have shared_targets %s now", corrected, self._backend.name, told
            )

    def _ask(self) -> dict[str, Any] | None:
        """Return the backend's report, or None if it is down."""
        if self._backend.error is not None:
            return None
        try:
            self._backend.driver.boot_id()
            return _jsonable(self._backend.driver.get_stats(), self._backend.driver.VENDOR)
        except Exception as error:  # noqa: BLE001  logged there
            self._backend.take_down(error)
            return None


def _jsonable(report: BackendStats, vendor: str) -> dict[str, Any]:
    """Turn a report into JSON, which has no infinity: None there means without limit."""
    values = {
        name: None if isinstance(value, float) and math.isinf(value) else value
        for name, value in dataclasses.asdict(report).items()
    }
    return {**values, "capabilities": {"vendor_name": vendor, **report.capabilities}}
