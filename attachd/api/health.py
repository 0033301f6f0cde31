# SPDX-License-Identifier: Apache-2.0
"""Answers /healthcheck: in short to everybody, in detail to whom it concerns.

The short answer is that of oslo.middleware, with the checks that [healthcheck]backends names.
The detail has all checks, whatever the short answer depends on.
"""

from collections.abc import Iterable
from importlib import metadata
import ipaddress
from typing import Any

from oslo_config import cfg
from oslo_middleware import healthcheck
from oslo_middleware.healthcheck import opts
import webob

from attachd import exception
from attachd.api import health_checks, serialization
from attachd.api.identity import Application, Environ, StartResponse
from attachd.conf import CONF

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
        health_checks.forget()
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
    known = health_checks.health()
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
