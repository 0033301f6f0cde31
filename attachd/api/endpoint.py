# SPDX-License-Identifier: Apache-2.0
"""Declaration of the endpoints of the API, the arguments of handlers, and their call.

::

    @endpoint(
        "PUT",
        "/snacks/{snack_id}",
        since=mv.NEW_ATTACH,
        policy=policy.UPDATE,
        body=schema.UPDATE,
        status=200,
    )
    def update(ctx: RequestContext, snack_id: str, body: dict[str, Any]) -> dict[str, Any]: ...


    @action("/snacks/{snack_id}/action", "os-eat", policy=policy.EAT, body=schema.EAT)
    def eat(ctx: RequestContext, snack_id: str, body: Any) -> None: ...

A handler takes, by name, any of these arguments: the variable parts of its path; ``ctx``;
``body``, validated by its schema (of an action: the value of its key); ``query``, a dictionary of
strings; ``version``, the microversion; ``links``; ``request`` and ``response``, for headers and
for another status than the declared one; ``idempotency_claim``, the right to create the resource
of an idempotency key, or None without a key; ``async_response``, the caller's preference for an
asynchronous response (``Prefer: respond-async``), or None. A handler returns what is sent as
JSON, or None, and raises exceptions of attachd.exception.

``doc`` describes the endpoint in the OpenAPI document: see attachd.api.openapi.  Tests compare
it with real responses.  A call that changes something has no other query parameters than ``doc``
lists: one that is misspelt, as ``dry_run`` might be, must not be carried out without it.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import importlib
import inspect
import pkgutil
import re
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypedDict, TypeVar
import urllib.parse

import webob

from attachd import exception
from attachd.api import idempotency, serialization, validation
from attachd.api import microversions as mv
from attachd.conf import CONF
from attachd.context import RequestContext

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)
Schemas = validation.Schema | Sequence[tuple[mv.Version, validation.Schema]]
"""One schema, or schemas by the microversion that introduced each of them."""

NOUNS = (
    "attachments",
    "volumes",
    "snapshots",
    "transfers",
    "legacy",
    "types",
    "qos_specs",
    "resource_filters",
    "quotas",
    "messages",
    "services",
    "hosts",
    "agents",
    "fencing",
    "events",
    "clusters",
    "info",
)
"""The packages beside this module: their modules declare endpoints, policy.py has their RULES."""

_ARGUMENTS = frozenset(
    {
        *("ctx", "body", "query", "version", "links", "request", "response"),
        *("idempotency_claim", "async_response"),
    }
)
_VARIABLE = re.compile(r"\{(\w+)\}")
_WRITING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_MAX_LISTED: Final = 10
"""Unknown query parameters that a message shows."""


class EndpointDoc(NamedTuple):
    """Documentation of an endpoint for the OpenAPI document.

    Enforced at run time are only the names of the query parameters of calls that change something.

    :ivar response: the body of the response: a TypedDict, or the types of its keys; None: no body
    :ivar parameters: query parameters, with the schema of each
    :ivar faults: statuses of errors, besides those that any endpoint can answer
    :ivar ext_parameters: those of ``parameters`` that a call has only under attachd 1.0
    """

    response: Any = None
    parameters: Mapping[str, validation.Schema] = MappingProxyType({})
    faults: tuple[int, ...] = ()
    ext_parameters: frozenset[str] = frozenset()


NO_DOC = EndpointDoc()


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """One method of one path, or one action, with its handler."""

    method: str
    path: str
    since: mv.Version
    until: mv.Version
    policy: str | None
    body: validation.VersionedSchema | None
    status: int
    handler: Handler
    arguments: tuple[str, ...]
    action: str | None = None
    idempotent: idempotency.IdempotencySpec | None = None
    attachd_since: mv.Version | None = None
    doc: EndpointDoc = dataclasses.field(default=NO_DOC, compare=False)

    @property
    def operation(self) -> str:
        """The name of the endpoint in policies: "POST /snacks/{snack_id}/action (os-eat)"."""
        suffix = f" ({self.action})" if self.action else ""
        return f"{self.method} {self.path}{suffix}"

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variable parts of the path."""
        return tuple(_VARIABLE.findall(self.path))

    def is_in(self, call: "Call") -> bool:
        """Return whether the endpoint exists in the requested versions."""
        attachd_version = call.ctx.attachd_version
        is_there = self.since <= call.version <= self.until
        return is_there and (
            self.attachd_since is None
            or (attachd_version is not None and attachd_version >= self.attachd_since)
        )


class Link(TypedDict):
    """One link."""

    rel: str
    href: str


