# SPDX-License-Identifier: Apache-2.0
"""The WSGI application of the API and its route table; built by wsgi.make() and by tests.

From outside to inside: request ids and the fallback for unexpected errors, proxy headers, status
page, health check, authentication, then pecan with its one controller, which looks up the endpoint
in the route table or answers with a version document.
"""

from collections.abc import Callable, Iterable, Sequence
import importlib
import re
from typing import Any, NamedTuple, cast

from oslo_context import context as oslo_context
from oslo_log import log
from oslo_middleware import http_proxy_to_wsgi, request_id
import pecan
import pecan.core
import webob
from webob import exc

from attachd import exception
from attachd.api import (
    endpoint,
    errors,
    filter_register,
    health,
    identity,
    policy_rules,
    serialization,
    telemetry_middleware,
    unsupported,
)
from attachd.api import microversions as mv
from attachd.api.endpoint import Call, Endpoint
from attachd.api.request_rate import RequestRate
from attachd.api.status_page import static_files
from attachd.api.types import lookup
from attachd.conf import CONF
from attachd.context import RequestContext

LOG = log.getLogger(__name__)

Environ = identity.Environ
StartResponse = identity.StartResponse
Application = identity.Application

_DOCUMENTS = (["v3"], ["v3", ""], [""])
"""The paths, in parts, of the version documents."""

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

_MAX_PROJECT_ID = 64
"""Characters of a project id, as the database stores it."""

_ATTACHD_VERSION = "attachd.attachd_version"
"""The key of the requested version of attachd's own API in the environment of a request."""

Identify = Callable[[dict[str, Any], str | None], RequestContext]
"""(environ, project id of the URL) -> context; raises Unauthorized, BadRequest."""

_REQUEST_ID = re.compile(request_id.ID_FORMAT)


class Match(NamedTuple):
    """The endpoints that match a URL and a method."""

    candidates: Sequence[Endpoint]
    url_project: str | None
    values: tuple[str, ...]


class _Node:
    """One part of a path; ``methods`` are those of the path that ends here.

    ``catch_all`` matches this path and all paths below it, by all methods, as a last resort.
    """

    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        self.variable: _Node | None = None
        self.methods: dict[str, list[Endpoint]] = {}
        self.catch_all: list[Endpoint] = []

    def child_for(self, part: str) -> "_Node":
        """Return the node for the next part of a path; create it if it is missing."""
        if not part.startswith("{"):
            return self.literal.setdefault(part, _Node())
        if self.variable is None:
            self.variable = _Node()
        return self.variable


class RouteTable:
    """The route table; literal parts of a path take precedence over variable ones.

    :param catch_all: endpoints that also match all URLs below theirs
    """

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        project_id_regex: str,
        catch_all: Iterable[Endpoint] = (),
    ) -> None:
        self._root = _Node()
        self._project = re.compile(project_id_regex)
        for route in endpoints:
            self._add_path(route.path).methods.setdefault(route.method, []).append(route)
        for route in catch_all:
            self._add_path(route.path).catch_all.append(route)

    def _add_path(self, path: str) -> _Node:
        node = self._root
        for part in path.split("/")[1:]:
            node = node.child_for(part)
        return node

    def find(self, method: str, parts: list[str]) -> Match | None:
        """Look up the parts of a path below /v3; return None for an unknown URL."""
        if parts[0] in self._root.literal:
            return self._walk(method, parts, None)
        if len(parts[0]) <= _MAX_PROJECT_ID and self._project.fullmatch(parts[0]):
            return self._walk(method, parts[1:], parts[0])
        return None

    def list_methods(self, parts: list[str]) -> list[str]:
        """Return the methods of a URL, without HEAD and OPTIONS; none for an unknown URL."""
        return [method for method in _METHODS if self._matches(method, parts)]

    def _matches(self, method: str, parts: list[str]) -> bool:
        match = self.find(method, parts)
        return match is not None and match.candidates[0].method == method

    def _walk(self, method: str, parts: list[str], url_project: str | None) -> Match | None:
        node = self._root
        values: list[str] = []
        catch_all: list[Endpoint] = []
        for number, part in enumerate(parts, 1):
            catch_all = node.catch_all or catch_all
            child = node.literal.get(part)
            if child is None:
                child = node.variable
                if not part and child is None and not catch_all and number == len(parts) > 1:
                    break  # A slash at the end; after a collection it would be an empty id.
                if child is None or not part:
                    return Match(catch_all, url_project, ()) if catch_all else None
                values.append(part)
            node = child
        candidates = node.methods.get(method) or node.catch_all or catch_all
        return Match(candidates, url_project, tuple(values)) if candidates else None


