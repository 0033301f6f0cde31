# SPDX-License-Identifier: Apache-2.0
"""Record the clients of hosts, so that a fence ends those that the backend has forgotten."""

from typing import Final

from oslo_log import log

from attachd import exception
from attachd.drivers import abilities
from attachd.manager.periodic_tasks.periodic_task import PeriodicTask

LOG = log.getLogger(__name__)

INTERVAL: Final = 60.0
"""Seconds between two records: less than backends remember clients, which is minutes."""


class RememberClientsTask(PeriodicTask):
    """Records of the clients of one backend, in one process, if its driver needs them."""

    def interval(self) -> float:
        """Return the seconds between two records."""
        return INTERVAL

    def run_once(self) -> None:
        """Record the clients that are connected now, unless the backend is down."""
        driver = self._backend.driver
        if not isinstance(driver, abilities.RememberClients) or self._backend.error is not None:
            return
        try:
            driver.remember_clients()
        except exception.BackendError as error:
            LOG.warning(
                "Backend %s: the clients of hosts are not recorded: %s", self._backend.name, error
            )
