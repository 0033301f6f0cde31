# SPDX-License-Identifier: Apache-2.0
"""Tells Prometheus what is in the database, when it asks; started by manager/service.py."""

from collections.abc import Iterable

from oslo_log import log
from prometheus_client import core

from attachd.conf import CONF
from attachd.db import census
from attachd.telemetry import catalogue, exporter
from attachd.telemetry.cached_probe import Probe

LOG = log.getLogger(__name__)

PATIENCE = 2.0
"""Seconds that Prometheus is kept waiting for the database."""


class Collector:
    """Counts rows, seldom however often it is asked; without a database it tells that."""

    def __init__(self) -> None:
        self._probe = Probe(_take, CONF.metrics.count_interval, PATIENCE)

    def describe(self) -> Iterable[core.Metric]:
        """Return nothing: registering must not ask the database."""
        return ()

    def collect(self) -> Iterable[core.Metric]:
        """Return the last count, which tells how old it is."""
        found = self._probe.answer()
        yield exporter.gauge(catalogue.DATABASE_UP, {(): float(found.error is None)})
        if found.error is not None:
            LOG.warning("The rows could not be counted: %s", type(found.error).__name__)
        if found.value is not None:
            yield exporter.gauge(catalogue.COUNT_AGE, {(): found.age})
            # An old count would look like a present one.
            if found.error is None:
                yield from _told(found.value, found.age)


def _take() -> census.Census:
    return census.take(CONF.metrics.overdue_after)


def _told(found: census.Census, age: float) -> Iterable[core.Metric]:
    gauge = exporter.gauge
    yield gauge(catalogue.ATTACHMENTS, found.attachments)
    yield gauge(catalogue.VOLUMES, {(key,): value for key, value in found.volumes.items()})
    yield gauge(catalogue.OVERDUE, found.overdue)
    yield gauge(catalogue.AGENTS, {(key,): value for key, value in found.agents.items()})
    yield gauge(catalogue.MANAGERS, {(): found.processes})
    yield gauge(catalogue.UNREAD_EVENTS, {(): found.unread_events})
    yield gauge(catalogue.BACKEND_UP, {(each.backend,): each.up for each in found.backends})
    yield gauge(
        catalogue.BACKEND_AGE, {(each.backend,): each.age + age for each in found.backends}
    )
