# SPDX-License-Identifier: Apache-2.0
"""Endpoints of the access of projects to private volume types."""

from typing import Any, TypedDict

from attachd import exception, notifications
from attachd.api.endpoint import EndpointDoc, action, endpoint
from attachd.api.types import lookup, policy, schema
from attachd.context import RequestContext
from attachd.db.types import type_store

ACTION = "/types/{type_id}/action"

Body = dict[str, Any]


class _Access(TypedDict):
    """A project that has access."""

    volume_type_id: str
    project_id: str


@endpoint(
    "GET",
    "/types/{type_id}/os-volume-type-access",
    policy=policy.LIST_ACCESS,
    doc=EndpointDoc({"volume_type_access": list[_Access]}),
)
def index(ctx: RequestContext, type_id: str) -> Body:
    """Return the projects that have access; a public type has no such list."""
    row = lookup.get(ctx, type_id)
    if row["is_public"]:
        raise exception.TypeAccessNotFound("Access list not available for public volume types.")
    return {
        "volume_type_access": [
            {"volume_type_id": row["id"], "project_id": project}
            for project in type_store.list_access(row["id"])
        ]
    }


@action(
    ACTION,
    "addProjectAccess",
    policy=policy.ADD_ACCESS,
    body=schema.ACCESS,
    doc=EndpointDoc(faults=(409,)),
)
def add_access(ctx: RequestContext, type_id: str, body: Body) -> None:
    """Give a project access."""
    private_id = _get_private_id(ctx, type_id)
    type_store.add_access(private_id, body["project"])
    notifications.type_access("add", private_id, body["project"])


@action(ACTION, "removeProjectAccess", policy=policy.REMOVE_ACCESS, body=schema.ACCESS)
def remove_access(ctx: RequestContext, type_id: str, body: Body) -> None:
    """Remove a project's access; its volumes of the type stay."""
    private_id = _get_private_id(ctx, type_id)
    type_store.remove_access(private_id, body["project"])
    notifications.type_access("remove", private_id, body["project"])


def _get_private_id(ctx: RequestContext, type_id: str) -> str:
    row = lookup.get(ctx, type_id)
    if row["is_public"]:
        raise exception.InvalidVolumeType(
            reason="Type access modification is not applicable to public volume type."
        )
    private_id: str = row["id"]
    return private_id
