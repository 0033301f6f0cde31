# SPDX-License-Identifier: Apache-2.0
"""Requests in OpenAPI: path and query parameters, headers and bodies.

Bodies have the schemas that validate them.  Their patterns are for Python, and are converted to
ECMA 262, which JSON Schema uses.
"""

from collections.abc import Mapping, Sequence
import re
from typing import Any, Final

from attachd.api import endpoint, idempotency
from attachd.api import microversions as mv
from attachd.api.endpoint import Endpoint
from attachd.api.openapi import descriptions

Schema = dict[str, Any]

_PRECONDITION = 412
_SEGMENT: Schema = {"type": "string", "minLength": 1, "maxLength": 255}


def parameters(routes: Sequence[Endpoint], version: mv.Version) -> list[Schema]:
    """Describe the parameters of one method of one URL, except the project id."""
    query = {name: schema for route in routes for name, schema in route.doc.parameters.items()}
    return [
        *(_in_path(name) for name in routes[0].variables),
        *(_in_url(name, dict(schema)) for name, schema in query.items()),
        _version_header(routes, version),
        {"$ref": "#/components/parameters/RequestId"},
        *_headers(routes),
    ]


def project() -> Schema:
    """Describe the project id, which URLs have before 3.67."""
    return _in_path("project_id")


def _in_path(name: str) -> Schema:
    parameter = {"name": name, "in": "path", "description": descriptions.of_variable(name)}
    return {**parameter, "required": True, "schema": _SEGMENT}


def _in_url(name: str, schema: Schema) -> Schema:
    parameter = {"name": name, "in": "query", "description": schema.pop("description", "")}
    return {**parameter, "schema": schema}


def _version_header(routes: Sequence[Endpoint], version: mv.Version) -> Schema:
    # Of several actions some may be of the Block Storage API.
    attachd_since = min((route.attachd_since or _ANY for route in routes), default=_ANY)
    plain = mv.RequestedVersions(version).header()
    others = [
        mv.RequestedVersions(version, attachd_version).header()
        for attachd_version in mv.attachd_versions()
        if attachd_version >= attachd_since
    ]
    return {
        "name": mv.HEADER,
        "in": "header",
        "required": True,
        "description": "The microversion of this document, and the version of attachd's own API.",
        "schema": {"enum": [plain, *others] if attachd_since == _ANY else others},
    }


_ANY: Final = mv.Version(0, 0)


def _headers(routes: Sequence[Endpoint]) -> list[Schema]:
    names = []
    if any(route.idempotent for route in routes):
        names.append("IdempotencyKey")
    if any("async_response" in route.arguments for route in routes):
        names.append("Prefer")
    if any(_PRECONDITION in route.doc.faults for route in routes):
        names.append("IfMatch")
    return [{"$ref": f"#/components/parameters/{name}"} for name in names]


def components() -> dict[str, Schema]:
    """Return the headers that several endpoints take."""
    identity = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    return {
        "RequestId": _header(
            "X-OpenStack-Request-ID",
            "The id of the request that caused this one, for logs.",
            {"type": "string", "pattern": f"^req-{identity}$"},
        ),
        "IdempotencyKey": _header(
            idempotency.HEADER,
            "A new value for each request; the same value for its repetitions, which get the "
            "response of the first one.",
            {"type": "string", "pattern": r"^[0-9A-Za-z._~-]{1,255}$"},
        ),
        "Prefer": _header(
            endpoint.PREFER,
            "`respond-async`: answer 202 as soon as the request is stored.",
            {"enum": [endpoint.RESPOND_ASYNC]},
        ),
        "IfMatch": _header(
            "If-Match",
            "The `ETag` of the last read: the request fails if there was a change since.",
            {"type": "string"},
        ),
    }


def _header(name: str, text: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "description": text, "schema": schema}


_ANY_CASE = re.compile(r"\(\?i:((?:[^()\\]|\\.)*)\)")


def body(routes: Sequence[Endpoint], version: mv.Version) -> Schema | None:
    """Describe the body of one method of one URL.

    :param routes: one endpoint, or all actions
    :returns: None if no body is read
    """
    if routes[0].action is not None:
        schema: Schema = {"oneOf": [_action(route, version) for route in routes]}
    elif (plain := _checked(routes[0], version)) is not None:
        schema = plain
    else:
        return None
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _action(route: Endpoint, version: mv.Version) -> Schema:
    assert route.action is not None
    return {
        "title": route.action,
        "description": descriptions.describe(route).summary,
        "type": "object",
        "properties": {route.action: _checked(route, version)},
        "required": [route.action],
        "additionalProperties": False,
    }


def _checked(route: Endpoint, version: mv.Version) -> Schema | None:
    validator = None if route.body is None else route.body.get(version)
    if validator is None:
        return None
    schema: Schema = plain(validator.schema)
    return schema


def plain(value: Any) -> Any:
    """Return a schema as plain dictionaries and lists, with patterns for JSON Schema."""
    if isinstance(value, Mapping):
        converted = {key: plain(item) for key, item in value.items()}
        if isinstance(converted.get("pattern"), str):
            converted["pattern"] = pattern(converted["pattern"])
        if isinstance(converted.get("patternProperties"), dict):
            converted["patternProperties"] = {
                pattern(key): schema for key, schema in converted["patternProperties"].items()
            }
        return converted
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def pattern(text: str) -> str:
    r"""Convert a pattern to ECMA 262: ``^`` for ``\A``, and no inline flags."""
    text = text.replace(r"\A", "^").replace(r"\Z", "$")
    return _ANY_CASE.sub(lambda match: f"(?:{_in_any_case(match[1])})", text)


def _in_any_case(text: str) -> str:
    return "".join(f"[{char.upper()}{char.lower()}]" if char.isalpha() else char for char in text)
