# SPDX-License-Identifier: Apache-2.0
"""The health check at /healthcheck: a short response for all callers, details for some networks.

The short response is that of oslo.middleware, with the checks of [healthcheck]backends, which are
plug-ins in this module.  The detailed one has all checks, not only those of the short one.

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
from attachd.db.engine import write_check
from attachd.db.row_types import ServiceRow
from attachd.rpc import path_check, transport
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
        reset()
        self._inner = inner
        self._sources = _networks()
        # With a project name oslo.middleware would read the configuration files again.
        self._healthy: Application = healthcheck.Healthcheck(None, CONF)
        _check_names(CONF.healthcheck.backends)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Handle one request."""
        if environ.get("PATH_INFO") != PATH:
            return self._inner(environ, start_response)
        if not (_requests_details(environ) and self._may_see_details(environ)):
            return self._healthy(environ, start_response)
        short = webob.Request(environ).get_response(self._healthy)
        response = webob.Response(status=short.status, content_type="application/json")
        response.body = serialization.encode(_details(healthy=short.status_int < 300))  # noqa: PLR2004
        body: Iterable[bytes] = response(environ, start_response)
        return body

    def _may_see_details(self, environ: Environ) -> bool:
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


def _check_names(selected: Iterable[str]) -> None:
    """Raise ConfigurationError for unknown checks, which oslo.middleware would ignore."""
    known = metadata.entry_points(group=healthcheck.Healthcheck.NAMESPACE).names
    if unknown := sorted(set(selected) - known):
        raise exception.ConfigurationError(
            reason=f"[healthcheck]backends: there is no check {', '.join(unknown)}, only "
            f"{', '.join(sorted(known))}."
        )


def _networks() -> list[Network]:
    try:
        return [ipaddress.ip_network(text) for text in CONF.api.health_detail_sources]
    except ValueError as error:
        raise exception.ConfigurationError(
            reason=f"[api]health_detail_sources: {error}."
        ) from error


def _requests_details(environ: Environ) -> bool:
    if environ.get("REQUEST_METHOD") != "GET":
        return False
    parameter = str(environ.get("QUERY_STRING", "")).partition("&")[0].partition("=")[0]
    return parameter == "detailed" or environ.get("HTTP_ACCEPT") == "application/json"


def _details(*, healthy: bool) -> dict[str, Any]:
    """Return the detailed response.

    :param healthy: whether the short response is OK
    """
    known = health()
    results = [known.database(), known.broker(), *known.backends()]
    status = "ok" if all(result.healthy for result in results) else "degraded"
    return {
        "status": status if healthy else "failed",
        "checks": [
            {
                "name": result.name,
                "status": "ok" if result.healthy else "failed",
                "reason": result.reason,
                "since": result.since,
            }
            for result in results
        ],
    }


PROBE_TIMEOUT = 2.0
"""Timeout in seconds of a probe of the database or the message queue."""

ROWS_TTL = 3.0
WRITES_TTL = 10.0
PING_TTL = 10.0
"""Seconds for which a result is cached."""


class CheckResult(NamedTuple):
    """The result of one check.

    :ivar reason: what is wrong, without secrets; None: nothing
    :ivar since: time of the last change, UTC, as far as this process knows
    """

    name: str
    reason: str | None
    since: datetime.datetime

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return self.reason is None


