# SPDX-License-Identifier: Apache-2.0
"""What the service has, as tables; used by the handlers of info."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypedDict

from attachd.db import quotas


class Extension(NamedTuple):
    """A part of the API that a deployment may lack, by the name that clients look for."""

    alias: str
    name: str
    description: str


EXTENSIONS: Final = (
    Extension("OS-SCH-HNT", "SchedulerHints", "Creating a volume takes hints, and ignores them."),
    Extension("capabilities", "Capabilities", "Backends tell what they can do."),
    Extension("os-admin-actions", "AdminActions", "Administrators reset a volume's status."),
    Extension("os-availability-zone", "AvailabilityZones", "The availability zones are listed."),
    Extension("os-extended-services", "ExtendedServices", "A service tells why it is disabled."),
    Extension("os-hosts", "Hosts", "Hosts tell how many volumes they have."),
    Extension("os-quota-class-sets", "QuotaClasses", "Quotas hold for classes of projects."),
    Extension("os-quota-sets", "Quotas", "Projects have quotas."),
    Extension("os-services", "Services", "Services are listed, enabled and disabled."),
    Extension("os-types-extra-specs", "TypesExtraSpecs", "Volume types have extra specs."),
    Extension("os-types-manage", "TypesManage", "Administrators manage volume types."),
    Extension("os-used-limits", "UsedLimits", "Limits tell how much is used."),
    Extension("os-vol-host-attr", "VolumeHostAttribute", "Volumes tell their backend."),
    Extension("os-vol-image-meta", "VolumeImageMetadata", "Volumes tell of their image."),
    Extension("os-vol-mig-status-attr", "VolumeMigStatusAttribute", "Volumes tell migrations."),
    Extension("os-vol-tenant-attr", "VolumeTenantAttribute", "Volumes tell their project."),
    Extension("os-volume-actions", "VolumeActions", "Volumes are attached and grow by actions."),
    Extension(
        "os-volume-encryption-metadata",
        "VolumeEncryptionMetadata",
        "Volumes tell how they are encrypted.",
    ),
    Extension("os-volume-type-access", "VolumeTypeAccess", "Types are private, or for projects."),
    Extension("qos-specs", "Qos_specs_manage", "Volume types have QoS specs."),
    Extension("scheduler-stats", "Scheduler_stats", "The pools of backends are listed."),
)

_UPDATED: Final = "2026-11-21T00:00:00+00:00"


class Shown(TypedDict):
    """An extension, as it is shown."""

    alias: str
    name: str
    description: str
    updated: str
    links: list[Any]


class State(TypedDict):
    """Whether a zone can be used."""

    available: bool


class Zone(TypedDict):
    """An availability zone."""

    zoneName: str
    zoneState: State


def extension(each: Extension) -> dict[str, Any]:
    """Show an extension."""
    return {**each._asdict(), "updated": _UPDATED, "links": []}


def limits(allowed: quotas.Limits) -> dict[str, int]:
    """Show how much a project may have."""
    return {shown: allowed[name] for name, (shown, _) in _ABSOLUTE.items()}


def used(found: Mapping[str, quotas.Used]) -> dict[str, int]:
    """Show how much it has; what a volume is to grow by is not there yet."""
    return {
        shown: found[name].there if name in found else 0 for name, (_, shown) in _ABSOLUTE.items()
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
"""What each quota, and what is used of it, is called among the absolute limits."""

LIMITED: Final = tuple(_ABSOLUTE)
"""The quotas that are shown as absolute limits."""
