# SPDX-License-Identifier: Apache-2.0
"""Work that a manager left half-way: who finishes it, for those who would have it cleaned up.

A manager takes up what it left when it starts, and what has been lying around at each report.
So there is nothing to be ordered: the answer tells of whom that holds, and who would have to be
started first, since nobody else can do it.
"""

from collections.abc import Mapping
from typing import Any, TypedDict

from attachd import exception, scheduler
from attachd.api import fields
from attachd.api import microversions as mv
from attachd.api.clusters import policy, schema
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.services import binaries, managers
from attachd.db import volumes

Body = dict[str, Any]
Row = Mapping[str, Any]


class _Brief(TypedDict):
    """A service."""

    id: int | str
    host: str
    binary: str
    cluster_name: None


@endpoint(
    "POST",
    "/workers/cleanup",
    since=mv.WORKERS_CLEANUP,
    policy=policy.CLEANUP,
    body=schema.CLEANUP,
    status=202,
    doc=EndpointDoc({"cleaning": list[_Brief], "unavailable": list[_Brief]}),
)
def cleanup(body: Body) -> Body:
    """Answer the services that finish their work, and those that are down."""
    rows = [row for row in managers.at(body.get("host")) if _meant(row, body)]
    if resource := body.get("resource_id"):
        backend = _backend_of(resource)
        rows = [row for row in rows if row["host"] == backend]
    return {
        "cleaning": [_brief(row) for row in rows if scheduler.is_up(row)],
        "unavailable": [_brief(row) for row in rows if not scheduler.is_up(row)],
    }


def _meant(row: Row, body: Body) -> bool:
    """Tell whether a body is about a service; without ``is_up``, about those that are down."""
    wanted = fields.parse_bool("is_up", body.get("is_up", False))
    binary = binaries.own(body.get("binary") or scheduler.BINARY)
    disabled = body.get("disabled")
    return (
        not body.get("cluster_name")
        and body.get("service_id") is None
        and binary == row["binary"]
        and scheduler.is_up(row) == wanted
        and (disabled is None or fields.parse_bool("disabled", disabled) == row["disabled"])
    )


def _backend_of(volume_id: str) -> str:
    try:
        host: str = volumes.get(volume_id, None)["host"] or ""
    except exception.NotFound:
        raise exception.BadRequest(
            reason=f"Invalid input received: There is no resource with UUID {volume_id} "
            "pending cleanup."
        ) from None
    return host.partition("#")[0]


def _brief(row: Row) -> Body:
    return {
        "id": row["id"],
        "host": row["host"],
        "binary": binaries.shown(row["binary"]),
        "cluster_name": None,
    }
