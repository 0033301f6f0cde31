# SPDX-License-Identifier: Apache-2.0
"""Hosts: an old way to look at services, and at how much there is at each of them."""

from collections.abc import Mapping
from typing import Any, NoReturn

from attachd import exception, scheduler
from attachd.api import fields
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.hosts import policy, view
from attachd.db import services

ITEM = "/os-hosts/{host}"

Body = dict[str, Any]
Query = Mapping[str, str]

_DOC = EndpointDoc({"hosts": list[view.Host]}, {"zone": fields.query_text("Those of this zone.")})


@endpoint("GET", "/os-hosts", policy=policy.MANAGE, doc=_DOC)
def index(query: Query) -> Body:
    """Answer the hosts that are enabled, perhaps of one zone."""
    zone = query.get("zone")
    rows = [
        row
        for row in services.page({})
        if not row["disabled"] and (not zone or row["availability_zone"] == zone)
    ]
    return {"hosts": [view.host(row) for row in rows]}


@endpoint(
    "GET", ITEM, policy=policy.MANAGE, doc=EndpointDoc({"host": list[dict[str, view.Resource]]})
)
def show(host: str) -> Body:
    """Answer how much there is at a host, by project."""
    _check_known(host)
    return {"host": view.usage(host, services.held(host))}


@endpoint("PUT", ITEM, policy=policy.MANAGE)
def update(host: str) -> NoReturn:
    """Refuse: services are enabled and disabled."""
    _check_known(host)
    raise exception.BadRequest(
        reason=f"Host {host} cannot be changed: enable or disable its service instead, by "
        "PUT /os-services/enable or /os-services/disable."
    )


def _check_known(host: str) -> None:
    if not services.page({"binary": scheduler.BINARY, "host": host}):
        raise exception.NotFound(f"Host {host} could not be found.")