class Links:
    """Builder of links for one request: they have the project id if its URL has it."""

    def __init__(self, request: webob.Request, url_project: str | None) -> None:
        self._request = request
        self._project = f"/{url_project}" if url_project else ""

    def build(self, collection: str, identity: str) -> list[Link]:
        """Return the links of one resource: ``build("volumes", volume.id)``."""
        path = f"{self._project}/{collection}/{identity}"
        base = root_url(self._request)
        return [
            {"rel": "self", "href": f"{base}/v3{path}"},
            {"rel": "bookmark", "href": f"{base}{path}"},
        ]

    def next(self, path: str, query: Mapping[str, str], marker: str) -> list[Link]:
        """Return the link to the page after ``marker``.

        :param path: of the collection, as in its endpoint: "/volumes/detail"
        :param query: the query parameters of the present request
        """
        left_out = {"marker", "offset"}
        parameters = {key: text for key, text in query.items() if key not in left_out}
        parameters["marker"] = marker
        href = f"{root_url(self._request)}/v3{self._project}{path}"
        return [{"rel": "next", "href": f"{href}?{urllib.parse.urlencode(parameters)}"}]


def root_url(request: webob.Request) -> str:
    """Return the URL above ``/v3``, without a trailing slash."""
    public: str | None = CONF.api.public_endpoint
    url = public or str(request.application_url)
    return re.sub(r"/v3/?$", "", url).rstrip("/")


DRY_RUN: Final = "dry_run"
"""The query parameter of a request that changes nothing, where an endpoint has it."""

PREFER: Final = "Prefer"
PREFERENCE_APPLIED: Final = "Preference-Applied"
RESPOND_ASYNC: Final = "respond-async"

# RFC 7240, 2: the name of each preference, without its value and its parameters.
_PREFERENCE: Final = re.compile(r'\s*([!#$%&\'*+.^_`|~0-9A-Za-z-]*)(?:"(?:[^"\\]|\\.)*"?|[^,"])*')


class AsyncPreference:
    """A request's preference for an asynchronous response: Prefer: respond-async (RFC 7240).

    A handler that honours it calls :meth:`accept`: it answers 202 as soon as the request is
    stored, and does not wait for the work.
    """

    def __init__(self, response: webob.Response, links: Links) -> None:
        self._response = response
        self._links = links

    def accept(self, collection: str, identity: str) -> None:
        """Answer 202, with the URL of the resource to poll: ``accept("attachments", id)``."""
        self._response.status_int = 202
        self._response.headers[PREFERENCE_APPLIED] = RESPOND_ASYNC
        self._response.headers["Location"] = self._links.build(collection, identity)[0]["href"]


def async_preference(
    request: webob.Request, response: webob.Response, links: Links
) -> AsyncPreference | None:
    """Return the preference of a request; None without one, or with a malformed header."""
    header: str | None = request.headers.get(PREFER)
    if header is None or RESPOND_ASYNC not in _preference_names(header):
        return None
    return AsyncPreference(response, links)


def _preference_names(header: str) -> set[str]:
    names, position = set(), 0
    while position <= len(header):
        found = _PREFERENCE.match(header, position)
        assert found is not None  # the pattern also matches the empty string
        names.add(found[1].lower())
        position = found.end() + 1
    return names


@dataclasses.dataclass
class Call:
    """One request on its way to its handler."""

    request: Any
    response: Any
    ctx: RequestContext
    links: Links
    version: mv.Version
    variables: dict[str, str]
    body: Any = None


REGISTER: list[Endpoint] = []
"""All endpoints, in the order of their declaration."""


def load() -> list[Endpoint]:
    """Import all modules that declare endpoints, and return the endpoints."""
    for noun in NOUNS:
        package = importlib.import_module(f"attachd.api.{noun}")
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    importlib.import_module("attachd.api.unsupported")
    return REGISTER


def endpoint(
    method: str,
    path: str,
    *,
    since: mv.Version = mv.MINIMUM,
    until: mv.Version = mv.LATEST,
    policy: str | None = None,
    body: Schemas | None = None,
    status: int = 200,
    action: str | None = None,
    idempotent: idempotency.IdempotencySpec | None = None,
    attachd_since: mv.Version | None = None,
    doc: EndpointDoc = NO_DOC,
) -> Callable[[H], H]:
    """Declare the endpoint of a handler.

    :param path: below ``/v3`` and ``/v3/{project_id}``, both of which it serves
    :param since: the first microversion that has it; ``until``: the last one
    :param policy: the rule that is checked for the caller's own project, before the handler
    :param body: the schema of the body; None: the body is not read
    :param status: of a successful response
    :param action: the key of the body that selects this endpoint; see :func:`action`
    :param idempotent: how a response is stored for its idempotency key; None: keys are ignored
    :param attachd_since: the first version of attachd's own API that has it; None: it belongs to
        the Block Storage API
    :param doc: its documentation
    """

    def declare(handler: H) -> H:
        REGISTER.append(
            Endpoint(
                method,
                path,
                since,
                until,
                policy,
                None if body is None else validation.VersionedSchema(body, since),
                status,
                handler,
                _argument_names(handler, path),
                action=action,
                idempotent=idempotent,
                attachd_since=attachd_since,
                doc=doc,
            )
        )
        return handler

    return declare