class PathsCutError(Exception):
    """Messages to managers that report have no queue.

    :ivar hosts: ``host@backend`` of each
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        super().__init__(*hosts)
        self.hosts = hosts


class WriteRefusedError(Exception):
    """The database answers, and stores nothing; the text says why, without secrets."""


def _check_writable() -> None:
    try:
        write_check.check_writable()
    except exception.Unavailable as error:
        raise WriteRefusedError(f"{error}") from error


def _is_reachable(host: str) -> bool:
    try:
        transport.probe_manager(host)
    except path_check.PathCut:
        return False
    return True


class Health:
    """The state of database, message queue and backends, as this process knows it."""

    def __init__(self) -> None:
        self._rows = Probe(lambda: services.page({}), ROWS_TTL, PROBE_TIMEOUT)
        self._writes = Probe(_check_writable, WRITES_TTL, PROBE_TIMEOUT)
        self._ping = Probe(self._check_broker, PING_TTL, PROBE_TIMEOUT)
        self._since: dict[str, tuple[bool, datetime.datetime]] = {}

    def database(self) -> CheckResult:
        """Check whether the database answers, and stores what is written."""
        rows = self._rows.answer()
        return _result("database", rows if rows.error else self._writes.answer())

    def broker(self) -> CheckResult:
        """Check whether the message queue takes messages, and has a queue for each manager."""
        return _result("broker", self._ping.answer())

    def _check_broker(self) -> None:
        """Send a message without a receiver, and one to each backend that reports."""
        transport.ping()
        if not transport.is_broker_used():
            return
        hosts = [row["host"] for row in self._rows.answer().value or () if row["alive"]]
        if unreachable := [host for host in hosts if not _is_reachable(host)]:
            raise PathsCutError(unreachable)

    def backends(self) -> list[CheckResult]:
        """Return the state of each backend by its last report; nothing without the database."""
        probed = self._rows.answer()
        rows = probed.value if probed.error is None else None
        return [self._backend(row) for row in rows or ()]

    def _backend(self, row: ServiceRow) -> CheckResult:
        reason = None
        if not row["alive"]:
            reason = "No manager has reported for it."
        elif not row["up"]:
            reason = "Its storage cannot be used: the log of its manager says why."
        name = f"backend {row['host']}"
        return CheckResult(name, reason, self._changed_at(row, reason is None))

    def _changed_at(self, row: ServiceRow, healthy: bool) -> datetime.datetime:  # noqa: FBT001
        """Return the time of the last change; a row has it only for a backend without reports."""
        if not row["alive"]:
            return row["seen_at"]
        known = self._since.get(row["host"])
        if known is None or known[0] != healthy:
            known = self._since[row["host"]] = (healthy, timeutils.utcnow())
        return known[1]


def _result(name: str, response: Answer[Any]) -> CheckResult:
    since = timeutils.utcnow() - datetime.timedelta(seconds=response.since)
    return CheckResult(name, _reason(name, response.error), since)


def _reason(name: str, error: Exception | None) -> str | None:
    """Return what is wrong; the text of an unexpected error is left out, it may have a secret."""
    if error is None:
        return None
    if isinstance(error, ProbeTimeout):
        return f"The {name} gives {error}."
    if isinstance(error, PathsCutError):
        return (
            f"The {name} has no queue for messages to {', '.join(error.hosts)}: an exchange, a "
            "queue or a binding was deleted. The manager restores it within seconds."
        )
    if isinstance(error, WriteRefusedError):
        return f"{error}"
    if isinstance(error, exception.Unavailable):
        return f"The {name} does not answer."
    return f"The {name} cannot be used ({type(error).__name__})."


class _State:
    health = Health()


def health() -> Health:
    """Return the health of this process."""
    return _State.health


def reset() -> None:
    """Start again with the present configuration."""
    _State.health = Health()


class _Check(pluginbase.HealthcheckBaseExtension):
    """A check that [healthcheck]backends can name."""

    def healthcheck(self, server_port: int) -> pluginbase.HealthcheckResult:  # noqa: ARG002
        """Return the result in the form of oslo.middleware."""
        failed = [result for result in self.results() if not result.healthy]
        reasons = (f"{result.name}: {result.reason}" for result in failed)
        return pluginbase.HealthcheckResult(not failed, " ".join(reasons) or "OK")

    def results(self) -> Sequence[CheckResult]:
        """Return the results that the check depends on."""
        raise NotImplementedError


class DatabaseCheck(_Check):
    """``attachd_database``: without it no request succeeds."""

    def results(self) -> Sequence[CheckResult]:
        """Return the state of the database."""
        return [health().database()]


class BrokerCheck(_Check):
    """``attachd_broker``: without it only reading requests succeed."""

    def results(self) -> Sequence[CheckResult]:
        """Return the state of the message queue."""
        return [health().broker()]


class BackendsCheck(_Check):
    """``attachd_backends``: all backends, for deployments where each of them is essential."""

    def results(self) -> Sequence[CheckResult]:
        """Return the state of each backend."""
        return health().backends()
