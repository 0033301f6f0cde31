# SPDX-License-Identifier: Apache-2.0
"""Responses in OpenAPI: results, whose schemas type_schemas.py makes, and faults."""

from collections.abc import Mapping, Sequence
import http
import inspect
from types import MappingProxyType
from typing import Any, Final, NoReturn

from attachd.api import endpoint, errors
from attachd.api import microversions as mv
from attachd.api.endpoint import Endpoint
from attachd.api.openapi.type_schemas import TypeSchemas

Schema = dict[str, Any]

ALWAYS: Final = (400, 401, 403, 404, 406, 500, 503)
WITH_BODY: Final = (413, 415)
IDEMPOTENT: Final = (409, 422)

DESCRIPTIONS: Final[Mapping[int, str]] = MappingProxyType(
    {
        200: "Done.",
        202: "Accepted; the work continues.",
        204: "Done; there is no content.",
        300: "There are several versions.",
        302: "It is at another URL.",
        400: "The request is wrong, or the state of the resource does not allow it.",
        401: "The caller is not authenticated.",
        403: "Policy does not allow it; the message names the rule.",
        404: "The resource does not exist, or the microversion has no such call.",
        406: "There is no such microversion.",
        409: "The state of the resource does not allow it now.",
        410: "The requested events were purged.",
        412: "The resource was changed since it was read.",
        413: "The body or its connector is too large, or a quota is exceeded.",
        415: "The body is declared as something else than JSON.",
        422: "The Idempotency-Key was used for another request.",
        429: "The volume or the project has too many requests in progress.",
        500: "The backend or the service failed; the message, or the log, says why.",
        503: "A manager, the message queue or the database does not answer, or is busy.",
        504: "The manager did not answer in time; the work may go on.",
    }
)


def responses(routes: Sequence[Endpoint], type_schemas: TypeSchemas) -> Schema:
    """Describe the responses of one method of one URL, by status."""
    statuses = sorted({status for route in routes for status in faults(route)})
    return {
        **_results(routes, type_schemas),
        **{str(status): {"$ref": f"#/components/responses/{name(status)}"} for status in statuses},
    }


def faults(route: Endpoint) -> set[int]:
    """Return the statuses of all errors of an endpoint."""
    statuses = {*ALWAYS, *route.doc.faults}
    if route.body is not None:
        statuses |= {*WITH_BODY}
    if route.idempotent is not None:
        statuses |= {*IDEMPOTENT}
    return statuses


def results(route: Endpoint) -> set[int]:
    """Return the statuses of success; none if an endpoint always refuses."""
    if inspect.signature(route.handler).return_annotation is NoReturn:
        return set()
    return (
        {route.status, http.HTTPStatus.ACCEPTED}
        if "async_response" in route.arguments
        else {route.status}
    )


def _results(routes: Sequence[Endpoint], type_schemas: TypeSchemas) -> Schema:
    response: Schema = {}
    for status in sorted({int(status) for route in routes for status in results(route)}):
        answering = [route for route in routes if status in results(route)]
        response[str(status)] = _result(status, answering, type_schemas)
    return response


def _result(status: int, answering: Sequence[Endpoint], type_schemas: TypeSchemas) -> Schema:
    """Describe a success; if some actions have no content, the body is optional."""
    response: Schema = {
        "description": DESCRIPTIONS[status],
        "headers": _headers(status, answering),
    }
    bodies = [type_schemas.get(route.doc.response) for route in answering if route.doc.response]
    if bodies and len(bodies) == len(answering):
        schema = bodies[0] if len(bodies) == 1 else {"anyOf": bodies}
        response["content"] = {"application/json": {"schema": schema}}
    return response


def _headers(status: int, answering: Sequence[Endpoint]) -> Schema:
    names = ["X-OpenStack-Request-ID", mv.HEADER]
    if (
        any("async_response" in route.arguments for route in answering)
        and status == http.HTTPStatus.ACCEPTED
    ):
        names += [endpoint.PREFERENCE_APPLIED, "Location"]
    if any(route.idempotent for route in answering):
        names.append("Idempotent-Replayed")
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def headers() -> Schema:
    """Return the headers of responses."""
    return {
        "X-OpenStack-Request-ID": _header("The id of the request, for logs.", required=True),
        mv.HEADER: _header("The microversion of the answer."),
        endpoint.PREFERENCE_APPLIED: _header("The preference that was applied."),
        "Location": _header("The URL of the resource."),
        "Idempotent-Replayed": _header("`true`: a stored response was repeated."),
        "Retry-After": _header("Seconds until a retry may succeed."),
    }


def _header(text: str, *, required: bool = False) -> Schema:
    return {"description": text, "required": required, "schema": {"type": "string"}}


def components() -> Schema:
    """Return the responses of all faults, by name."""
    return {
        name(status): _fault(status)
        for status in DESCRIPTIONS
        if status >= http.HTTPStatus.BAD_REQUEST
    }


def name(status: int) -> str:
    """Return the component name of the fault of a status."""
    return f"Fault{status}"


def _fault(status: int) -> Schema:
    key = "error" if status == http.HTTPStatus.UNAUTHORIZED else errors.key(status)
    inner: Schema = {"code": {"const": status}, "message": {"type": "string"}}
    if status == http.HTTPStatus.UNAUTHORIZED:
        inner["title"] = {"type": "string"}
    if status == http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        inner["retryAfter"] = {"type": "string"}
    faulty = _object(inner)
    inner["reason_code"] = {"type": "string", "pattern": r"^attachd\.[a-z_]+$"}
    schema = _object({key: faulty})
    response: Schema = {"description": DESCRIPTIONS[status]}
    if status in {*errors.RETRYABLE, http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE}:
        response["headers"] = {"Retry-After": {"$ref": "#/components/headers/Retry-After"}}
    return {**response, "content": {"application/json": {"schema": schema}}}


def _object(properties: Schema) -> Schema:
    """Return the schema of an object of these keys and no others."""
    shape = {"type": "object", "properties": properties}
    return {**shape, "required": list(properties), "additionalProperties": False}
