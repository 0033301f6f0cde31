# SPDX-License-Identifier: Apache-2.0
"""Middleware that counts requests by endpoint, and names their spans in traces."""

from collections.abc import Iterable
import functools
import sys
import time
from typing import Any

from oslo_middleware import request_id

from attachd import service
from attachd.api.identity import Application, Environ, StartResponse
from attachd.conf import CONF
from attachd.db import row_counts
from attachd.rpc import bulkheads
from attachd.telemetry import exporter, metrics
from attachd.telemetry import tracing as attachd_tracing

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER = "other"
"""The label of unknown endpoints and methods, so that clients cannot create labels."""

ENVIRON_KEY = "attachd.endpoint"
"""The key in the environ for the template of the path, later for the Endpoint."""


class MetricsMiddleware:
    """Middleware that counts each request."""

    def __init__(self, inner: Application, metrics_exporter: exporter.Exporter) -> None:
        self._inner = inner
        self._exporter = metrics_exporter

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Handle one request."""
        self._exporter.start()  # also in a process that was forked later
        started = time.monotonic()
        status = "500"

        def start(line: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            nonlocal status
            status = line[:3]
            return start_response(line, headers, *rest)

        try:
            return self._inner(environ, start)
        finally:
            labels = _method(environ), endpoint_of(environ)
            metrics.observe(metrics.API_DURATION, time.monotonic() - started, *labels)
            metrics.count(metrics.API_REQUESTS, *labels, status)


def _method(environ: Environ) -> str:
    method = str(environ["REQUEST_METHOD"])
    return method if method in _METHODS else _OTHER


def endpoint_of(environ: Environ) -> str:
    """Return the template of the path, with the name of the action if there is one."""
    found = environ.get(ENVIRON_KEY)
    if found is None:
        return "/healthcheck" if environ.get("PATH_INFO") == "/healthcheck" else _OTHER
    return found if isinstance(found, str) else _label(found.path, found.action)


@functools.lru_cache(maxsize=1024)
def _label(path: str, action: str | None) -> str:
    return f"{path} {action}" if action else path


def add_metrics(application: Application) -> Application:
    """Return the application with a counter of its requests, and start the exporter."""
    metrics_exporter = exporter.get_exporter("api", service.version(), row_counts.statement_totals)
    if _runs_threads():
        metrics_exporter.start()
        bulkheads.show_counters()
    return MetricsMiddleware(application, metrics_exporter)


def _runs_threads() -> bool:
    """Return whether threads of this process run: those of uWSGI's master do not."""
    server: Any = sys.modules.get("uwsgi")  # only inside uWSGI there is such a module
    return server is None or bool(server.worker_id())


class SpanNames:
    """Middleware that names spans of oslo.middleware by path templates, which are few."""

    def __init__(self, inner: Application) -> None:
        self._inner = inner

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Handle one request."""
        answer = self._inner(environ, start_response)
        span = environ.get("otel.span")
        if span is not None:
            endpoint = endpoint_of(environ)
            span.update_name(f"{environ['REQUEST_METHOD']} {endpoint}")
            span.set_attribute("http.route", endpoint)
            for attribute, key in (
                ("openstack.request_id", request_id.ENV_REQUEST_ID),
                ("openstack.global_request_id", request_id.GLOBAL_REQ_ID),
            ):
                if key in environ:
                    span.set_attribute(attribute, environ[key])
        return answer


def add_tracing(application: Application) -> Application:
    """Return the application with traced requests if tracing is enabled, else unchanged."""
    attachd_tracing.setup("attachd-api")
    if not attachd_tracing.is_on():
        return application
    from oslo_middleware import tracing  # noqa: PLC0415  only newer releases have it

    outer: Any = tracing.TracingMiddleware(SpanNames(application), CONF)
    wrapped: Application = outer
    return wrapped
