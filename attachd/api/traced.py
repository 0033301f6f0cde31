# SPDX-License-Identifier: Apache-2.0
"""Has the span of a request carry its ids and the name of its endpoint, if traces are wanted."""

from collections.abc import Iterable
from typing import Any

from oslo_middleware import request_id, tracing

from attachd.api.identity import Application, Environ, StartResponse
from attachd.api.telemetry_middleware import endpoint_of
from attachd.conf import CONF
from attachd.telemetry import tracing as ours


class Traced:
    """Names the spans that oslo.middleware makes: by templates, as there are few of them."""

    def __init__(self, inner: Application) -> None:
        self._inner = inner

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
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


def traced(application: Application) -> Application:
    """Return the application with its requests traced, or as it is."""
    ours.setup("attachd-api")
    if not ours.is_on():
        return application
    outer: Any = tracing.TracingMiddleware(Traced(application), CONF)
    made: Application = outer
    return made
