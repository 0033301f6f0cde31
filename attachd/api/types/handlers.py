# SPDX-License-Identifier: Apache-2.0
"""Volume types: create, look at, change, delete; lists.py lists them."""

from typing import Any, Final

from attachd import exception, notifications
from attachd.api import fields
from attachd.api.endpoint import endpoint
from attachd.api.types import lookup, policy, schema, view
from attachd.context import RequestContext
from attachd.db import types

ITEM = "/types/{type_id}"
DEFAULT: Final = "default"
"""Not an id: stands for the type of volumes that are created without one."""

Body = dict[str, Any]


@endpoint("GET", ITEM, policy=policy.GET, doc=view.ONE)
def show(ctx: RequestContext, type_id: str) -> Body:
    """Answer one type, or the default one."""
    row = _default(ctx) if type_id == DEFAULT else lookup.by_id(ctx, type_id)
    return {"volume_type": view.detail(row, view.Viewer.of(ctx))}


def _default(ctx: RequestContext) -> lookup.Row:
    row = lookup.default(ctx)
    if row is None:
        raise exception.NotFound("Default volume type can not be found.")
    return row


@endpoint(
    "POST",
    "/types",
    policy=policy.CREATE,
    body=schema.CREATE,
    doc=view.ONE._replace(faults=(409,)),
)
def create(ctx: RequestContext, body: Body) -> Body:
    """Store a new type."""
    wanted = body["volume_type"]
    values = {
        "name": wanted["name"],
        "description": wanted.get("description"),
        "is_public": fields.truth("is_public", wanted.get(view.PUBLIC, True)),
        "extra_specs": wanted.get("extra_specs") or {},
    }
    schema.check_specs(values["extra_specs"])
    with notifications.failures_of_type("create", name=wanted["name"]):
        row = types.create(values)
    notifications.volume_type("create", row)
    return {"volume_type": view.created(row, view.Viewer.of(ctx))}


@endpoint(
    "PUT", ITEM, policy=policy.UPDATE, body=schema.UPDATE, doc=view.ONE._replace(faults=(409,))
)
def update(ctx: RequestContext, type_id: str, body: Body) -> Body:
    """Change name, description or visibility."""
    wanted = body["volume_type"]
    values = {key: wanted[key] for key in ("name", "description") if wanted.get(key) is not None}
    for key in (view.PUBLIC, "is_public"):
        if key in wanted:
            values["is_public"] = fields.truth(key, wanted[key])
    if not values:
        raise exception.BadRequest(
            reason="Specify volume type name, description, is_public or a combination thereof."
        )
    with notifications.failures_of_type("update", type_id, values.get("name")):
        types.update(type_id, values)
        row = types.get(type_id)
    notifications.volume_type("update", row)
    return {"volume_type": view.changed(row, view.Viewer.of(ctx))}


@endpoint("DELETE", ITEM, policy=policy.DELETE, status=202)
def delete(ctx: RequestContext, type_id: str) -> None:
    """Remove a type that no volume has, and that is nobody's default."""
    with notifications.failures_of_type("delete", type_id):
        row = lookup.by_id(ctx, type_id)
        if lookup.is_configured_default(row):
            raise exception.TypeIsDefault(volume_type_id=type_id)
        types.delete(type_id)
    notifications.volume_type("delete", row)
