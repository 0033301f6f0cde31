# SPDX-License-Identifier: Apache-2.0
"""Extensions, availability zones, and the limits of projects."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypedDict

from attachd import exception
from attachd.api import microversions as mv
from attachd.api import policy_rules, validation
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.info import policy
from attachd.api.quotas import view as quota_view
from attachd.context import RequestContext
from attachd.db import quotas
from attachd.db.cluster import services

Body = dict[str, Any]
Query = Mapping[str, str]


class Extension(NamedTuple):
    """An optional part of the API, by the name that clients look for."""

    alias: str
    name: str
    description: str


EXTENSIONS: Final = (
    Extension("OS-SCH-HNT", "SchedulerHints", "Creating a volume takes hints, and ignores them."),
    Extension("capabilities", "Capabilities", "Backends show their capabilities."),
    Extension("os-admin-actions", "AdminActions", "Administrators reset a volume's status."),
    Extension("os-availability-zone", "AvailabilityZones", "The availability zones are listed."),
    Extension("os-extended-services", "ExtendedServices", "Services show why they are disabled."),
    Extension(
        "os-extended-snapshot-attributes",
        "ExtendedSnapshotAttributes",
        "Snapshots show their project, and how much of them is copied.",
    ),
    Extension("os-hosts", "Hosts", "Hosts show how many volumes they have."),
    Extension("os-quota-class-sets", "QuotaClasses", "Quotas hold for classes of projects."),
    Extension("os-quota-sets", "Quotas", "Projects have quotas."),
    Extension("os-services", "Services", "Services are listed, enabled and disabled."),
    Extension("os-snapshot-actions", "SnapshotActions", "Snapshots get their status by actions."),
    Extension("os-snapshot-manage", "SnapshotManage", "Objects of backends become snapshots."),
    Extension("os-snapshot-unmanage", "SnapshotUnmanage", "Snapshots are removed without data."),
    Extension("os-types-extra-specs", "TypesExtraSpecs", "Volume types have extra specs."),
    Extension("os-types-manage", "TypesManage", "Administrators manage volume types."),
    Extension("os-used-limits", "UsedLimits", "Limits show how much is used."),
    Extension("os-vol-host-attr", "VolumeHostAttribute", "Volumes show their backend."),
    Extension("os-vol-image-meta", "VolumeImageMetadata", "Volumes show their image metadata."),
    Extension("os-vol-mig-status-attr", "VolumeMigStatusAttribute", "Volumes show migrations."),
    Extension("os-vol-tenant-attr", "VolumeTenantAttribute", "Volumes show their project."),
    Extension("os-volume-actions", "VolumeActions", "Volumes are attached and grow by actions."),
    Extension(
        "os-volume-encryption-metadata",
        "VolumeEncryptionMetadata",
        "Volumes show how they are encrypted.",
    ),
    Extension("os-volume-manage", "VolumeManage", "Existing objects of backends become volumes."),
    Extension("os-volume-transfer", "VolumeTransfer", "Volumes move to other projects."),
    Extension("os-volume-type-access", "VolumeTypeAccess", "Types are private, or for projects."),
    Extension("os-volume-unmanage", "VolumeUnmanage", "Volumes are removed without their data."),
    Extension("qos-specs", "Qos_specs_manage", "Volume types have QoS specs."),
    Extension("scheduler-stats", "Scheduler_stats", "The pools of backends are listed."),
)

_UPDATED: Final = "2026-11-21T00:00:00+00:00"


class ExtensionView(TypedDict):
    """The representation of an extension."""

    alias: str
    name: str
    description: str
    updated: str
    links: list[Any]


class ZoneState(TypedDict):
    """The state of an availability zone."""

    available: bool


class Zone(TypedDict):
    """An availability zone."""

    zoneName: str
    zoneState: ZoneState


def extension_view(extension: Extension) -> dict[str, Any]:
    """Return the representation of an extension."""
    return {**extension._asdict(), "updated": _UPDATED, "links": []}


def absolute_limits(allowed: quotas.Limits) -> dict[str, int]:
    """Return the absolute limits of a project."""
    return {shown: allowed[name] for name, (shown, _) in _ABSOLUTE.items()}


def used_limits(found: Mapping[str, quotas.ResourceUsage]) -> dict[str, int]:
    """Return the usage of a project; a pending extension of a volume does not count yet."""
    return {
        shown: found[name].in_use if name in found else 0 for name, (_, shown) in _ABSOLUTE.items()
    }


_ABSOLUTE: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        quotas.VOLUMES: ("maxTotalVolumes", "totalVolumesUsed"),
        quotas.GIGABYTES: ("maxTotalVolumeGigabytes", "totalGigabytesUsed"),
        "snapshots": ("maxTotalSnapshots", "totalSnapshotsUsed"),
        "backups": ("maxTotalBackups", "totalBackupsUsed"),
        "backup_gigabytes": ("maxTotalBackupGigabytes", "totalBackupGigabytesUsed"),
    }
)
"""The names of each quota and of its usage among the absolute limits."""

LIMITED: Final = tuple(_ABSOLUTE)
"""The quotas among the absolute limits."""


_DOC_ZONES = EndpointDoc(
    {"availabilityZoneInfo": list[Zone]},
)


@endpoint(
    "GET",
    "/extensions",
    policy=policy.EXTENSIONS,
    doc=EndpointDoc({"extensions": list[ExtensionView]}),
)
def extensions() -> Body:
    """List the extensions."""
    return {"extensions": [extension_view(extension) for extension in EXTENSIONS]}


@endpoint(
    "GET",
    "/extensions/{alias}",
    policy=policy.EXTENSIONS,
    doc=EndpointDoc({"extension": ExtensionView}),
)
def extension(alias: str) -> Body:
    """Show one extension."""
    for extension in EXTENSIONS:
        if extension.alias == alias:
            return {"extension": extension_view(extension)}
    raise exception.NotFound


@endpoint("GET", "/os-availability-zone", policy=policy.ZONES, doc=_DOC_ZONES)
def availability_zones() -> Body:
    """List the zones of all backends; a zone is available if any of its backends is."""
    zones: dict[str, bool] = {}
    for row in services.page({"binary": services.BINARY}):
        zone = row["availability_zone"]
        zones[zone] = zones.get(zone, False) or not row["disabled"]
    return {
        "availabilityZoneInfo": [
            {"zoneName": name, "zoneState": {"available": available}}
            for name, available in sorted(zones.items())
        ]
    }


_LIMITS_DOC = EndpointDoc(
    {"limits": {"rate": list[Any], "absolute": dict[str, int]}},
    {"project_id": validation.query_text("Another project's, for administrators.")},
)


@endpoint("GET", "/limits", policy=policy.LIMITS, doc=_LIMITS_DOC)
def limits(ctx: RequestContext, query: Query, version: mv.Version) -> Body:
    """Show the limits of the project, and its usage."""
    project = str(ctx.project_id)
    if ctx.is_admin and version >= mv.LIMITS_ADMIN_FILTER:
        project = query.get("project_id") or query.get("tenant_id") or project
    allowed = quota_view.effective(LIMITED, quotas.project_limits(project))
    absolute = absolute_limits(allowed)
    target = {"project_id": ctx.project_id, "user_id": ctx.user_id}
    if policy_rules.allows(ctx, policy.USED_LIMITS, target):
        absolute |= used_limits(quotas.usage(project))
    return {"limits": {"rate": [], "absolute": absolute}}


@endpoint(
    "GET",
    "/permissions",
    attachd_since=mv.ATTACHD_1_1,
    policy=policy.PERMISSIONS,
    doc=EndpointDoc({"permissions": list[str]}),
)
def permissions(ctx: RequestContext) -> Body:
    """List the rules of policy that allow the caller to act on what is its own.

    A client can leave out what would be refused; each call is checked by itself nevertheless.
    """
    target = {"project_id": ctx.project_id, "user_id": ctx.user_id}
    names = sorted(rule.name for rule in policy_rules.list_rules() if ":" in rule.name)
    return {"permissions": [name for name in names if policy_rules.allows(ctx, name, target)]}
