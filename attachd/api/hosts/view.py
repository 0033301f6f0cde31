# SPDX-License-Identifier: Apache-2.0
"""How hosts look on the wire, an old way to look at services; used by the handlers of hosts."""

from collections.abc import Mapping
import datetime
from typing import Any, Literal, TypedDict

from attachd.api.services import binaries
from attachd.db.services import Held

Row = Mapping[str, Any]


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
    """How much there is at a host, all together or of a project; numbers are strings."""

    host: str
    project: str
    volume_count: str
    total_volume_gb: str
    snapshot_count: str
    total_snapshot_gb: str


def host(row: Row) -> dict[str, Any]:
    """Show a service as a host: it is available as long as it reports."""
    return {
        "host_name": row["host"],
        "service": binaries.shown(row["binary"]),
        "zone": row["availability_zone"],
        "service-status": "available" if row["alive"] else "unavailable",
        "service-state": "disabled" if row["disabled"] else "enabled",
        "last-update": row["seen_at"],
    }


def usage(host: str, by_project: Mapping[str, Held]) -> list[dict[str, Any]]:
    """Show how much there is at a host: all together, then project by project."""
    total = Held(
        sum(each.volumes for each in by_project.values()),
        sum(each.gib for each in by_project.values()),
    )
    return [_resource(host, *each) for each in (("(total)", total), *by_project.items())]


def _resource(host: str, project: str, used: Held) -> dict[str, Any]:
    """Show one line, whose numbers are strings."""
    return {
        "resource": {
            "host": host,
            "project": project,
            "volume_count": str(used.volumes),
            "total_volume_gb": str(used.gib),
            "snapshot_count": "0",
            "total_snapshot_gb": "0",
        }
    }
