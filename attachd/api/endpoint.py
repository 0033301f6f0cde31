# SPDX-License-Identifier: Apache-2.0
"""Declares what the API answers to; handlers are written with it, root looks calls up in it.

::

    @endpoint(
        "PUT",
        "/snacks/{snack_id}",
        since=mv.NEW_ATTACH,
        policy=policy.UPDATE,
        body=schema.UPDATE,
        query=schema.QUERY,
        status=200,
    )
    def update(ctx: RequestContext, snack_id: str, body: dict[str, Any]) -> dict[str, Any]: ...


    @action("/snacks/{snack_id}/action", "os-eat", policy=policy.EAT, body=schema.EAT)
    def eat(ctx: RequestContext, snack_id: str, body: Any) -> None: ...

A handler is called with those of these arguments that it names: the variable parts of its path;
``ctx``; ``body``, as its schema lets it through, for an action what its name stands for;
``query``, a dictionary of strings; ``version``, the microversion; ``ext_version``, the version of
attachd's own API, or None where nothing of it may show; ``links``; ``request`` and ``response``,
for their headers, and for a status other than the declared one; ``idempotency_claim``, the right
to create the resource of an idempotency key, or None without a key; ``async_response``, the
preference for an asynchronous response, or None.  It returns what is sent as JSON, or None, and
raises exceptions of attachd.exception.

``doc`` is what clients get to know of it: see attachd.api.openapi.  Tests hold it against what is
answered.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import importlib
import inspect
import pkgutil
import re
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from attachd import exception
from attachd.api import async_response, idempotency, serialization, validation
from attachd.api import microversions as mv
from attachd.api.links import Links
from attachd.context import RequestContext

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)
Steps = validation.Schema | Sequence[tuple[mv.Version, validation.Schema]]
"""One schema, or schemas with the microversion since which each of them holds."""

NOUNS = (
    "attachments",
    "volumes",
    "actions",
    "legacy",
    "types",
    "default_types",
    "qos_specs",
    "resource_filters",
    "quotas",
    "messages",
    "services",
    "hosts",
    "agents",
    "events",
    "clusters",
    "info",
)
"""The folders beside this file: their modules declare endpoints, policy.py has their RULES."""

_ARGUMENTS = frozenset(
    {
        *("ctx", "body", "query", "version", "ext_version", "links", "request", "response"),
        *("idempotency_claim", "async_response"),
    }
)
_VARIABLE = re.compile(r"\{(\w+)\}")


class EndpointDoc(NamedTuple):
    """What clients are told of an endpoint, and nothing checks when it is called.

    :ivar response: the body of a response: a TypedDict, or the types of its keys; None: not told
    :ivar parameters: of the URL, with the schema of each
    :ivar faults: statuses of errors, beside those that any endpoint can answer
    """

    response: Any = None
    parameters: Mapping[str, validation.Schema] = MappingProxyType({})
    faults: tuple[int, ...] = ()


NO_DOC = EndpointDoc()


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """One thing that the API answers to."""

    method: str
    path: str
    since: mv.Version
    until: mv.Version
    policy: str | None
    body: validation.VersionedSchema | None
    query: validation.VersionedSchema | None
    status: int
    handler: Handler
    wants: tuple[str, ...]
    action: str | None = None
    idempotent: idempotency.IdempotencySpec | None = None
    ext_since: mv.Version | None = None
    doc: EndpointDoc = dataclasses.field(default=NO_DOC, compare=False)

    @property
    def operation(self) -> str:
        """What a rule's operations call this: "POST /snacks/{snack_id}/action (os-eat)"."""
        suffix = f" ({self.action})" if self.action else ""
        return f"{self.method} {self.path}{suffix}"

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variable parts of the path."""
        return tuple(_VARIABLE.findall(self.path))

    def exists_for(self, call: "Call") -> bool:
        """Tell whether it is there in the versions that a request asks for."""
        is_there = self.since <= call.version <= self.until
        return is_there and (
            self.ext_since is None
            or (call.ext_version is not None and call.ext_version >= self.ext_since)
        )


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
    ext_version: mv.Version | None = None


REGISTER: list[Endpoint] = []
"""All endpoints, in the order in which they were declared."""


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
    body: Steps | None = None,
    query: Steps | None = None,
    status: int = 200,
    idempotent: idempotency.IdempotencySpec | None = None,
    ext_since: mv.Version | None = None,
    doc: EndpointDoc = NO_DOC,
) -> Callable[[H], H]:
    """Declare what a handler answers to.

    :param path: below ``/v3`` or ``/v3/{project_id}``, which it serves alike
    :param since: the first microversion that has it; ``until``: the last one
    :param policy: the rule that is checked for the caller's own project, before the handler
    :param body: how the body has to be; None: none is read
    :param query: how the parameters of the URL have to be; None: anyhow
    :param status: of the answer, unless something is raised
    :param idempotent: how the answer to a request with a key is kept; None: keys are ignored
    :param ext_since: the first version of attachd's own API that has it; None: it needs none
    :param doc: what clients are told of it besides
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
                None if query is None else validation.VersionedSchema(query, since),
                status,
                handler,
                _wanted(handler, path),
                idempotent=idempotent,
                ext_since=ext_since,
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
    body: Steps | None = None,
    status: int = 202,
    doc: EndpointDoc = NO_DOC,
) -> Callable[[H], H]:
    """Declare what a handler does when it is asked to POST ``{name: ...}``.

    :param body: how that what the name stands for has to be; None: anyhow
    :param doc: what clients are told of it besides
    """
    steps: Steps = {} if body is None else body

    def declare(handler: H) -> H:
        REGISTER.append(
            Endpoint(
                "POST",
                path,
                since,
                until,
                policy,
                validation.VersionedSchema(steps, since),
                None,
                status,
                handler,
                _wanted(handler, path),
                name,
                doc=doc,
            )
        )
        return handler

    return declare


