# SPDX-License-Identifier: Apache-2.0
"""Answers /healthcheck: in short to everybody, in detail to whom it concerns.

The short answer is that of oslo.middleware, with the checks that [healthcheck]backends names.
The detail has all checks, whatever the short answer depends on.
"""

from collections.abc import Iterable, Sequence
import datetime
from importlib import metadata
import ipaddress
from typing import Any, NamedTuple

from oslo_config import cfg
from oslo_middleware import healthcheck
from oslo_middleware.healthcheck import opts, pluginbase
from oslo_utils import timeutils
import webob

from attachd import exception
from attachd.api import serialization
from attachd.api.identity import Application, Environ, StartResponse
from attachd.conf import CONF
from attachd.db.cluster import services
from attachd.rpc import transport
from attachd.telemetry.cached_probe import Answer, Probe, ProbeTimeout

PATH = "/healthcheck"

DEFAULT_CHECKS = ["attachd_database"]
"""A balancer takes an API out that cannot reach the database, and no other one."""

_FORWARDED = ("HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def set_defaults() -> None:
    """Give the options of oslo.middleware our defaults; the generator of samples calls it too."""
    cfg.set_defaults(opts.HEALTHCHECK_OPTS, backends=DEFAULT_CHECKS)


class HealthCheck:
    """Answers /healthcheck, which is neither versioned nor authenticated."""

    def __init__(self, inner: Application) -> None:
        """Read the configuration.

        :raises ConfigurationError: [api]health_detail_sources has something else than networks, or
            [healthcheck]backends a check that there is not
        """
        set_defaults()
        forget()
        self._inner = inner
        self._sources = _networks()
        # By the name of a project it would read the files in the usual places, whatever we read.
        self._healthy: Application = healthcheck.Healthcheck(None, CONF)
        _refuse_unknown(CONF.healthcheck.backends)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        if environ.get("PATH_INFO") != PATH:
            return self._inner(environ, start_response)
        if not (_wants_detail(environ) and self._may_see(environ)):
            return self._healthy(environ, start_response)
        short = webob.Request(environ).get_response(self._healthy)
        answer = webob.Response(status=short.status, content_type="application/json")
        answer.body = serialization.encode(_detail(well=short.status_int < 300))  # noqa: PLR2004
        told: Iterable[bytes] = answer(environ, start_response)
        return told

    def _may_see(self, environ: Environ) -> bool:
        """Tell whether a request comes from where it says, and from whom the detail is for.

        What comes through a proxy may come from everywhere.
        """
        if any(header in environ for header in _FORWARDED):
            return False
        try:
            address = ipaddress.ip_address(str(environ.get("REMOTE_ADDR")))
        except ValueError:
            return False
        return any(address in network for network in self._sources)


def _refuse_unknown(wanted: Iterable[str]) -> None:
    """Raise ConfigurationError for what oslo.middleware would leave out, and answer OK."""
    there = metadata.entry_points(group=healthcheck.Healthcheck.NAMESPACE).names
    if unknown := sorted(set(wanted) - there):
        raise exception.ConfigurationError(
            reason=f"[healthcheck]backends: there is no check of this name: {', '.join(unknown)}. "
            f"There are {', '.join(sorted(there))}."
        )


def _networks() -> list[Network]:
    try:
        return [ipaddress.ip_network(each) for each in CONF.api.health_detail_sources]
    except ValueError as error:
        raise exception.ConfigurationError(
            reason=f"[api]health_detail_sources: {error}."
        ) from error


def _wants_detail(environ: Environ) -> bool:
    if environ.get("REQUEST_METHOD") != "GET":
        return False
    asked = str(environ.get("QUERY_STRING", "")).partition("&")[0].partition("=")[0]
    return asked == "detailed" or environ.get("HTTP_ACCEPT") == "application/json"


def _detail(*, well: bool) -> dict[str, Any]:
    """Return all that is known.

    :param well: as the short answer says
    """
    known = health()
    found = [known.database(), known.broker(), *known.backends()]
    status = "ok" if all(each.well for each in found) else "degraded"
    return {
        "status": status if well else "failed",
        "checks": [
            {
                "name": each.name,
                "status": "ok" if each.well else "failed",
                "reason": each.reason,
                "since": each.since,
            }
            for each in found
        ],
    }


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
