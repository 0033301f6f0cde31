# SPDX-License-Identifier: Apache-2.0
"""Hosts: an old API for services, and for the usage of each of them by project."""

from collections.abc import Mapping
import datetime
from typing import Any, Literal, NoReturn, TypedDict

from attachd import exception
from attachd.api import validation
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.hosts import policy
from attachd.api.services import binaries
from attachd.db.cluster import services
from attachd.db.cluster.services import ProjectUsage
from attachd.db.row_types import ServiceRow

ITEM = "/os-hosts/{host}"
Body = dict[str, Any]
Query = Mapping[str, str]


Host = TypedDict(
    "Host",
    {
        "host_name": str,
        "service": str,
        "zone": str | None,
        "service-status": Literal["available", "unavailable"],
        "service-state": Literal["enabled", "disabled"],
        "last-update": datetime.datetime | None,
    },
)


class Resource(TypedDict):
    """The usage of a host, in total or of one project; numbers are strings."""

    host: str
    project: str
    volume_count: str
    total_volume_gb: str
    snapshot_count: str
    total_snapshot_gb: str


def host_view(row: ServiceRow) -> dict[str, Any]:
    """Return a service in the form of a host; it is available as long as it reports."""
    return {
        "host_name": row["host"],
        "service": binaries.to_wire(row["binary"]),
        "zone": row["availability_zone"],
        "service-status": "available" if row["alive"] else "unavailable",
        "service-state": "disabled" if row["disabled"] else "enabled",
        "last-update": row["seen_at"],
    }


def usage_view(host: str, by_project: Mapping[str, ProjectUsage]) -> list[dict[str, Any]]:
    """Return the usage of a host: the total, then each project."""
    total = ProjectUsage(*map(sum, zip(ProjectUsage(), *by_project.values(), strict=True)))
    return [_resource(host, *row) for row in (("(total)", total), *by_project.items())]


def _resource(host: str, project: str, used: ProjectUsage) -> dict[str, Any]:
    """Return one line of the usage, with numbers as strings."""
    return {
        "resource": {
            "host": host,
            "project": project,
            "volume_count": str(used.volumes),
            "total_volume_gb": str(used.gib),
            "snapshot_count": str(used.snapshots),
            "total_snapshot_gb": str(used.snapshot_gib),
        }
    }


_DOC = EndpointDoc({"hosts": list[Host]}, {"zone": validation.query_text("Those of this zone.")})


@endpoint("GET", "/os-hosts", policy=policy.MANAGE, doc=_DOC)
def index(query: Query) -> Body:
    """List the hosts that are enabled, optionally of one zone."""
    zone = query.get("zone")
    rows = [
        row
        for row in services.page({})
        if not row["disabled"] and (not zone or row["availability_zone"] == zone)
    ]
    return {"hosts": [host_view(row) for row in rows]}


@endpoint("GET", ITEM, policy=policy.MANAGE, doc=EndpointDoc({"host": list[dict[str, Resource]]}))
def show(host: str) -> Body:
    """Show the usage of a host by project."""
    _check_known(host)
    return {"host": usage_view(host, services.usage_by_project(host))}


@endpoint("PUT", ITEM, policy=policy.MANAGE)
def update(host: str) -> NoReturn:
    """Refuse to change a host: its service is enabled or disabled instead."""
    _check_known(host)
    raise exception.BadRequest(
        reason=f"Host {host} cannot be changed: enable or disable its service instead, by "
        "PUT /os-services/enable or /os-services/disable."
    )


def _check_known(host: str) -> None:
    if not services.page({"binary": services.BINARY, "host": host}):
        raise exception.NotFound(f"Host {host} could not be found.")
