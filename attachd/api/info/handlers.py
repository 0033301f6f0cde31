# SPDX-License-Identifier: Apache-2.0
"""What the service has: extensions, availability zones; limits.py has what projects may have."""

from typing import Any

from attachd import exception, scheduler
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.info import policy, view
from attachd.db import services

Body = dict[str, Any]

_DOC_ZONES = EndpointDoc(
    {"availabilityZoneInfo": list[view.Zone]},
)


@endpoint(
    "GET",
    "/extensions",
    policy=policy.EXTENSIONS,
    doc=EndpointDoc({"extensions": list[view.Shown]}),
)
def extensions() -> Body:
    """Answer the parts of the API that clients look for."""
    return {"extensions": [view.extension(each) for each in view.EXTENSIONS]}


@endpoint(
    "GET",
    "/extensions/{alias}",
    policy=policy.EXTENSIONS,
    doc=EndpointDoc({"extension": view.Shown}),
)
def extension(alias: str) -> Body:
    """Answer one of them."""
    for each in view.EXTENSIONS:
        if each.alias == alias:
            return {"extension": view.extension(each)}
    raise exception.NotFound


@endpoint("GET", "/os-availability-zone", policy=policy.ZONES, doc=_DOC_ZONES)
def availability_zones() -> Body:
    """Answer the zones of all backends; one is available if any of its backends is."""
    zones: dict[str, bool] = {}
    for row in services.page({"binary": scheduler.BINARY}):
        zone = row["availability_zone"]
        zones[zone] = zones.get(zone, False) or not row["disabled"]
    return {
        "availabilityZoneInfo": [
            {"zoneName": name, "zoneState": {"available": available}}
            for name, available in sorted(zones.items())
        ]
    }
