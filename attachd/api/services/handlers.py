# SPDX-License-Identifier: Apache-2.0
"""Services and their backends: list, switch on and off, see room and capabilities."""

from collections.abc import Mapping
from typing import Any, Final

from attachd import exception, placement
from attachd.api import fields
from attachd.api import microversions as mv
from attachd.api.endpoint import endpoint
from attachd.api.services import policy, schema, view
from attachd.api.types import lookup
from attachd.context import RequestContext
from attachd.db import services

POOL_FILTERS: Final = ("name", "volume_type")
"""What pools can be filtered by."""

Body = dict[str, Any]
Query = Mapping[str, str]


@endpoint("GET", "/os-services", policy=policy.GET_ALL)
def index(query: Query, version: mv.Version) -> Body:
    """Answer the services; a host without ``@`` stands for all its backends."""
    wanted: services.Filters = {"binary": query["binary"]} if query.get("binary") else {}
    host = query.get("host")
    rows = [
        row
        for row in services.page(wanted)
        if not host or host in {row["host"], row["host"].partition("@")[0]}
    ]
    return {"services": [view.service(row, version) for row in rows]}


@endpoint("PUT", "/os-services/enable", policy=policy.UPDATE, body=schema.SWITCH)
def enable(body: Body) -> Body:
    """Let a backend get new volumes again."""
    services.enable(_binary(body), body["host"])
    return _switched(body, disabled=False)


@endpoint("PUT", "/os-services/disable", policy=policy.UPDATE, body=schema.SWITCH)
def disable(body: Body) -> Body:
    """Keep new volumes away from a backend."""
    services.disable(_binary(body), body["host"], None)
    return _switched(body, disabled=True)


@endpoint(
    "PUT",
    "/os-services/disable-log-reason",
    policy=policy.UPDATE,
    body=schema.SWITCH_WITH_REASON,
)
def disable_with_reason(body: Body) -> Body:
    """Keep new volumes away from a backend, and note why."""
    reason = body.get("disabled_reason")
    services.disable(_binary(body), body["host"], reason)
    return {**_switched(body, disabled=True), "disabled_reason": reason}


def _binary(body: Body) -> str:
    return str(body.get("binary") or body["service"])


def _switched(body: Body, *, disabled: bool) -> Body:
    return {
        "host": body["host"],
        "service": body.get("service", ""),
        "binary": body.get("binary", ""),
        "status": "disabled" if disabled else "enabled",
        "disabled": disabled,
    }


@endpoint("GET", "/scheduler-stats/get_pools", policy=policy.GET_POOLS)
def get_pools(ctx: RequestContext, query: Query, version: mv.Version) -> Body:
    """Answer the pools of all backends that are up."""
    detailed = fields.truth("detail", query.get("detail", "false"))
    rows = [row for row in services.page({"binary": placement.BINARY}) if _offers(row)]
    if version >= mv.POOL_FILTER:
        rows = _filtered(ctx, rows, query, version)
    show = view.pool_detail if detailed else view.pool
    return {"pools": [show(row) for row in rows]}


def _offers(row: services.Row) -> bool:
    return placement.is_up(row) and row["report"] is not None


def _filtered(
    ctx: RequestContext, rows: list[services.Row], query: Query, version: mv.Version
) -> list[services.Row]:
    unknown = query.keys() - {"detail", *POOL_FILTERS}
    if unknown and version >= mv.RESOURCE_FILTER:
        raise exception.BadRequest(
            reason=f"Invalid filters {','.join(sorted(unknown))} are found in query options."
        )
    if name := query.get("name"):
        rows = [row for row in rows if view.pool(row)["name"] == name]
    wanted = query.get("volume_type")
    if wanted and version >= mv.POOL_TYPE_FILTER:
        specs = lookup.by_id_or_name(ctx, wanted)["extra_specs"]
        rows = [row for row in rows if placement.has_all(placement.capabilities_of(row), specs)]
    return rows


@endpoint("GET", "/capabilities/{host}", policy=policy.CAPABILITIES)
def capabilities(host: str) -> Body:
    """Answer what the backend ``host@backend`` can do."""
    backend = host.partition("#")[0]
    rows = services.page({"binary": placement.BINARY, "host": backend})
    if not rows:
        raise exception.NotFound(f"Can't find service: {host}")
    return view.capabilities(rows[0])
