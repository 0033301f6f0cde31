# SPDX-License-Identifier: Apache-2.0
"""The health check at /healthcheck: a short response for all callers, details for some networks.

The short response is that of oslo.middleware, with the checks of [healthcheck]backends, which are
plug-ins in this module.  The detailed one has all checks, whatever the short one depends on.

Each probe is run by one thread at a time and its result is cached for some seconds: any number of
health checks costs a statement or a message now and then, and none of them waits for long.
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
"""A load balancer removes an API that cannot reach the database, and no other one."""

_FORWARDED = ("HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def set_defaults() -> None:
    """Set our defaults of options of oslo.middleware; also used by the sample generator."""
    cfg.set_defaults(opts.HEALTHCHECK_OPTS, backends=DEFAULT_CHECKS)


class HealthCheck:
    """Middleware that answers /healthcheck, without version and authentication."""

    def __init__(self, inner: Application) -> None:
        """Read the configuration.

        :raises ConfigurationError: [api]health_detail_sources has an invalid network, or
            [healthcheck]backends an unknown check
        """
        set_defaults()
        forget()
        self._inner = inner
        self._sources = _networks()
        # With a project name oslo.middleware would read the configuration files again.
        self._healthy: Application = healthcheck.Healthcheck(None, CONF)
        _refuse_unknown(CONF.healthcheck.backends)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Handle one request."""
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
        """Return whether a request comes directly from a network that may see the details.

        The source of a request that came through a proxy is unknown.
        """
        if any(header in environ for header in _FORWARDED):
            return False
        try:
            address = ipaddress.ip_address(str(environ.get("REMOTE_ADDR")))
        except ValueError:
            return False
        return any(address in network for network in self._sources)


def _refuse_unknown(wanted: Iterable[str]) -> None:
    """Raise ConfigurationError for unknown checks, which oslo.middleware would ignore."""
    there = metadata.entry_points(group=healthcheck.Healthcheck.NAMESPACE).names
    if unknown := sorted(set(wanted) - there):
        raise exception.ConfigurationError(
            reason=f"[healthcheck]backends: there is no check {', '.join(unknown)}, only "
            f"{', '.join(sorted(there))}."
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
    """Return the detailed response.

    :param well: whether the short response is OK
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
"""Timeout in seconds of a probe of the database or the message queue."""

ROWS_FRESH = 3.0
PING_FRESH = 10.0
"""Seconds for which a result is cached."""


class Finding(NamedTuple):
    """The result of one check.

    :ivar reason: what is wrong, without secrets; None: nothing
    :ivar since: time of the last change, UTC, as far as this process knows
    """

    name: str
    reason: str | None
    since: datetime.datetime

    @property
    def well(self) -> bool:
        """Whether nothing is wrong."""
        return self.reason is None


class Health:
    """The state of database, message queue and backends, as this process knows it."""

    def __init__(self) -> None:
        self._rows = Probe(lambda: services.page({}), ROWS_FRESH, PATIENCE)
        self._ping = Probe(transport.ping, PING_FRESH, PATIENCE)
        self._since: dict[str, tuple[bool, datetime.datetime]] = {}

    def database(self) -> Finding:
        """Check whether the database answers."""
        return _finding("database", self._rows.answer())

    def broker(self) -> Finding:
        """Check whether the message queue takes messages."""
        return _finding("broker", self._ping.answer())

    def backends(self) -> list[Finding]:
        """Return the state of each backend by its last report; nothing without the database."""
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
        """Return the time of the last change; a row has it only for a backend without reports."""
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
    """Return what is wrong; the text of an unexpected error is left out, it may have a secret."""
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
    """Return the health of this process."""
    return _Here.health


def forget() -> None:
    """Start again with the present configuration."""
    _Here.health = Health()


class _Check(pluginbase.HealthcheckBaseExtension):
    """A check that [healthcheck]backends can name."""

    def healthcheck(self, server_port: int) -> pluginbase.HealthcheckResult:  # noqa: ARG002
        """Return the result in the form of oslo.middleware."""
        wrong = [each for each in self.findings() if not each.well]
        reasons = (f"{each.name}: {each.reason}" for each in wrong)
        return pluginbase.HealthcheckResult(not wrong, " ".join(reasons) or "OK")

    def findings(self) -> Sequence[Finding]:
        """Return the results that the check depends on."""
        raise NotImplementedError


class DatabaseCheck(_Check):
    """``attachd_database``: without it no request succeeds."""

    def findings(self) -> Sequence[Finding]:
        """Return the state of the database."""
        return [health().database()]


class BrokerCheck(_Check):
    """``attachd_broker``: without it only reading requests succeed."""

    def findings(self) -> Sequence[Finding]:
        """Return the state of the message queue."""
        return [health().broker()]


class BackendsCheck(_Check):
    """``attachd_backends``: all backends, for deployments where each of them is essential."""

    def findings(self) -> Sequence[Finding]:
        """Return the state of each backend."""
        return health().backends()
