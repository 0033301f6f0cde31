# SPDX-License-Identifier: Apache-2.0
"""Has a manager's process tell what it does, as far as that is wanted; started by service.py."""

from collections.abc import Iterable

from attachd import service
from attachd.conf import CONF
from attachd.db import census as rows
from attachd.manager import backends, census, measuring, meditation
from attachd.manager.backends import Backend
from attachd.manager.ha.membership import Presence
from attachd.telemetry import exporter, tracing

__all__ = ["Backend", "load", "watch"]


def load(presence: Presence) -> list[Backend]:
    """Do as backends.load(), and watch what is done with them from now on.

    :raises ConfigurationError: also where what is needed for traces is not installed
    """
    served = backends.load(presence)
    meditation.begin(served)
    tracing.setup("attachd-manager")
    watch(served)
    return served


def watch(served: Iterable[Backend]) -> None:
    """Count and trace what these backends do from now on, if that is wanted."""
    if CONF.metrics.enabled:
        told = exporter.of("manager", service.version(), rows.totals)
        told.add(census.Collector())
        told.start()
    if CONF.metrics.enabled or tracing.is_on():
        for each in served:
            measuring.measure(each.host, each.driver)
