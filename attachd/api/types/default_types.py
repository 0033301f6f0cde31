# SPDX-License-Identifier: Apache-2.0
"""Endpoints of default types: the type of volumes that a project creates without one."""

from typing import Any, Final, TypedDict

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.types import lookup, policy
from attachd.api.validation import NAME, fields, wrapped
from attachd.context import RequestContext
from attachd.db.row_types import DefaultTypeRow
from attachd.db.types import default_types

ITEM = "/default-types/{default_project_id}"
SINCE = mv.DEFAULT_TYPE_OVERRIDES
_MAX_PROJECT_ID = 64
"""Characters of a project id, as the tables store it."""

BODY: Final = wrapped("default_type", fields({"volume_type": NAME}, "volume_type"))

Body = dict[str, Any]


class DefaultType(TypedDict):
    """A project's default type."""

    project_id: str
    volume_type_id: str


@endpoint(
    "GET",
    "/default-types",
    since=SINCE,
    policy=policy.LIST_DEFAULTS,
    doc=EndpointDoc({"default_types": list[DefaultType]}),
)
def index() -> Body:
    """Return the projects that have a default type of their own."""
    return {"default_types": [_show(row) for row in default_types.list_all()]}


@endpoint(
    "GET",
    ITEM,
    since=SINCE,
    policy=policy.GET_DEFAULT,
    doc=EndpointDoc({"default_type": DefaultType}),
)
def show(default_project_id: str) -> Body:
    """Return a project's default type."""
    return {"default_type": _show(default_types.get(default_project_id))}


@endpoint(
    "PUT",
    ITEM,
    since=SINCE,
    policy=policy.SET_DEFAULT,
    body=BODY,
    doc=EndpointDoc({"default_type": DefaultType}),
)
def put(ctx: RequestContext, default_project_id: str, body: Body) -> Body:
    """Set a project's default type, given by id or name."""
    if len(default_project_id) > _MAX_PROJECT_ID:
        raise exception.NotFound(f"Project with id {default_project_id} not found.")
    requested = body["default_type"]["volume_type"]
    try:
        volume_type = lookup.get_by_id_or_name(ctx, requested)
        default_types.set_default(default_project_id, volume_type["id"])
    except exception.VolumeTypeNotFound as error:
        # The URL names a project: the error is in the body.
        raise exception.BadRequest(reason=str(error)) from error
    row: DefaultTypeRow = {
        "project_id": default_project_id,
        "volume_type_id": volume_type["id"],
    }
    return {"default_type": _show(row)}


@endpoint("DELETE", ITEM, since=SINCE, policy=policy.UNSET_DEFAULT, status=204)
def delete(default_project_id: str) -> None:
    """Remove a project's default type, so that the configured one applies."""
    default_types.delete(default_project_id)


def _show(row: DefaultTypeRow) -> Body:
    return {"project_id": row["project_id"], "volume_type_id": row["volume_type_id"]}
