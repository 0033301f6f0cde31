# SPDX-License-Identifier: Apache-2.0
"""Existing LVs that become snapshots, and snapshots that become other LVs again, without a copy.

A snapshot is in the volume group and in the pool of its volume.  LVM knows of which LV a thin one
was taken, as long as that exists; of which volume any other LV is a snapshot its administrator
knows.
"""

from collections.abc import Mapping
import dataclasses
from typing import Final

from attachd.drivers import base, existing
from attachd.drivers.abilities import ManageableSnapshot
from attachd.drivers.lvm import lvm2
from attachd.drivers.lvm.existing import PRIVATE, refusal_of
from attachd.drivers.lvm.pools import Pools
from attachd.drivers.lvm.snapshots import snapshot_id_of
from attachd.drivers.lvm.volumes import GIB, LogicalVolumes, volume_id_of

RELEASED_PREFIX: Final = "_snapshot-"
"""Before the id in the name of an unmanaged snapshot: LVM reserves ``snapshot``."""


class ExistingSnapshots(existing.ExistingSnapshots):
    """The LVs that can become snapshots of one backend."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    def list(self) -> list[ManageableSnapshot]:
        """List the snapshots and the other LVs of the volume groups, without thin pools."""
        return [
            _describe(group, row)
            for group in self._pools.in_groups()
            for row in group.snapshots.list_details()
            if row["lv_role"] != PRIVATE
        ]

    def get(self, volume: base.VolumeRef, reference: Mapping[str, str]) -> ManageableSnapshot:
        """Return one of them, by the name of its LV in the volume group of the volume."""
        return self._get(volume, reference)[0]

    def _get(
        self, volume: base.VolumeRef, reference: Mapping[str, str]
    ) -> tuple[ManageableSnapshot, lvm2.Row]:
        group, text = self._pools.holding(volume), reference.get(existing.KEY)
        name, _slash, lv = text.rpartition("/") if isinstance(text, str) else ("", "", "")
        rows = group.snapshots.list_details() if name in {"", group.group} else []
        for row in rows:
            if row["lv_name"] == lv:
                found = _describe(group, row)
                refusal = found.refusal or _mismatch(group, volume, row)
                return dataclasses.replace(found, refusal=refusal), row
        raise existing.invalid(
            reference,
            f"It must have the key {existing.KEY} with GROUP/LV, and the volume group of the "
            f"volume, {group.group}, must have this LV.",
        )

    def manage(self, snapshot: base.SnapshotRef, reference: Mapping[str, str]) -> None:
        """Make a snapshot of an LV, unless it is one already."""
        group = self._pools.holding(snapshot.volume)
        if snapshot.id in group.snapshots.list_ids():
            return
        with existing.missing_is_final():
            found, row = self._get(snapshot.volume, reference)
        existing.check_usable("LV", found, snapshot.size_gib * GIB)
        group.snapshots.adopt(snapshot.id, row)

    def unmanage(self, snapshot: base.SnapshotRef) -> None:
        """Rename a snapshot to ``_snapshot-<its id>``."""
        group = self._pools.holding(snapshot.volume)
        group.snapshots.release(snapshot.id, f"{RELEASED_PREFIX}{snapshot.id}")


def _describe(group: LogicalVolumes, row: lvm2.Row) -> ManageableSnapshot:
    name, origin, snapshot_id = row["lv_name"], row["origin"], snapshot_id_of(row["lv_name"])
    reference, volume_id = {existing.KEY: f"{group.group}/{name}"}, volume_id_of(origin)
    refusal = existing.MANAGED if snapshot_id else refusal_of(row)
    if origin and not volume_id and not refusal:
        refusal = f"It is a snapshot of the LV {origin}, which is no volume."
    return ManageableSnapshot(reference, int(row["lv_size"]), refusal, snapshot_id, volume_id)


def _mismatch(group: LogicalVolumes, volume: base.VolumeRef, row: lvm2.Row) -> str:
    """Return why an LV cannot become a snapshot of a volume, but of another one; "": it can."""
    pools = {volume_id_of(it["lv_name"]): it["pool_lv"] for it in group.list_details()}
    origin = volume_id_of(row["origin"])
    if volume.id not in pools:
        return f"There is no LV of volume {volume.id}."
    if origin not in {"", volume.id}:
        return f"It is a snapshot of volume {origin}."
    if row["pool_lv"] != pools[volume.id]:
        return f"It is in another pool than volume {volume.id}."
    return ""
