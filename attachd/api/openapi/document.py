# SPDX-License-Identifier: Apache-2.0
"""The API as an OpenAPI 3.1 document, generated from the endpoints; printed by attachd-manage.

The document depends on the code only, not on configuration or time.
"""

from collections.abc import Mapping, Sequence
from importlib import metadata
import itertools
import json
import operator
import re
from typing import Any, Final

import yaml

from attachd.api import endpoint
from attachd.api import microversions as mv
from attachd.api.endpoint import Endpoint
from attachd.api.openapi import descriptions, request_schemas, response_schemas
from attachd.api.openapi.type_schemas import TypeSchemas

Document = dict[str, Any]

_OPENAPI: Final = "3.1.0"
_METHODS: Final = ("GET", "POST", "PUT", "DELETE")
_TEXT: Final = """\
The Block Storage API v3 as attachd serves it, in microversion {version}.

Each request names the microversion in the header `OpenStack-API-Version`; what is described here
holds for this one. What is attachd's own is answered under `attachd {attachd_version}` only. An
object has no other fields than those described: new ones come with new microversions.

An error is an object of one key, with `code` and `message`. Where a URL has no such method, the
answer is a 404.
"""


def describe(version: mv.Version = mv.LATEST) -> Document:
    """Return the document of one microversion."""
    type_schemas = TypeSchemas(version)
    paths: Document = version_paths()
    routes = [route for route in endpoint.load() if route.since <= version <= route.until]
    for path, group in itertools.groupby(sorted(routes, key=_order), operator.attrgetter("path")):
        paths[_base(version) + path] = _path(list(group), version, type_schemas)
    return {
        "openapi": _OPENAPI,
        "info": {
            "title": "attachd",
            "summary": "Attaches block storage volumes to hosts",
            "description": _TEXT.format(version=version, attachd_version=mv.ATTACHD_LATEST),
            "version": str(version),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "x-attachd-release": metadata.version("attachd"),
        },
        "servers": [{"url": "/", "description": "The endpoint of the service, without /v3."}],
        "security": [{"token": []}],
        "tags": [{"name": noun} for noun in endpoint.NOUNS],
        "paths": paths,
        "components": _components(type_schemas),
    }


def _base(version: mv.Version) -> str:
    return "/v3" if version >= mv.PROJECT_ID_OPTIONAL_IN_URL else "/v3/{project_id}"


def _order(route: Endpoint) -> tuple[str, int, str]:
    return route.path, _METHODS.index(route.method), route.action or ""


def _path(group: list[Endpoint], version: mv.Version, type_schemas: TypeSchemas) -> Document:
    operation: Document = {}
    if version < mv.PROJECT_ID_OPTIONAL_IN_URL:
        operation["parameters"] = [request_schemas.project()]
    for method, routes in itertools.groupby(group, operator.attrgetter("method")):
        operation[method.lower()] = _operation(list(routes), version, type_schemas)
    return operation


def _operation(
    routes: Sequence[Endpoint], version: mv.Version, type_schemas: TypeSchemas
) -> Document:
    operation: Document = {
        **_names(routes),
        "parameters": request_schemas.parameters(routes, version),
    }
    if (body := request_schemas.body(routes, version)) is not None:
        operation["requestBody"] = body
    return {**operation, "responses": response_schemas.responses(routes, type_schemas)}


def _names(routes: Sequence[Endpoint]) -> Document:
    first = routes[0]
    if first.action is None:
        tag = first.handler.__module__.split(".")[2]
        summary, text = descriptions.describe(first)
    else:
        tag, summary = (
            first.path.split("/")[1],
            "Run the action that the only key of the body names.",
        )
        text = "\n".join(
            f"* `{route.action}`: {descriptions.describe(route).summary}" for route in routes
        )
    names = {"operationId": _operation_id(first), "tags": [tag]}
    return {**names, "summary": summary, "description": text}


def _operation_id(route: Endpoint) -> str:
    """Return an id that depends on the URL only: ``get_volumes_volume_id``."""
    return re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").rstrip("_")


def _components(type_schemas: TypeSchemas) -> Document:
    return {
        "schemas": dict(sorted(type_schemas.components.items())),
        "parameters": request_schemas.components(),
        "responses": response_schemas.components(),
        "headers": response_schemas.headers(),
        "securitySchemes": {
            "token": {
                "type": "apiKey",
                "in": "header",
                "name": "X-Auth-Token",
                "description": "A token of Keystone, or of the configured authentication.",
            }
        },
    }


def parse_version(text: str) -> mv.Version:
    """Return the microversion of ``3.71`` or ``latest``.

    :raises BadRequest: it is malformed
    :raises NotAcceptable: it does not exist
    """
    return mv.negotiate(f"{mv.SERVICE} {text}").volume


def to_json(document: Mapping[str, Any]) -> str:
    """Encode a document as JSON."""
    return json.dumps(document, indent=2) + "\n"


def to_yaml(document: Mapping[str, Any]) -> str:
    """Encode a document as YAML, without anchors."""
    plain = json.loads(json.dumps(document))
    written: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=99)
    return written


Schema = dict[str, Any]


def version_paths() -> Schema:
    """Describe the version documents, the only responses that need no token."""
    return {
        "/": {"get": _version_operation("get_versions", "List the versions of the API.", "300")},
        "/v3/": {"get": _version_operation("get_version", "Show the only version.", "200")},
    }


def _version_operation(name: str, summary: str, status: str) -> Schema:
    return {
        "operationId": name,
        "summary": summary,
        "security": [],
        "responses": {
            status: {
                "description": summary,
                "content": {"application/json": {"schema": _VERSIONS_SCHEMA}},
            },
            "400": {"$ref": f"#/components/responses/{response_schemas.name(400)}"},
            "406": {"$ref": f"#/components/responses/{response_schemas.name(406)}"},
        },
    }


_STRING: Schema = {"type": "string"}


def _object(properties: Schema, *optional: str) -> Schema:
    required = [name for name in properties if name not in optional]
    shape = {"type": "object", "properties": properties}
    return {**shape, "required": required, "additionalProperties": False}


_VERSIONS_SCHEMA: Schema = _object(
    {
        "versions": {
            "type": "array",
            "items": _object(
                {
                    **dict.fromkeys(
                        ("id", "status", "version", "min_version", "updated"), _STRING
                    ),
                    "links": {
                        "type": "array",
                        "items": _object(
                            {"rel": _STRING, "type": _STRING, "href": _STRING}, "type"
                        ),
                    },
                    "media-types": {
                        "type": "array",
                        "items": _object({"base": _STRING, "type": _STRING}),
                    },
                }
            ),
        }
    }
)
