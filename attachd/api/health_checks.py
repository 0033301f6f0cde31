# SPDX-License-Identifier: Apache-2.0
"""Finds out whether the API can work: plug-ins of oslo.middleware.healthcheck, and health.py.

Each question is put by one thread at a time and its answer kept for some seconds, so that any
number of probes costs a statement or a message now and then, and none waits for long.
"""

from collections.abc import Sequence
import datetime
from typing import Any, NamedTuple

from oslo_middleware.healthcheck import pluginbase
from oslo_utils import timeutils

from attachd import exception
from attachd.db import services
from attachd.rpc import transport
from attachd.telemetry.cached_probe import Answer, Probe, ProbeTimeout

PATIENCE = 2.0
"""Seconds that a probe waits for the database, or for the message queue."""

ROWS_FRESH = 3.0
PING_FRESH = 10.0
"""Seconds that an answer is kept."""


class Finding(NamedTuple):
    """One thing that was looked at.

    :ivar reason: what is wrong, without secrets; None: nothing
    :ivar since: since when, UTC, as far as this process knows
    """

    name: str
    reason: str | None
    since: datetime.datetime

    @property
    def well(self) -> bool:
        """Whether nothing is wrong."""
        return self.reason is None


class Health:
    """What one process knows of database, message queue and backends."""

    def __init__(self) -> None:
        self._rows = Probe(lambda: services.page({}), ROWS_FRESH, PATIENCE)
        self._ping = Probe(transport.ping, PING_FRESH, PATIENCE)
        self._since: dict[str, tuple[bool, datetime.datetime]] = {}

    def database(self) -> Finding:
        """Tell whether the database answers."""
        return _finding("database", self._rows.answer())

    def broker(self) -> Finding:
        """Tell whether the message queue takes messages."""
        return _finding("broker", self._ping.answer())

    def backends(self) -> list[Finding]:
        """Tell how each backend is, as of its last report; nothing without the database."""
        found = self._rows.answer()
        rows = found.value if found.error is None else None
        return [self._backend(row) for row in rows or ()]

    def _backend(self, row: services.Row) -> Finding:
        reason = None
        if not row["alive"]:
            reason = "No manager has reported for it."
        elif not row["up"]:
            reason = "Its storage cannot be used: the log of its manager says why."
        name = f"backend {row['host']}"
        return Finding(name, reason, self._since_when(row, reason is None))

    def _since_when(self, row: services.Row, well: bool) -> datetime.datetime:  # noqa: FBT001
        """Return when it has become so: the rows tell that of silent ones only."""
        if not row["alive"]:
            seen: datetime.datetime = row["seen_at"]
            return seen
        known = self._since.get(row["host"])
        if known is None or known[0] != well:
            known = self._since[row["host"]] = (well, timeutils.utcnow())
        return known[1]


def _finding(name: str, answer: Answer[Any]) -> Finding:
    since = timeutils.utcnow() - datetime.timedelta(seconds=answer.since)
    return Finding(name, _reason(name, answer.error), since)


def _reason(name: str, error: Exception | None) -> str | None:
    """Say what is wrong; the text of an error that nobody foresaw may hold an address."""
    if error is None:
        return None
    if isinstance(error, ProbeTimeout):
        return f"The {name} gives {error}."
    if isinstance(error, exception.Unavailable):
        return f"The {name} does not answer."
    return f"The {name} cannot be used ({type(error).__name__})."


class _Here:
    health = Health()


def health() -> Health:
    """Return what this process knows."""
    return _Here.health


def forget() -> None:
    """Begin anew, with a configuration that has just been read."""
    _Here.health = Health()


class _Check(pluginbase.HealthcheckBaseExtension):
    """A name for [healthcheck]backends."""

    def healthcheck(self, server_port: int) -> pluginbase.HealthcheckResult:  # noqa: ARG002
        """Return what oslo.middleware tells."""
        wrong = [each for each in self.findings() if not each.well]
        reasons = (f"{each.name}: {each.reason}" for each in wrong)
        return pluginbase.HealthcheckResult(not wrong, " ".join(reasons) or "OK")

    def findings(self) -> Sequence[Finding]:
        """Return what this is about."""
        raise NotImplementedError


class DatabaseCheck(_Check):
    """``attachd_database``: without it the API can answer nothing."""

    def findings(self) -> Sequence[Finding]:
        """See above."""
        return [health().database()]


class BrokerCheck(_Check):
    """``attachd_broker``: without it the API can only show."""

    def findings(self) -> Sequence[Finding]:
        """See above."""
        return [health().broker()]


class BackendsCheck(_Check):
    """``attachd_backends``: each of them, for who has no others."""

    def findings(self) -> Sequence[Finding]:
        """See above."""
        return health().backends()
