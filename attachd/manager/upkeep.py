# SPDX-License-Identifier: Apache-2.0
"""The life of one backend in one manager process: set up, recover, then report and watch."""

import dataclasses
import math
import threading
import time
from typing import Any

from oslo_log import log

from attachd import exception
from attachd.conf import CONF
from attachd.db import attachments, services, volume_changes
from attachd.drivers.base import Report
from attachd.manager import messages, recovery
from attachd.manager.backends import Backend

LOG = log.getLogger(__name__)

BINARY = "attachd-manager"


class Upkeep:
    """What is done for a backend every ``report_interval`` seconds.

    :ivar reported: set once placement knows of the backend
    """

    def __init__(self, backend: Backend) -> None:
        self.reported = threading.Event()
        self._backend = backend
        self._epoch: str | None = None
        self._forgotten: list[dict[str, Any]] = []
        self._recovered = False
        self._reaped = -math.inf

    def run(self, stop: threading.Event) -> None:
        """Repeat until ``stop`` is set; meant for a thread of its own."""
        while True:
            try:
                self.once()
            except Exception as error:  # noqa: BLE001  the next one may go well
                self._tell_of(error)
                # Without the database, workers could not write down how their work ended.
                self._recovered = False
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
        """Set a broken backend up again, finish what was left, heal a restarted one, report."""
        if self._backend.error is not None:
            self._recovered = False
            self._backend.setup()
        if self._backend.error is None:
            self._recover()
        report = self._ask()
        services.report(
            binary=BINARY,
            host=self._backend.host,
            availability_zone=CONF.storage_availability_zone,
            up=report is not None,
            error=self._backend.error,
            report=report,
        )
        self.reported.set()
        self._reap()

    def _reap(self) -> None:
        if time.monotonic() >= self._reaped + CONF.manager.message_reap_interval:
            self._reaped = time.monotonic()
            messages.reap()

    def _recover(self) -> None:
        """Finish all that was left half-way; later, what has been lying around for too long."""
        if self._recovered:
            recovery.pick_up(self._backend)
            return
        LOG.info("Backend %s is ready", self._backend.name)
        self._correct_shared_targets()
        self._recovered = recovery.resume(self._backend) == 0

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
            self._heal_if_restarted()
            return _jsonable(self._backend.driver.report(), self._backend.driver.VENDOR)
        except Exception as error:  # noqa: BLE001  logged there
            self._backend.take_down(error)
            return None

    def _heal_if_restarted(self) -> None:
        epoch = self._backend.driver.epoch()
        if epoch != self._epoch:
            self._forgotten = attachments.live_of_backend(self._backend.host)
            self._epoch = epoch
            LOG.info(
                "Backend %s: %d attachments to grant again",
                self._backend.name,
                len(self._forgotten),
            )
        self._forgotten = recovery.heal(self._backend, self._forgotten)


def _jsonable(report: Report, vendor: str) -> dict[str, Any]:
    """Turn a report into JSON, which has no infinity: None there means without limit."""
    values = {
        name: None if isinstance(value, float) and math.isinf(value) else value
        for name, value in dataclasses.asdict(report).items()
    }
    return {**values, "capabilities": {"vendor_name": vendor, **report.capabilities}}
