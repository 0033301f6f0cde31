# SPDX-License-Identifier: Apache-2.0
"""The pools of backends, by their last reports; capabilities.py has what one backend can do."""

from collections.abc import Mapping
from typing import Any

from attachd import scheduler
from attachd.api import fields, filters
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.services import policy, view
from attachd.api.types import lookup
from attachd.context import RequestContext
from attachd.db import services

Body = dict[str, Any]
Query = Mapping[str, str]

_DOC = EndpointDoc(
    {"pools": list[view.Pool]},
    {"detail": fields.query_flag("With capabilities and room."), **filters.POOL.parameters},
)


@endpoint("GET", "/scheduler-stats/get_pools", policy=policy.GET_POOLS, doc=_DOC)
def get_pools(ctx: RequestContext, query: Query, version: mv.Version) -> Body:
    """Answer the pools of all backends that are up."""
    detailed = fields.parse_bool("detail", query.get("detail", "false"))
    rows = [row for row in services.page({"binary": scheduler.BINARY}) if _offers(row)]
    if version >= mv.POOL_FILTER:
        rows = _filtered(ctx, rows, query, version)
    show = view.pool_detail if detailed else view.pool
    return {"pools": [show(row) for row in rows]}


def _offers(row: services.Row) -> bool:
    return scheduler.is_up(row) and row["report"] is not None


def _filtered(
    ctx: RequestContext, rows: list[services.Row], query: Query, version: mv.Version
) -> list[services.Row]:
    plain = {name: text for name, text in query.items() if name != "detail"}
    asked = filters.requested(ctx, filters.POOL, plain, version)
    if name := asked.get("name"):
        rows = [row for row in rows if view.pool(row)["name"] == name]
    wanted = asked.get("volume_type")
    if wanted and version >= mv.POOL_TYPE_FILTER:
        specs = lookup.get_by_id_or_name(ctx, wanted)["extra_specs"]
        rows = [
            row
            for row in rows
            if scheduler.has_capabilities(scheduler.capabilities_of(row), specs)
        ]
    return rows