class Root:
    """The one controller, which pecan calls for every URL."""

    def __init__(self, identify: Identify) -> None:
        self._table = RouteTable(
            [*endpoint.load(), *unsupported.list_empty_collections()],
            CONF.api.project_id_regex,
            unsupported.list_endpoints(),
        )
        self._identify = identify
        self._request_rate = RequestRate.from_configuration()

    @pecan.expose(content_type="application/json")
    def dispatch(self, request: webob.Request, response: webob.Response) -> webob.Response:
        """Handle one request."""
        parts = request.path_info.split("/")[1:] or [""]
        if parts in _DOCUMENTS and request.method in {"GET", "HEAD"}:
            return self._handle(request, response, parts)
        if parts[0] != "v3" or len(parts) == 1:
            return exc.HTTPNotFound()
        if request.method == "OPTIONS" and (methods := self._table.list_methods(parts[1:])):
            return _allow(response, methods)
        # webob sends no body to HEAD.
        method = "GET" if request.method == "HEAD" else request.method
        match = self._table.find(method, parts[1:])
        if match is None:
            return exc.HTTPNotFound()
        return self._handle(request, response, match)

    def _handle(
        self, request: webob.Request, response: webob.Response, match: Match | list[str]
    ) -> webob.Response:
        response.headers["x-compute-request-id"] = request.environ["openstack.request_id"]
        try:
            requested = mv.negotiate(request.environ.get("HTTP_OPENSTACK_API_VERSION"))
            request.environ[_ATTACHD_VERSION] = requested.attachd_version
            _set_version_header(response, requested.header())
            if isinstance(match, Match):
                self._call(request, response, match, requested)
            else:
                _send_versions(request, response, match)
        except Exception as error:  # noqa: BLE001  errors.fault() logs and answers all of them
            _send_fault(request, response, error)
        if LOG.isEnabledFor(log.DEBUG):  # webob builds the path at each access
            LOG.debug("%s %s: %d", request.method, request.path, response.status_int)
        return response

    def _call(
        self,
        request: webob.Request,
        response: webob.Response,
        match: Match,
        requested: mv.RequestedVersions,
    ) -> None:
        context = self._identify(request.environ, match.url_project)
        if self._request_rate is not None:
            self._request_rate.check(context)
        context.attachd_version = requested.attachd_version
        serialization.check_segments(match.values)
        made = endpoint.Links(request, match.url_project)
        call = Call(
            request,
            response,
            context,
            made,
            requested.volume,
            {},
        )
        request.environ[telemetry_middleware.ENVIRON_KEY] = match.candidates[0].path
        chosen = request.environ[telemetry_middleware.ENVIRON_KEY] = endpoint.select(
            match.candidates, call
        )
        call.variables = dict(zip(chosen.variables, match.values, strict=True))
        response.status_int = chosen.status
        result = endpoint.call_handler(chosen, call)
        if isinstance(result, serialization.StreamingBody):
            response.app_iter = result
        else:
            response.body = b"" if result is None else serialization.encode(result)


def _allow(response: webob.Response, methods: list[str]) -> webob.Response:
    """Answer OPTIONS: with the methods of a URL in any microversion, and to any caller."""
    head = ["HEAD"] if "GET" in methods else []
    response.headers["Allow"] = ", ".join([*methods, *head, "OPTIONS"])
    response.content_type = None
    return response


def _set_version_header(response: webob.Response, header: str) -> None:
    response.headers[mv.HEADER] = header
    response.headers["Vary"] = mv.HEADER


