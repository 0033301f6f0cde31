# SPDX-License-Identifier: Apache-2.0
"""The route table, the dispatch of a request to its endpoint, and the version documents."""

from collections.abc import Callable, Iterable, Sequence
import re
from typing import Any, NamedTuple

from oslo_log import log
import pecan
import webob
from webob import exc

from attachd import exception
from attachd.api import endpoint, errors, links, serialization, telemetry_middleware, unsupported
from attachd.api import microversions as mv
from attachd.api.endpoint import Call, Endpoint
from attachd.conf import CONF
from attachd.context import RequestContext

LOG = log.getLogger(__name__)

_DOCUMENTS = (["v3"], ["v3", ""], [""])
"""The paths, in parts, of the version documents."""

_MAX_PROJECT_ID = 64
"""Characters of a project id, as the database stores it."""

Identify = Callable[[dict[str, Any], str | None], RequestContext]
"""(environ, project id of the URL) -> context; raises Unauthorized, BadRequest."""


class Match(NamedTuple):
    """The endpoints that match a URL and a method."""

    candidates: Sequence[Endpoint]
    url_project: str | None
    values: tuple[str, ...]


class _Node:
    """One part of a path; ``methods`` are those of the path that ends here.

    ``anything`` matches this path and all paths below it, by all methods, as a last resort.
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

    :param missing: endpoints that also match all URLs below theirs
    """

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        project_id_regex: str,
        catch_all: Iterable[Endpoint] = (),
    ) -> None:
        self._root = _Node()
        self._project = re.compile(project_id_regex)
        for each in endpoints:
            self._add_path(each.path).methods.setdefault(each.method, []).append(each)
        for each in catch_all:
            self._add_path(each.path).catch_all.append(each)

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

    def _walk(self, method: str, parts: list[str], url_project: str | None) -> Match | None:
        node = self._root
        values: list[str] = []
        for part in parts:
            if node.catch_all:
                return Match(node.catch_all, url_project, ())
            child = node.literal.get(part)
            if child is None:
                child = node.variable
                if child is None or not part:
                    return None
                values.append(part)
            node = child
        candidates = node.methods.get(method) or node.catch_all
        return Match(candidates, url_project, tuple(values)) if candidates else None


class Root:
    """The one controller, which pecan calls for every URL."""

    def __init__(self, identify: Identify) -> None:
        self._table = RouteTable(
            endpoint.load(), CONF.api.project_id_regex, unsupported.list_endpoints()
        )
        self._identify = identify

    @pecan.expose(content_type="application/json")
    def dispatch(self, request: webob.Request, response: webob.Response) -> webob.Response:
        """Handle one request."""
        parts = request.path_info.split("/")[1:] or [""]
        if parts in _DOCUMENTS and request.method in {"GET", "HEAD"}:
            return self._handle(request, response, parts)
        match = None
        if parts[0] == "v3" and len(parts) > 1:
            match = self._table.find(request.method, parts[1:])
        if match is None:
            return exc.HTTPNotFound()
        return self._handle(request, response, match)

    def _handle(
        self, request: webob.Request, response: webob.Response, match: Match | list[str]
    ) -> webob.Response:
        response.headers["x-compute-request-id"] = request.environ["openstack.request_id"]
        try:
            requested = mv.negotiate(request.environ.get("HTTP_OPENSTACK_API_VERSION"))
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
        serialization.check_segments(match.values)
        made = links.Links(request, match.url_project)
        call = Call(
            request,
            response,
            context,
            made,
            requested.volume,
            {},
            ext_version=requested.ext_version,
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


def _set_version_header(response: webob.Response, header: str) -> None:
    response.headers[mv.HEADER] = header
    response.headers["Vary"] = mv.HEADER


def _send_fault(request: webob.Request, response: webob.Response, error: Exception) -> None:
    fault = errors.fault(error, request.environ["openstack.request_id"])
    if isinstance(error, exception.Unauthorized):
        del response.headers["x-compute-request-id"]  # as keystonemiddleware answers a 401
    if isinstance(error, exception.NotAcceptable) and error.details["version"] >= mv.MINIMUM:
        _set_version_header(response, f"{mv.SERVICE} {error.details['version']}")
    response.status_int = fault.status
    response.body = fault.body
    response.headers.update(fault.headers)


def _send_versions(request: webob.Request, response: webob.Response, parts: list[str]) -> None:
    href = f"{links.root(request)}/v3/"
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
