# SPDX-License-Identifier: Apache-2.0
"""The WSGI application of the API; built by wsgi.api and by tests.

From outside to inside: request ids and the fallback for unexpected errors, proxy headers, health
check, authentication, then pecan with its one controller.
"""

from collections.abc import Iterable
import functools
import importlib
import inspect
import re
from typing import Any, cast

from oslo_context import context as oslo_context
from oslo_middleware import http_proxy_to_wsgi, request_id
import pecan.core
import pecan.util
import webob

from attachd.api import errors, filters, health, identity, policy, root, telemetry_middleware
from attachd.api.types import lookup
from attachd.conf import CONF

Environ = identity.Environ
StartResponse = identity.StartResponse
Application = identity.Application

_REQUEST_ID = re.compile(request_id.ID_FORMAT)


class Response(webob.Response):
    """A response, in JSON by default."""

    default_content_type = "application/json"


class Dispatcher(pecan.core.ExplicitPecan):
    """Pecan with one controller, which has its own route table and reads bodies itself.

    Stock pecan looks up a controller by the parts of the URL and parses parameters and body
    before, with other errors than the API's, which doubles the CPU time of a simple GET.
    """

    def find_controller(self, state: Any) -> tuple[Any, list[Any], dict[str, Any]]:
        """Return the controller and its arguments."""
        state.request.pecan["content_type"] = "application/json"
        state.controller = self.root.dispatch
        return state.controller, [state.request, state.response], {}

    def _handle_empty_response_body(self, state: Any) -> None:
        # Pecan turns a 200 without a body into a 204; clients expect the 200.
        if state.response.status_int == 204:  # noqa: PLR2004  HTTP: no content type without content
            state.response.content_type = None


class FaultMiddleware:
    """Middleware that assigns a request id and answers unexpected errors with a fault."""

    def __init__(self, inner: Application) -> None:
        self._inner = inner

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Handle one request."""
        identity = oslo_context.generate_request_id()
        environ[request_id.ENV_REQUEST_ID] = identity
        said = environ.get("HTTP_X_OPENSTACK_REQUEST_ID")
        if said and _REQUEST_ID.match(said):
            environ[request_id.GLOBAL_REQ_ID] = said

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            headers.append((request_id.HTTP_RESP_HEADER_REQUEST_ID, identity))
            return start_response(status, headers, *rest)

        try:
            return self._inner(environ, start)
        except Exception as error:  # noqa: BLE001  errors.fault() logs and answers all of them
            fault = errors.fault(error, identity)
            response = Response(fault.body, fault.status, list(fault.headers.items()))
            response.content_type = "application/json"
            answer: Iterable[bytes] = response(environ, start)
            return answer


def make_app() -> Application:
    """Return the API as a WSGI application for the current configuration.

    :raises ConfigurationError: authentication cannot be set up as configured, or a file of
        policies or filters is invalid
    """
    policy.patch_oslo_policy_cache()
    policy.load()
    filters.load()
    lookup.check_default()
    patch_pecan_cache()
    strategy = load_strategy()
    application: Application = Dispatcher(
        root.Root(strategy.identify),
        use_context_locals=False,
        force_canonical=False,
        guess_content_type_from_ext=False,
        default_renderer="json",
        request_cls=webob.Request,
        response_cls=Response,
    )
    application = health.HealthCheck(strategy.wrap(application))
    CONF.register_opts(http_proxy_to_wsgi.OPTS, group="oslo_middleware")
    if CONF.oslo_middleware.enable_proxy_headers_parsing:
        application = http_proxy_to_wsgi.HTTPProxyToWSGI(application, CONF)
    application = FaultMiddleware(application)
    application = telemetry_middleware.add_tracing(application)
    return telemetry_middleware.add_metrics(application) if CONF.metrics.enabled else application


def load_strategy() -> identity.Strategy:
    """Return the configured authentication strategy.

    Only this one is imported, because keystonemiddleware takes long to import.
    """
    strategy: Any = importlib.import_module(f"attachd.api.{CONF.api.auth_strategy}")
    return cast("identity.Strategy", strategy)


def patch_pecan_cache() -> None:
    """Cache the signatures of controllers, which pecan inspects at each request.

    An unknown version of pecan is left unchanged.
    """
    known = getattr(pecan.util, "_getargspec", None)
    if known is not None and not hasattr(known, "cache_info") and inspect.isfunction(known):
        pecan.util._getargspec = functools.lru_cache(maxsize=64)(known)  # noqa: SLF001
