# SPDX-License-Identifier: Apache-2.0
"""Parameters of requests as OpenAPI describes them: of the path and of the URL, and headers."""

from collections.abc import Mapping, Sequence
import re
from typing import Any

from attachd.api import async_response, idempotency
from attachd.api import microversions as mv
from attachd.api.endpoint import Endpoint
from attachd.api.openapi import descriptions

Schema = dict[str, Any]

_PRECONDITION = 412
_SEGMENT: Schema = {"type": "string", "minLength": 1, "maxLength": 255}


def parameters(found: Sequence[Endpoint], version: mv.Version) -> list[Schema]:
    """Describe all parameters of what answers to one method of one URL, but the project's id."""
    told = {name: schema for each in found for name, schema in each.doc.parameters.items()}
    return [
        *(_in_path(name) for name in found[0].variables),
        *(_in_url(name, dict(schema)) for name, schema in told.items()),
        _version_header(found, version),
        {"$ref": "#/components/parameters/RequestId"},
        *_headers(found),
    ]


def project() -> Schema:
    """Describe the project's id, as URLs have it before 3.67."""
    return _in_path("project_id")


def _in_path(name: str) -> Schema:
    told = {"name": name, "in": "path", "description": descriptions.of_variable(name)}
    return {**told, "required": True, "schema": _SEGMENT}


def _in_url(name: str, schema: Schema) -> Schema:
    told = {"name": name, "in": "query", "description": schema.pop("description", "")}
    return {**told, "schema": schema}


def _version_header(found: Sequence[Endpoint], version: mv.Version) -> Schema:
    ext_since = found[0].ext_since
    plain = mv.Asked(version).header()
    others = [mv.Asked(version, each).header() for each in _ext_versions_since(ext_since)]
    return {
        "name": mv.HEADER,
        "in": "header",
        "required": True,
        "description": "The microversion that is described here, and attachd's own version.",
        "schema": {"enum": others if ext_since else [plain, *others]},
    }


def _ext_versions_since(first: mv.Version | None) -> list[mv.Version]:
    return [each for each in mv.ext_versions() if first is None or each >= first]


def _headers(found: Sequence[Endpoint]) -> list[Schema]:
    names = []
    if any(each.idempotent for each in found):
        names.append("IdempotencyKey")
    if any("async_response" in each.wants for each in found):
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
            "The id of the request that this one is a part of, for logs.",
            {"type": "string", "pattern": f"^req-{identity}$"},
        ),
        "IdempotencyKey": _header(
            idempotency.HEADER,
            "Drawn anew for each request, and sent again with its repetitions, which are "
            "answered as the first one was.",
            {"type": "string", "pattern": r"^[0-9A-Za-z._~-]{1,255}$"},
        ),
        "Prefer": _header(
            async_response.HEADER,
            "`respond-async`: answer 202 when it is noted down what is to be done.",
            {"enum": [async_response.RESPOND_ASYNC]},
        ),
        "IfMatch": _header(
            "If-Match",
            "The `ETag` of what was read: only if nobody else has changed it since.",
            {"type": "string"},
        ),
    }


def _header(name: str, text: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "description": text, "schema": schema}


_ANY_CASE = re.compile(r"\(\?i:((?:[^()\\]|\\.)*)\)")


def body(found: Sequence[Endpoint], version: mv.Version) -> Schema | None:
    """Describe the body of what answers to one method of one URL.

    :param found: one endpoint, or all actions
    :returns: None: none is read
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
    """Return a schema in plain dictionaries and lists, with patterns as JSON Schema has them."""
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
    r"""Write a pattern as ECMA 262 has it: ``^`` for ``\A``, and no flags in it."""
    text = text.replace(r"\A", "^").replace(r"\Z", "$")
    return _ANY_CASE.sub(lambda found: f"(?:{_in_any_case(found[1])})", text)


def _in_any_case(text: str) -> str:
    return "".join(f"[{each.upper()}{each.lower()}]" if each.isalpha() else each for each in text)
