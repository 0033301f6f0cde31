# SPDX-License-Identifier: Apache-2.0
"""The heartbeat of one backend in one manager process: set the backend up, and report it."""

import dataclasses
import math
import threading
from typing import Any

from oslo_log import log

from attachd import lost_agents, objects
from attachd.conf import CONF
from attachd.db.cluster import services
from attachd.db.volumes import volume_queries, volume_updates
from attachd.drivers import abilities
from attachd.drivers.base import BackendStats, Driver
from attachd.manager import fencing
from attachd.manager.backends import Backend
from attachd.manager.periodic_tasks.periodic_task import PeriodicTask
from attachd.rpc import manager_api

LOG = log.getLogger(__name__)


class BackendHeartbeat(PeriodicTask):
    """The work for a backend every ``report_interval`` seconds.

    :ivar reported: set once the scheduler can know the backend
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.reported = threading.Event()
        self._was_ready = False
        self._allocated: tuple[list[float], dict[str, int]] = ([], {})

    def interval(self) -> float:
        """Return ``report_interval``, which other processes rely on."""
        return float(CONF.manager.report_interval)

    def run_once(self) -> None:
        """Set a broken backend up again, and report."""
        if self._backend.error is not None:
            self._was_ready = False
            self._backend.setup()
        if self._backend.error is None and not self._was_ready:
            LOG.info("Backend %s is ready", self._backend.name)
            self._correct_shared_targets()
            self._was_ready = True
        report = self._get_report()
        services.report(
            binary=services.BINARY,
            host=self._backend.host,
            availability_zone=CONF.storage_availability_zone,
            up=report is not None,
            error=self._backend.error,
            report=report,
            supported=services.Versions(
                manager_api.VERSION, objects.format_manifest(objects.newest_manifest())
            ),
        )
        self.reported.set()

    def _correct_shared_targets(self) -> None:
        """Store with the volumes what this release of the driver says of their targets."""
        shared = self._backend.driver.SHARED_TARGETS
        if corrected := volume_updates.set_shared_targets(self._backend.host, shared):
            LOG.info(
                "Backend %s: set shared_targets of %d volumes to %s",
                self._backend.name,
                corrected,
                shared,
            )

    def _get_report(self) -> dict[str, Any] | None:
        """Return the backend's report, or None if it is down."""
        if self._backend.error is not None:
            return None
        try:
            self._backend.check_lock_files()
            self._backend.driver.boot_id()
            return {
                **_to_json(self._backend.driver, self._get_stats()),
                **dict(zip(lost_agents.FIELDS, self._backend.lost_agent_rule, strict=True)),
            }
        except Exception as error:  # noqa: BLE001  logged there
            self._backend.take_down(error)
            return None

    def _get_stats(self) -> BackendStats:
        """Return the driver's stats, with sizes that no host can write.

        The volumes are read again only when a size has changed.
        """
        stats = self._backend.driver.get_stats()
        if not self._backend.driver.HOSTS_WRITE_SIZES:
            return stats
        seen = [stats.allocated_gib, *(pool.allocated_gib for pool in stats.pools)]
        former, sizes = self._allocated
        if seen != former:
            sizes = volume_queries.allocated(self._backend.host)
            self._allocated = (seen, sizes)
        pools = [
            dataclasses.replace(
                pool, allocated_gib=float(sizes.get(f"{self._backend.host}#{pool.name}", 0))
            )
            for pool in stats.pools
        ]
        return dataclasses.replace(stats, allocated_gib=float(sum(sizes.values())), pools=pools)


def _to_json(driver: Driver, stats: BackendStats) -> dict[str, Any]:
    """Return a driver's stats as JSON, which has no infinity: None there means without limit.

    What the driver declares of itself is among the capabilities.
    """
    values = _without_infinity(dataclasses.asdict(stats))
    values["pools"] = [_without_infinity(dataclasses.asdict(pool)) for pool in stats.pools]
    capabilities = {
        "vendor_name": driver.VENDOR,
        **stats.capabilities,
        **abilities.get_abilities(driver),
        **dataclasses.asdict(driver.promises),
        manager_api.FENCING: fencing.get_fencing(driver).value,
    }
    return {**values, "capabilities": capabilities}


def _without_infinity(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and math.isinf(value) else value
        for name, value in values.items()
    }
