# SPDX-License-Identifier: Apache-2.0
"""Volume types: create, look at, change, delete; lists.py lists them."""

from typing import Any, Final

from attachd import exception
from attachd.api import fields
from attachd.api.endpoint import endpoint
from attachd.api.types import lookup, policy, schema, view
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import types

ITEM = "/types/{type_id}"
DEFAULT: Final = "default"
"""Not an id: stands for the type of volumes that are created without one."""

_PUBLIC: Final = "os-volume-type-access:is_public"

Body = dict[str, Any]


@endpoint("GET", ITEM, policy=policy.GET)
def show(ctx: RequestContext, type_id: str) -> Body:
    """Answer one type, or the default one."""
    ctx.authorize(policy.GET)
    row = _default() if type_id == DEFAULT else lookup.by_id(ctx, type_id)
    return {"volume_type": view.detail(ctx, row)}


def _default() -> lookup.Row:
    row = lookup.default()
    if row is None:
        raise exception.NotFound("Default volume type can not be found.")
    return row


@endpoint("POST", "/types", policy=policy.CREATE, body=schema.CREATE)
def create(ctx: RequestContext, body: Body) -> Body:
    """Store a new type."""
    wanted = body["volume_type"]
    row = types.create(
        {
            "name": wanted["name"],
            "description": wanted.get("description"),
            "is_public": fields.truth("is_public", wanted.get(_PUBLIC, True)),
            "extra_specs": wanted.get("extra_specs") or {},
        }
    )
    return {"volume_type": view.detail(ctx, row)}


@endpoint("PUT", ITEM, policy=policy.UPDATE, body=schema.UPDATE)
def update(ctx: RequestContext, type_id: str, body: Body) -> Body:
    """Change name, description or visibility."""
    wanted = body["volume_type"]
    values = {key: wanted[key] for key in ("name", "description") if wanted.get(key) is not None}
    for key in (_PUBLIC, "is_public"):
        if key in wanted:
            values["is_public"] = fields.truth(key, wanted[key])
    if not values:
        raise exception.BadRequest(
            reason="Specify volume type name, description, is_public or a combination thereof."
        )
    types.update(type_id, values)
    return {"volume_type": view.detail(ctx, types.get(type_id))}


@endpoint("DELETE", ITEM, policy=policy.DELETE, status=202)
def delete(ctx: RequestContext, type_id: str) -> None:
    """Remove a type that no volume has."""
    if lookup.by_id(ctx, type_id)["name"] == CONF.default_volume_type:
        raise exception.BadRequest(
            reason=f"Volume type {type_id} is the default volume type and cannot be deleted."
        )
    types.delete(type_id)
