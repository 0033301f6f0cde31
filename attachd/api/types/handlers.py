# SPDX-License-Identifier: Apache-2.0
"""Endpoints of volume types."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NotRequired, cast

from attachd import exception, notifications
from attachd.api import filter_register, paging, validation
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, Link, Links, endpoint
from attachd.api.types import lookup, policy, schema, view
from attachd.context import RequestContext
from attachd.db.row_types import VolumeTypeRow
from attachd.db.types import type_store

ITEM = "/types/{type_id}"
DEFAULT: Final = "default"
"""Not an id: the type of volumes that are created without one."""

Body = dict[str, Any]


@endpoint("GET", ITEM, policy=policy.GET, doc=view.ONE_DOC)
def show(ctx: RequestContext, type_id: str) -> Body:
    """Return one type, or the default one."""
    row = _default(ctx) if type_id == DEFAULT else lookup.get(ctx, type_id)
    return {"volume_type": view.detail(row, view.Viewer.from_context(ctx))}


def _default(ctx: RequestContext) -> VolumeTypeRow:
    row = lookup.default(ctx)
    if row is None:
        raise exception.NotFound("Default volume type can not be found.")
    return row


@endpoint(
    "POST",
    "/types",
    policy=policy.CREATE,
    body=schema.CREATE,
    doc=view.ONE_DOC._replace(faults=(409,)),
)
def create(ctx: RequestContext, body: Body) -> Body:
    """Store a new type."""
    requested = body["volume_type"]
    values = {
        "name": requested["name"],
        "description": requested.get("description"),
        "is_public": validation.parse_bool("is_public", requested.get(view.IS_PUBLIC, True)),
        "extra_specs": requested.get("extra_specs") or {},
    }
    schema.check_specs(values["extra_specs"])
    with notifications.failures_of_type("create", name=requested["name"]):
        row = type_store.create(values)
    notifications.volume_type("create", row)
    return {"volume_type": view.created(row, view.Viewer.from_context(ctx))}


@endpoint(
    "PUT", ITEM, policy=policy.UPDATE, body=schema.UPDATE, doc=view.ONE_DOC._replace(faults=(409,))
)
def update(ctx: RequestContext, type_id: str, body: Body) -> Body:
    """Change name, description or visibility."""
    requested = body["volume_type"]
    values = {
        key: requested[key] for key in ("name", "description") if requested.get(key) is not None
    }
    for key in (view.IS_PUBLIC, "is_public"):
        if key in requested:
            values["is_public"] = validation.parse_bool(key, requested[key])
    if not values:
        raise exception.BadRequest(
            reason="Specify volume type name, description, is_public or a combination thereof."
        )
    with notifications.failures_of_type("update", type_id, values.get("name")):
        type_store.update(type_id, values)
        row = type_store.get(type_id)
    notifications.volume_type("update", row)
    return {"volume_type": view.updated(row, view.Viewer.from_context(ctx))}


@endpoint("DELETE", ITEM, policy=policy.DELETE, status=202)
def delete(ctx: RequestContext, type_id: str) -> None:
    """Remove a type that no volume has and that is not a default."""
    with notifications.failures_of_type("delete", type_id):
        row = lookup.get(ctx, type_id)
        if lookup.is_configured_default(row):
            raise exception.TypeIsDefault(volume_type_id=type_id)
        type_store.delete(type_id)
    notifications.volume_type("delete", row)


SORT_KEYS: Final = MappingProxyType({name: name for name in type_store.SORTABLE})
Query = Mapping[str, str]

_LIST_DOC: Final = EndpointDoc(
    {
        "volume_types": list[view.VolumeType],
        "volume_type_links": NotRequired[list[Link]],
        "volume_types_links": NotRequired[list[Link]],
    },
    {**paging.PAGE_PARAMETERS, **filter_register.TYPE.parameters},
)


@endpoint("GET", "/types", policy=policy.GET_ALL, doc=_LIST_DOC)
def index(ctx: RequestContext, query: Query, version: mv.Version, links: Links) -> Body:
    """Return the types that the caller may see."""
    page = paging.read(query, SORT_KEYS)
    # This list ignored unknown filters in more versions than others.
    strict = version if version >= mv.SUPPORT_VOLUME_TYPE_FILTER else mv.BASE
    matching = parse_filters(
        ctx, filter_register.requested(ctx, filter_register.TYPE, query, strict), version
    )
    rows = [] if matching is None else type_store.page(matching, page)
    viewer = view.Viewer.from_context(ctx)
    answer: Body = {"volume_types": [view.detail(row, viewer) for row in rows]}
    if more := paging.next_link(links, "/types", query, page, rows):
        # The first key is that of the Block Storage API, the second is what clients follow.
        answer |= {"volume_type_links": more, "volume_types_links": more}
    return answer


def parse_filters(
    ctx: RequestContext, requested: Query, version: mv.Version
) -> type_store.Filters | None:
    """Return the filters of a request in terms of the database.

    :param requested: of filters.TYPE
    :returns: None if no type that the caller may see can pass
    :raises BadRequest: a value is invalid
    """
    found: dict[str, Any] = {
        name: text for name, text in requested.items() if name not in {"is_public", "extra_specs"}
    }
    # Administrators could filter by any field in earlier versions.
    if "extra_specs" in requested and (ctx.is_admin or version >= mv.SUPPORT_VOLUME_TYPE_FILTER):
        specs = validation.parse_pairs("extra_specs", requested["extra_specs"])
        # A caller who does not see an extra spec must not guess its value by a filter.
        if not view.sees_sensitive_specs(ctx) and specs.keys() - view.VISIBLE_SPECS:
            return None
        found["extra_specs"] = specs
    return cast("type_store.Filters", found | _visibility(ctx, requested.get("is_public", "true")))


def _visibility(ctx: RequestContext, text: str) -> dict[str, Any]:
    """Return the condition for public and accessible types, or what an administrator asks for."""
    if not ctx.is_admin:
        return {"known_to": ctx.project_id}
    if text.lower() == "none":
        return {}
    if validation.parse_bool("is_public", text):
        return {"known_to": ctx.project_id}
    return {"is_public": False}
