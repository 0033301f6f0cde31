# SPDX-License-Identifier: Apache-2.0
"""Counts requests, by the endpoint that answered; wrapped around the application if wanted."""

from collections.abc import Iterable
import functools
import sys
import time
from typing import Any

from attachd import service
from attachd.api.identity import Application, Environ, StartResponse
from attachd.db import census
from attachd.telemetry import catalogue, exporter, recorder

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER = "other"
"""What is none of our endpoints, or no method: callers must not be able to make labels."""

ENDPOINT = "attachd.endpoint"
"""Where the environment of a request has the template of its path, and then its Endpoint."""


class Measured:
    """Counts each request of an application."""

    def __init__(self, inner: Application, told: exporter.Exporter) -> None:
        self._inner = inner
        self._told = told

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        self._told.start()  # in this process, too
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
            recorder.observe(catalogue.API_DURATION, time.monotonic() - started, *labels)
            recorder.count(catalogue.API_REQUESTS, *labels, status)


def _method(environ: Environ) -> str:
    method = str(environ["REQUEST_METHOD"])
    return method if method in _METHODS else _OTHER


def endpoint_of(environ: Environ) -> str:
    """Return the template of the path, with the name of the action where there is one."""
    found = environ.get(ENDPOINT)
    if found is None:
        return "/healthcheck" if environ.get("PATH_INFO") == "/healthcheck" else _OTHER
    return found if isinstance(found, str) else _named(found.path, found.action)


@functools.lru_cache(maxsize=1024)
def _named(path: str, action: str | None) -> str:
    return f"{path} {action}" if action else path


def measured(application: Application) -> Application:
    """Return the application with its requests counted, and have them told."""
    told = exporter.of("api", service.version(), census.totals)
    if _stays():
        told.start()
    return Measured(application, told)


def _stays() -> bool:
    """Tell whether threads of this process run: those of uWSGI's master do not."""
    server: Any = sys.modules.get("uwsgi")  # inside uWSGI it is there from the beginning
    return server is None or bool(server.worker_id())
