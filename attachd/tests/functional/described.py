# SPDX-License-Identifier: Apache-2.0
"""Holds what is answered against the API's description; used by tests that send requests.

What is checked is what clients are told: that the status of each answer is among those of its
endpoint, and that the body has the shape that is told of it, in the microversion that was asked
for.
"""

import functools
import json
from typing import Any

import jsonschema

from attachd.api import app, endpoint, root
from attachd.api import microversions as mv
from attachd.api.endpoint import Endpoint
from attachd.api.openapi import response_schemas
from attachd.api.openapi.type_schemas import Schema, TypeSchemas

PROJECT = "[0-9a-f-]{32,36}|admin|demo"


class NotAsDescribedError(AssertionError):
    """An answer that nobody is told of."""


def application(inner: app.Application) -> app.Application:
    """Return a WSGI application that answers as another one, and checks each answer."""

    def current(environ: dict[str, Any], start_response: Any) -> Any:
        started: list[tuple[str, list[tuple[str, str]]]] = []

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            started.append((status, headers))
            return start_response(status, headers, *rest)

        # Looked at before: whoever answers may change it.
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        version = environ.get("HTTP_OPENSTACK_API_VERSION")
        pieces = inner(environ, start)
        ((status, headers),) = started
        kinds = [value for name, value in headers if name.lower() == "content-type"]
        if "application/json" not in kinds:
            return pieces
        raw = b"".join(pieces)
        check(method, path, version, int(status.split()[0]), raw)
        return [raw]

    return current


def check(method: str, path: str, version: str | None, status: int, raw: bytes) -> None:
    """Let an answer pass that is described.

    :param version: the header that asked for it
    :raises NotAsDescribedError: its status is not, or its body
    """
    found = _find(method, path)
    if not found:
        return
    named = f"{method} {path} is answered {status}"
    if not any(
        status in response_schemas.results(each) | response_schemas.faults(each) for each in found
    ):
        raise NotAsDescribedError(f"{named}, which is not described: {raw!r}")
    if not raw:
        return
    answering = [each for each in found if status in response_schemas.results(each)]
    validators = [_validator(each.operation, version) for each in answering] or [_fault(status)]
    errors = [[*each.iter_errors(json.loads(raw))] for each in validators]
    if all(errors):
        raise NotAsDescribedError(f"{named}, not as described: {errors} {raw!r}")


@functools.cache
def _table() -> root.RouteTable:
    return root.RouteTable(endpoint.load(), PROJECT)


def _find(method: str, path: str) -> list[Endpoint]:
    """Return the endpoints of a URL; nothing where there is none."""
    parts = path.split("/")[1:]
    if parts[0] != "v3" or len(parts) < 2:
        return []
    match = _table().find(method, parts[1:])
    return [*match.candidates] if match else []


@functools.cache
def _validator(operation: str, version: str | None) -> Any:
    """Return what checks the bodies of the answers of an endpoint."""
    (each,) = (each for each in endpoint.load() if each.operation == operation)
    shapes = TypeSchemas(mv.negotiate(version).volume)
    answers = each.doc.response
    schema: Schema = {"const": ""} if answers is None else shapes.of(answers)
    text = json.dumps({**schema, "$defs": shapes.components})
    return jsonschema.Draft202012Validator(
        json.loads(text.replace("#/components/schemas/", "#/$defs/"))
    )


@functools.cache
def _fault(status: int) -> Any:
    """Return what checks the body of a fault."""
    told = response_schemas.components()[response_schemas.name(status)]
    return jsonschema.Draft202012Validator(told["content"]["application/json"]["schema"])
