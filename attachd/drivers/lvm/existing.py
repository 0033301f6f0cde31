# SPDX-License-Identifier: Apache-2.0
"""Existing LVs that become volumes, and volumes that become other LVs again, without a copy.

A rename does it: an LV has at any moment either its own name or that of a volume.
"""

from collections.abc import Callable, Mapping
from typing import Final

from attachd.drivers import base, existing
from attachd.drivers.abilities import ManageableObject
from attachd.drivers.lvm import lvm2
from attachd.drivers.lvm.pools import Pools
from attachd.drivers.lvm.volumes import GIB, LogicalVolumes, volume_id_of

PRIVATE: Final = "private"
"""The role of what is no LV for data."""
_LAYOUTS: Final = frozenset({"thin,sparse", "linear"})

_REFUSED_ROLES: Final = {
    "thickorigin": "It has snapshots, which writing to it would fill: remove them first.",
    "thicksnapshot": "It is a snapshot that depends on another LV.",
    "extthinorigin": "Thin LVs depend on its data: it must not change.",
}


class ExistingLvs(existing.ExistingObjects):
    """The LVs that can become volumes of one backend.

    :param pools: of the volumes
    :param check_unused: raises BackendError if a volume is exported
    """

    def __init__(self, pools: Pools, check_unused: Callable[[base.VolumeRef], None]) -> None:
        self._pools = pools
        self._check_unused = check_unused

    def list(self) -> list[ManageableObject]:
        """List the volumes and the other LVs of the volume groups, without thin pools."""
        return [
            self._describe(group, row)
            for group in self._pools.in_groups()
            for row in group.list_details()
            if row["lv_role"] != PRIVATE
        ]

    def get(self, reference: Mapping[str, str]) -> ManageableObject:
        """Return one of them, by the names of group and LV; see ExistingObjects.get()."""
        return self._describe(*self._find(reference))

    def _find(self, reference: Mapping[str, str]) -> tuple[LogicalVolumes, lvm2.Row]:
        text = reference.get(existing.KEY)
        name, _slash, lv = text.rpartition("/") if isinstance(text, str) else ("", "", "")
        if not lv:
            raise existing.invalid(
                reference, f"It must have the key {existing.KEY} with GROUP/LV."
            )
        groups = {item.group: item for item in self._pools.in_groups()}
        if not name and len(groups) == 1:
            (name,) = groups
        for row in groups[name].list_details() if name in groups else ():
            if row["lv_name"] == lv:
                return groups[name], row
        raise existing.invalid(
            reference, f"The backend has no such GROUP/LV in {', '.join(groups)}."
        )

    def _describe(self, group: LogicalVolumes, row: lvm2.Row) -> ManageableObject:
        name = f"{group.group}/{row['lv_name']}"
        size, volume_id = int(row["lv_size"]), volume_id_of(row["lv_name"])
        pool = self._pools.find_name(group.group, row["pool_lv"])
        if volume_id:
            return existing.managed(name, size, volume_id, pool or "")
        refusal = refusal_of(row)
        if pool is None and not refusal:
            kind = f"in the thin pool {row['pool_lv']}" if row["pool_lv"] else "thick"
            refusal = f"It is {kind}, and the backend has no such pool in {group.group}."
        return ManageableObject({existing.KEY: name}, size, refusal, pool=pool or "")

    def manage(self, volume: base.VolumeRef, reference: Mapping[str, str]) -> None:
        """Make a volume of an LV, unless it is one already; see ManageExisting.manage().

        The LV is extended before it is renamed, so that a volume always has its size.
        """
        if volume.id in self._pools.sizes():
            return
        with existing.missing_is_final():
            group, row = self._find(reference)
        existing.check_usable("LV", self._describe(group, row), volume.size_gib * GIB)
        group.adopt(volume, row)

    def unmanage(self, volume: base.VolumeRef) -> None:
        """Rename a volume to ``volume-<its id>``; see ManageExisting.unmanage()."""
        self._check_unused(volume)
        self._pools.holding(volume).release(volume.id, f"{existing.RELEASED_PREFIX}{volume.id}")


def refusal_of(row: lvm2.Row) -> str:
    """Return why an LV cannot become a volume or a snapshot of any pool; "" if it can."""
    roles, layout = row["lv_role"].split(","), row["lv_layout"]
    private = row["lv_role"] == PRIVATE
    read_only = row["lv_permissions"].startswith("read-only")
    reasons = [
        "It is no LV for data, but a pool or a part of another one." if private else "",
        *(text for role, text in _REFUSED_ROLES.items() if role in roles),
        "" if layout in _LAYOUTS else f"It is of the kind {layout}; volumes are thin or linear.",
        "It is read-only." if read_only else "",
        "It is in use: its device is open." if row["lv_device_open"] == "open" else "",
    ]
    return next(filter(None, reasons), "")
