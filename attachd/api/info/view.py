# SPDX-License-Identifier: Apache-2.0
"""What the service has, as tables: extensions and filters; used by the handlers of info."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from attachd.api.attachments import filters as attachment_filters
from attachd.api.services import pools
from attachd.api.types import lists as type_lists
from attachd.api.volumes import filters as volume_filters

RESOURCE_FILTERS: Final[Mapping[str, tuple[str, ...]]] = {
    "volume": volume_filters.FOR_ALL,
    "attachment": tuple(sorted(attachment_filters.KNOWN)),
    "pool": pools.FILTERS,
    "volume_type": type_lists.FILTERS,
}
"""The filters that each list knows, for callers that are no administrators."""


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
    Extension("os-services", "Services", "Services are listed, enabled and disabled."),
    Extension("os-types-extra-specs", "TypesExtraSpecs", "Volume types have extra specs."),
    Extension("os-types-manage", "TypesManage", "Administrators manage volume types."),
    Extension("os-used-limits", "UsedLimits", "Limits tell how much is used."),
    Extension("os-vol-host-attr", "VolumeHostAttribute", "Volumes tell their backend."),
    Extension("os-vol-mig-status-attr", "VolumeMigStatusAttribute", "Volumes tell migrations."),
    Extension("os-vol-tenant-attr", "VolumeTenantAttribute", "Volumes tell their project."),
    Extension("os-volume-actions", "VolumeActions", "Volumes grow by an action."),
    Extension("scheduler-stats", "Scheduler_stats", "The pools of backends are listed."),
)

_UPDATED: Final = "2026-11-21T00:00:00+00:00"


def extension(each: Extension) -> dict[str, Any]:
    """Show an extension."""
    return {**each._asdict(), "updated": _UPDATED, "links": []}


def limits(volumes: int, gib: int) -> dict[str, int]:
    """Show how much there is; a limit of -1 is none."""
    return {**LIMITS, **USED_ELSEWHERE, "totalVolumesUsed": volumes, "totalGigabytesUsed": gib}


LIMITS: Final[Mapping[str, int]] = dict.fromkeys(
    (
        "maxTotalVolumes",
        "maxTotalVolumeGigabytes",
        "maxTotalSnapshots",
        "maxTotalBackups",
        "maxTotalBackupGigabytes",
    ),
    -1,
)
USED_ELSEWHERE: Final[Mapping[str, int]] = dict.fromkeys(
    ("totalSnapshotsUsed", "totalBackupsUsed", "totalBackupGigabytesUsed"), 0
)
