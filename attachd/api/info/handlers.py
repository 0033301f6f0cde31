# SPDX-License-Identifier: Apache-2.0
"""What the service has: limits, extensions, availability zones, filters; nothing has a body."""

from collections.abc import Mapping
from typing import Any

from attachd import exception, placement
from attachd.api import microversions as mv
from attachd.api import policy as rules
from attachd.api.endpoint import endpoint
from attachd.api.info import policy, view
from attachd.context import RequestContext
from attachd.db import services, volume_queries

Body = dict[str, Any]
Query = Mapping[str, str]


@endpoint("GET", "/limits")
def limits(ctx: RequestContext, query: Query, version: mv.Version) -> Body:
    """Answer that there are no limits, and how much the project has."""
    project = ctx.project_id
    if ctx.is_admin and version >= mv.LIMITS_ADMIN_FILTER:
        project = query.get("project_id") or query.get("tenant_id") or project
    absolute = dict(view.LIMITS)
    own = {"project_id": ctx.project_id, "user_id": ctx.user_id}
    if rules.allows(ctx, policy.USED_LIMITS, own):
        usage = volume_queries.usage({"project_id": str(project)})
        absolute = view.limits(usage.volumes, usage.gib)
    return {"limits": {"rate": [], "absolute": absolute}}


@endpoint("GET", "/extensions")
def extensions() -> Body:
    """Answer the parts of the API that clients look for."""
    return {"extensions": [view.extension(each) for each in view.EXTENSIONS]}


@endpoint("GET", "/extensions/{alias}")
def extension(alias: str) -> Body:
    """Answer one of them."""
    for each in view.EXTENSIONS:
        if each.alias == alias:
            return {"extension": view.extension(each)}
    raise exception.NotFound


@endpoint("GET", "/os-availability-zone")
def availability_zones() -> Body:
    """Answer the zones of all backends; one is available if any of its backends is."""
    zones: dict[str, bool] = {}
    for row in services.page({"binary": placement.BINARY}):
        zone = row["availability_zone"]
        zones[zone] = zones.get(zone, False) or not row["disabled"]
    return {
        "availabilityZoneInfo": [
            {"zoneName": name, "zoneState": {"available": available}}
            for name, available in sorted(zones.items())
        ]
    }


@endpoint("GET", "/resource_filters", since=mv.RESOURCE_FILTER_CONFIG)
def resource_filters(query: Query) -> Body:
    """Answer what lists can be filtered by."""
    wanted = query.get("resource")
    return {
        "resource_filters": [
            {"resource": resource, "filters": list(filters)}
            for resource, filters in view.RESOURCE_FILTERS.items()
            if wanted in {None, "", resource}
        ]
    }