def action(
    path: str,
    name: str,
    *,
    since: mv.Version = mv.MINIMUM,
    until: mv.Version = mv.LATEST,
    policy: str | None = None,
    body: Schemas | None = None,
    status: int = 202,
    attachd_since: mv.Version | None = None,
    doc: EndpointDoc = NO_DOC,
) -> Callable[[H], H]:
    """Declare the handler of an action: POST of ``{name: ...}``.

    :param body: the schema of the value; None: any
    :param attachd_since: as of :func:`endpoint`
    :param doc: its documentation
    """
    return endpoint(
        "POST",
        path,
        since=since,
        until=until,
        policy=policy,
        body={} if body is None else body,
        status=status,
        action=name,
        attachd_since=attachd_since,
        doc=doc,
    )


def _argument_names(handler: Handler, path: str) -> tuple[str, ...]:
    names = tuple(inspect.signature(handler).parameters)
    variables = set(_VARIABLE.findall(path))
    if unknown := set(names) - variables - _ARGUMENTS:
        raise TypeError(f"{handler.__qualname__} has unknown arguments {sorted(unknown)}")
    return names


def select(candidates: Sequence[Endpoint], call: Call) -> Endpoint:
    """Read the body and select the endpoint of one method and path that the request means.

    :raises VersionNotFound: none of them exists in this microversion
    :raises BadRequest: the body is malformed, or names no known action
    """
    if candidates[0].action is not None:
        candidates = _action_candidates(candidates, call)
    elif candidates[0].body is not None:
        call.body = serialization.read_json(call.request)
    for candidate in candidates:
        if candidate.is_in(call):
            return candidate
    raise exception.VersionNotFound(version=call.version)


def _action_candidates(candidates: Sequence[Endpoint], call: Call) -> list[Endpoint]:
    body = serialization.read_json(call.request)
    if not isinstance(body, dict) or len(body) != 1:
        raise exception.BadRequest(
            reason="Malformed request body: an object of one key, the action's name, is needed."
        )
    ((name, call.body),) = body.items()
    found = [candidate for candidate in candidates if candidate.action == name]
    if not found:
        raise exception.BadRequest(
            reason=f"There is no such action: {_printable(name)}. Verify the request body and "
            "Content-Type header and try again."
        )
    return found


def _printable(name: str) -> str:
    return (
        name
        if name.isprintable() and len(name) <= validation.MAX_SHOWN
        else validation.abbreviate(name)
    )


def call_handler(selected: Endpoint, call: Call) -> Any:
    """Check parameters, body and policy, then call the handler.

    :returns: what is sent as JSON, or None
    """
    query = _read_query(selected, call)
    if selected.body is not None:
        selected.body.check(call.body, call.version, selected.action or "")
    available: dict[str, Any] = {
        **call.variables,
        "ctx": call.ctx,
        "body": call.body,
        "version": call.version,
        "links": call.links,
        "request": call.request,
        "response": call.response,
        "query": query,
    }
    if "async_response" in selected.arguments:
        available["async_response"] = async_preference(call.request, call.response, call.links)
    if selected.policy is not None:
        call.ctx.authorize(selected.policy)

    def run(idempotency_claim: idempotency.IdempotencyClaim | None) -> Any:
        values = {**available, "idempotency_claim": idempotency_claim}
        return selected.handler(**{name: values[name] for name in selected.arguments})

    # The key of a dry run is left for the request itself.
    is_keyed = selected.idempotent is not None and not is_dry_run(query)
    key = idempotency.read_key(call.request) if is_keyed else None
    if selected.idempotent is None or key is None:
        return run(None)
    request = (selected.operation, call.variables, call.request.query_string, call.body)
    versions = (call.version, call.ctx.attachd_version)
    use = idempotency.KeyUse.from_request(call.ctx, key, *request, *versions)
    return idempotency.run_once(call.ctx, call.response, use, selected.idempotent, run)


def is_dry_run(query: Mapping[str, str]) -> bool:
    """Return whether a request, whose endpoint has the parameter, only asks."""
    return validation.parse_bool(DRY_RUN, query.get(DRY_RUN, "false"))


def _read_query(selected: Endpoint, call: Call) -> Mapping[str, str]:
    """Return the parameters; a call that changes something has only known ones.

    :raises BadRequest: naming the others and the known ones
    """
    is_writing, doc = selected.method in _WRITING, selected.doc
    if not is_writing and "query" not in selected.arguments:
        return {}
    query = serialization.read_query(call.request.query_string)
    if not is_writing:
        return query
    if unknown := [validation.abbreviate(name) for name in query if name not in doc.parameters]:
        known = [
            f"{name} (attachd {mv.ATTACHD_1_0})" if name in doc.ext_parameters else name
            for name in doc.parameters
        ]
        raise exception.BadRequest(
            reason=f"Unknown query parameters: {', '.join(unknown[:_MAX_LISTED])}. "
            f"{selected.operation} has {', '.join(known) or 'none'}. Nothing was changed."
        )
    if call.ctx.attachd_version is None and (names := sorted(query.keys() & doc.ext_parameters)):
        raise exception.BadRequest(
            reason=f"The query parameters {', '.join(names)} need the header {mv.HEADER}: "
            f"{mv.SERVICE} {mv.LATEST}, {mv.ATTACHD_SERVICE} {mv.ATTACHD_1_0}. Nothing was "
            "changed."
        )
    return query