def _wanted(handler: Handler, path: str) -> tuple[str, ...]:
    names = tuple(inspect.signature(handler).parameters)
    variables = set(_VARIABLE.findall(path))
    if unknown := set(names) - variables - _ARGUMENTS:
        raise TypeError(f"{handler.__qualname__} wants {sorted(unknown)}: nothing like that")
    return names


def choose(candidates: Sequence[Endpoint], call: Call) -> Endpoint:
    """Read the body and pick, among the endpoints of one method and path, the one asked for.

    :raises VersionNotFound: none of them exists in this microversion
    :raises BadRequest: the body is broken, or names no action
    """
    if candidates[0].action is not None:
        candidates = _of_action(candidates, call)
    elif candidates[0].body is not None:
        call.body = serialization.read_json(call.request)
    for each in candidates:
        if each.exists_for(call):
            return each
    raise exception.VersionNotFound(version=call.version)


def _of_action(candidates: Sequence[Endpoint], call: Call) -> list[Endpoint]:
    body = serialization.read_json(call.request)
    if not isinstance(body, dict) or len(body) != 1:
        raise exception.BadRequest(
            reason="Malformed request body: an object of one key, the action's name, is needed."
        )
    ((name, call.body),) = body.items()
    found = [each for each in candidates if each.action == name]
    if not found:
        raise exception.BadRequest(
            reason=f"There is no such action: {_readable(name)}. Verify the request body and "
            "Content-Type header and try again."
        )
    return found


def _readable(name: str) -> str:
    return (
        name
        if name.isprintable() and len(name) <= validation.MAX_SHOWN
        else validation.abbreviate(name)
    )


def answer(chosen: Endpoint, call: Call) -> Any:
    """Check body, parameters and policy, and have the handler answer.

    :returns: what is to be sent in JSON, or None
    """
    if chosen.body is not None:
        chosen.body.check(call.body, call.version, chosen.action or "")
    available: dict[str, Any] = {
        **call.variables,
        "ctx": call.ctx,
        "body": call.body,
        "version": call.version,
        "ext_version": call.ext_version,
        "links": call.links,
        "request": call.request,
        "response": call.response,
    }
    if "async_response" in chosen.wants:
        available["async_response"] = async_response.requested(
            call.request, call.response, call.links
        )
    if chosen.query is not None or "query" in chosen.wants:
        available["query"] = _query(chosen, call)
    if chosen.policy is not None:
        call.ctx.authorize(chosen.policy)

    def run(idempotency_claim: idempotency.IdempotencyClaim | None) -> Any:
        given = {**available, "idempotency_claim": idempotency_claim}
        return chosen.handler(**{name: given[name] for name in chosen.wants})

    if chosen.idempotent is None or (key := idempotency.read_key(call.request)) is None:
        return run(None)
    whatever = (chosen.operation, call.variables, call.request.query_string, call.body)
    use = idempotency.KeyUse.of(call.ctx, key, *whatever, call.version, call.ext_version)
    return idempotency.run_once(call.ctx, call.response, use, chosen.idempotent, run)


def _query(chosen: Endpoint, call: Call) -> Mapping[str, str]:
    parameters = serialization.read_query(call.request.query_string)
    if chosen.query is not None:
        chosen.query.check(parameters, call.version)
    return parameters
