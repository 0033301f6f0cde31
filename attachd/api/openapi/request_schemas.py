# SPDX-License-Identifier: Apache-2.0
"""Requests in OpenAPI: path and query parameters, headers and bodies.

Bodies have the schemas that validate them.  Their patterns are for Python, and are converted to
ECMA 262, which JSON Schema uses.
"""

from collections.abc import Mapping, Sequence
import re
from typing import Any

from attachd.api import endpoint, idempotency
from attachd.api import microversions as mv
from attachd.api.endpoint import Endpoint
from attachd.api.openapi import descriptions

Schema = dict[str, Any]

_PRECONDITION = 412
_SEGMENT: Schema = {"type": "string", "minLength": 1, "maxLength": 255}


def parameters(found: Sequence[Endpoint], version: mv.Version) -> list[Schema]:
    """Describe the parameters of one method of one URL, except the project id."""
    query = {name: schema for each in found for name, schema in each.doc.parameters.items()}
    return [
        *(_in_path(name) for name in found[0].variables),
        *(_in_url(name, dict(schema)) for name, schema in query.items()),
        _version_header(found, version),
        {"$ref": "#/components/parameters/RequestId"},
        *_headers(found),
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


def _version_header(found: Sequence[Endpoint], version: mv.Version) -> Schema:
    ext_since = found[0].ext_since
    plain = mv.RequestedVersions(version).header()
    others = [
        mv.RequestedVersions(version, each).header() for each in _ext_versions_since(ext_since)
    ]
    return {
        "name": mv.HEADER,
        "in": "header",
        "required": True,
        "description": "The microversion of this document, and the version of attachd's own API.",
        "schema": {"enum": others if ext_since else [plain, *others]},
    }


def _ext_versions_since(first: mv.Version | None) -> list[mv.Version]:
    return [each for each in mv.ext_versions() if first is None or each >= first]


def _headers(found: Sequence[Endpoint]) -> list[Schema]:
    names = []
    if any(each.idempotent for each in found):
        names.append("IdempotencyKey")
    if any("async_response" in each.arguments for each in found):
        names.append("Prefer")
    if any(_PRECONDITION in each.doc.faults for each in found):
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


def body(found: Sequence[Endpoint], version: mv.Version) -> Schema | None:
    """Describe the body of one method of one URL.

    :param found: one endpoint, or all actions
    :returns: None if no body is read
    """
    if found[0].action is not None:
        schema: Schema = {"oneOf": [_action(each, version) for each in found]}
    elif (plain := _checked(found[0], version)) is not None:
        schema = plain
    else:
        return None
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _action(each: Endpoint, version: mv.Version) -> Schema:
    assert each.action is not None
    return {
        "title": each.action,
        "description": descriptions.of(each).summary,
        "type": "object",
        "properties": {each.action: _checked(each, version)},
        "required": [each.action],
        "additionalProperties": False,
    }


def _checked(each: Endpoint, version: mv.Version) -> Schema | None:
    validator = None if each.body is None else each.body.at(version)
    if validator is None:
        return None
    schema: Schema = plain(validator.schema)
    return schema


def plain(value: Any) -> Any:
    """Return a schema as plain dictionaries and lists, with patterns for JSON Schema."""
    if isinstance(value, Mapping):
        found = {key: plain(each) for key, each in value.items()}
        if isinstance(found.get("pattern"), str):
            found["pattern"] = pattern(found["pattern"])
        if isinstance(found.get("patternProperties"), dict):
            found["patternProperties"] = {
                pattern(key): each for key, each in found["patternProperties"].items()
            }
        return found
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def pattern(text: str) -> str:
    r"""Convert a pattern to ECMA 262: ``^`` for ``\A``, and no inline flags."""
    text = text.replace(r"\A", "^").replace(r"\Z", "$")
    return _ANY_CASE.sub(lambda found: f"(?:{_in_any_case(found[1])})", text)


def _in_any_case(text: str) -> str:
    return "".join(f"[{each.upper()}{each.lower()}]" if each.isalpha() else each for each in text)