def _send_fault(request: webob.Request, response: webob.Response, error: Exception) -> None:
    environ = request.environ
    fault = errors.fault(error, environ["openstack.request_id"], environ.get(_ATTACHD_VERSION))
    if isinstance(error, exception.Unauthorized):
        del response.headers["x-compute-request-id"]  # as keystonemiddleware answers a 401
    if isinstance(error, exception.NotAcceptable) and error.details["version"] >= mv.MINIMUM:
        _set_version_header(response, f"{mv.SERVICE} {error.details['version']}")
    response.status_int = fault.status
    response.body = fault.body
    response.headers.update(fault.headers.items())


def _send_versions(request: webob.Request, response: webob.Response, parts: list[str]) -> None:
    href = f"{endpoint.root_url(request)}/v3/"
    if parts == ["v3"]:
        response.status_int = 302
        response.headers["Location"] = href
        return
    response.status_int = 300 if parts == [""] else 200
    response.body = serialization.encode({"versions": [_version_document(href)]})


def _version_document(href: str) -> dict[str, Any]:
    """Return the version document of version 3, for discovery."""
    return {
        "id": "v3.0",
        "status": "CURRENT",
        "version": str(mv.LATEST),
        "min_version": str(mv.MINIMUM),
        "updated": mv.UPDATED,
        "links": [
            {"rel": "describedby", "type": "text/html", "href": "https://docs.openstack.org/"},
            {"rel": "self", "href": href},
        ],
        "media-types": [
            {
                "base": "application/json",
                "type": "application/vnd.openstack.volume+json;version=3",
            }
        ],
    }


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

    def invoke_controller(
        self,
        controller: Any,
        args: list[Any],
        kwargs: dict[str, Any],  # noqa: ARG002  find_controller() gives none
        state: Any,
    ) -> None:
        """Take the response of the controller; pecan would inspect its signature first."""
        state.response = response = controller(*args)
        if response.status_int == 200:  # noqa: PLR2004  HTTP
            state.response = _SuccessfulResponse(response)


class _SuccessfulResponse:
    """A response whose body pecan does not read.

    Pecan reads the body of each 200, and turns an empty one into a 204, where clients expect the
    200.  A stream would be read to its end before anything is sent.
    """

    status_int = 0

    def __init__(self, response: webob.Response) -> None:
        self._response = response

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Send the response."""
        return self._response(environ, start_response)


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
            fault = errors.fault(error, identity, environ.get(_ATTACHD_VERSION))
            response = Response(fault.body, fault.status, list(fault.headers.items()))
            response.content_type = "application/json"
            answer: Iterable[bytes] = response(environ, start)
            return answer


def make_app() -> Application:
    """Return the API as a WSGI application for the current configuration.

    :raises ConfigurationError: authentication cannot be set up as configured, or a file of
        policies or filters is invalid
    """
    policy_rules.load()
    filter_register.load()
    lookup.check_default()
    strategy = load_strategy()
    application: Application = Dispatcher(
        Root(strategy.identify),
        use_context_locals=False,
        force_canonical=False,
        guess_content_type_from_ext=False,
        default_renderer="json",
        request_cls=webob.Request,
        response_cls=Response,
    )
    application = health.HealthCheck(strategy.wrap(application))
    if CONF.ui.enabled:
        application = static_files.StatusPage(application)
    CONF.register_opts(http_proxy_to_wsgi.OPTS, group="oslo_middleware")
    if CONF.oslo_middleware.enable_proxy_headers_parsing:
        application = http_proxy_to_wsgi.HTTPProxyToWSGI(application, CONF)
    application = FaultMiddleware(application)
    application = telemetry_middleware.add_tracing(application)
    return telemetry_middleware.add_metrics(application) if CONF.metrics.enabled else application


def load_strategy() -> identity.Strategy:
    """Return the configured authentication strategy.

    Only this one is imported, because keystonemiddleware takes long to import.

    :raises ConfigurationError: none is configured
    """
    if CONF.api.auth_strategy is None:
        raise exception.ConfigurationError(
            reason="[api] auth_strategy is not set. Set it to keystone or http_basic; noauth lets "
            "any client that reaches the API do everything."
        )
    strategy: Any = importlib.import_module(f"attachd.api.{CONF.api.auth_strategy}")
    return cast("identity.Strategy", strategy)
