# SPDX-License-Identifier: Apache-2.0
"""Endpoints of the extra specs of volume types.

They cannot be changed while volumes have the type: a volume keeps what its type said when it was
created.
"""

from typing import Any

from attachd import exception, notifications
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.types import lookup, policy, schema, view
from attachd.context import RequestContext
from attachd.db.types import type_store

SPECS = "/types/{type_id}/extra_specs"
SPEC = f"{SPECS}/{{key}}"

Body = dict[str, Any]

_ALL = EndpointDoc({"extra_specs": dict[str, str | None]})
_ONE = EndpointDoc(dict[str, str | None])


@endpoint("GET", SPECS, policy=policy.LIST_SPECS, doc=_ALL)
def index(ctx: RequestContext, type_id: str) -> Body:
    """Return the extra specs that the caller may see."""
    return {"extra_specs": view.specs(ctx, lookup.get(ctx, type_id))}


@endpoint("GET", SPEC, policy=policy.GET_SPEC, doc=_ONE)
def show(ctx: RequestContext, type_id: str, key: str) -> Body:
    """Return one extra spec."""
    specs = view.specs(ctx, lookup.get(ctx, type_id))
    if key not in specs:
        raise exception.NotFound(f"Volume Type {type_id} has no extra specs with key {key}.")
    return {key: specs[key]}


@endpoint("POST", SPECS, policy=policy.CREATE_SPECS, body=schema.SPECS, doc=_ALL)
def create(ctx: RequestContext, type_id: str, body: Body) -> Body:
    """Set some extra specs and keep the others."""
    schema.check_specs(body["extra_specs"])
    row = lookup.get(ctx, type_id)
    type_store.merge_specs(type_id, body["extra_specs"])
    notifications.type_specs("create", row, specs=body["extra_specs"])
    return {"extra_specs": body["extra_specs"]}


@endpoint("PUT", SPEC, policy=policy.UPDATE_SPEC, body=schema.SPEC, doc=_ONE)
def update(ctx: RequestContext, type_id: str, key: str, body: Body) -> Body:
    """Set one extra spec."""
    if key not in body:
        raise exception.BadRequest(reason="Request body and URI mismatch")
    schema.check_specs(body)
    row = lookup.get(ctx, type_id)
    type_store.merge_specs(type_id, body)
    notifications.type_specs("update", row, id=key)
    return body


@endpoint("DELETE", SPEC, policy=policy.DELETE_SPEC, status=202)
def delete(ctx: RequestContext, type_id: str, key: str) -> None:
    """Remove one extra spec."""
    row = lookup.get(ctx, type_id)
    type_store.delete_spec(type_id, key)
    notifications.type_specs("delete", row, id=key)
