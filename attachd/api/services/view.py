# SPDX-License-Identifier: Apache-2.0
"""Representation of services, pools and capabilities on the wire."""

import datetime
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from attachd.api import microversions as mv
from attachd.api import scheduler
from attachd.api.services import binaries
from attachd.conf import CONF
from attachd.db.cluster import services
from attachd.db.row_types import ServiceRow


class Service(TypedDict):
    """A service.

    :ivar status: "enabled": its backend gets new volumes
    :ivar state: "up": it reports, and its storage works
    :ivar frozen: of backends only, as the next fields
    """

    binary: str
    host: str
    zone: str | None
    status: Literal["enabled", "disabled"]
    state: Literal["up", "down"]
    updated_at: datetime.datetime | None
    disabled_reason: str | None
    cluster: Annotated[None, mv.CLUSTER_SUPPORT]
    replication_status: NotRequired[str]
    active_backend_id: NotRequired[None]
    frozen: NotRequired[bool]
    backend_state: NotRequired[Annotated[str, mv.BACKEND_STATE_REPORT]]


class Pool(TypedDict):
    """A pool of a backend."""

    name: str
    capabilities: NotRequired[dict[str, Any]]


class _Property(TypedDict):
    """One of a backend's capabilities."""

    title: str
    description: str
    type: Literal["boolean", "string"]


class Capabilities(TypedDict):
    """The capabilities of a backend."""

    namespace: str
    vendor_name: str
    volume_backend_name: str
    pool_name: str
    driver_version: str
    storage_protocol: str
    display_name: None
    description: None
    visibility: Literal["public"]
    replication_targets: list[Any]
    properties: dict[str, _Property]


class Switched(TypedDict):
    """A service that is enabled or disabled."""

    host: str
    service: str
    binary: str
    status: Literal["enabled", "disabled"]
    disabled: bool
    disabled_reason: NotRequired[str | None]


def service(row: ServiceRow, version: mv.Version) -> dict[str, Any]:
    """Return the representation of a service."""
    state = "up" if scheduler.is_up(row) else "down"
    enabled = not row["disabled"] and not row["frozen"]
    shown: dict[str, Any] = {
        "binary": binaries.to_wire(row["binary"]),
        "host": row["host"],
        "zone": row["availability_zone"],
        "status": "enabled" if enabled else "disabled",
        "state": state,
        "updated_at": row["seen_at"],
        "disabled_reason": row["disabled_reason"] or ("frozen" if row["frozen"] else None),
    }
    if version >= mv.CLUSTER_SUPPORT:
        shown["cluster"] = None
    if row["binary"] == services.BINARY:
        shown |= {
            "replication_status": "not-capable",
            "active_backend_id": None,
            "frozen": row["frozen"],
        }
        if version >= mv.BACKEND_STATE_REPORT:
            shown["backend_state"] = state
    return shown


def pool(row: ServiceRow) -> dict[str, Any]:
    """Return the representation of a pool, without details.

    :param row: as of scheduler.split_by_pool()
    """
    return {"name": f"{row['host']}#{scheduler.capabilities_of(row)['pool_name']}"}


def pool_detail(row: ServiceRow) -> dict[str, Any]:
    """Return the representation of a pool with its capabilities and capacity.

    :param row: as of scheduler.split_by_pool(), of a backend that has reported
    """
    report = row["report"]
    assert report is not None
    capabilities = scheduler.capabilities_of(row)
    thin = scheduler.is_true(capabilities.get("thin_provisioning"))
    standard = {
        "vendor_name": "attachd",
        "driver_version": "1.0",
        "total_capacity_gb": _or_infinite(report["total_gib"]),
        "free_capacity_gb": _or_infinite(report["free_gib"]),
        "allocated_capacity_gb": report["allocated_gib"],
        "provisioned_capacity_gb": report["allocated_gib"],
        "reserved_percentage": 0,
        "max_over_subscription_ratio": str(CONF.manager.max_over_subscription_ratio),
        "thin_provisioning_support": thin,
        "thick_provisioning_support": not thin,
        "multiattach": False,
        "QoS_support": False,
        "backend_state": "up" if scheduler.is_up(row) else "down",
        "timestamp": row["seen_at"],
    }
    return {**pool(row), "capabilities": {**standard, **capabilities}}


def _or_infinite(gib: float | None) -> float | str:
    return "infinite" if gib is None else gib


def capabilities(row: ServiceRow) -> dict[str, Any]:
    """Return the capabilities of a backend, in the terms of extra specs."""
    offered = scheduler.capabilities_of(row)
    return {
        "namespace": f"OS::Storage::Capabilities::{row['host']}",
        "vendor_name": offered.get("vendor_name", "attachd"),
        "volume_backend_name": offered["volume_backend_name"],
        "pool_name": offered["pool_name"],
        "driver_version": offered.get("driver_version", "1.0"),
        "storage_protocol": offered["storage_protocol"],
        "display_name": None,
        "description": None,
        "visibility": "public",
        "replication_targets": [],
        "properties": {
            name: {"title": name, "description": f"{value}", "type": _type(value)}
            for name, value in sorted(offered.items())
        },
    }


def _type(value: object) -> str:
    return "boolean" if isinstance(value, bool) else "string"
