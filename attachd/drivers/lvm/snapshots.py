# SPDX-License-Identifier: Apache-2.0
"""Snapshots of logical volumes; for the lvm driver.

A snapshot is an LV in the volume group of its volume, ``attachd-ID.snapshot``.  That of a thin
volume shares its blocks, and that of a thick one is a copy: a thick snapshot of lvm2 slows down
each write, and fills up.
"""

from dataclasses import dataclass
from typing import Final

from attachd.drivers import base
from attachd.drivers.lvm import lvm2
from attachd.drivers.lvm.copies import PREFIX, LvCopies, name_of

SUFFIX: Final = ".snapshot"
"""Of the LV of a snapshot."""


@dataclass(frozen=True)
class LvSnapshots:
    """The snapshots in one volume group."""

    copies: LvCopies

    def create(self, snapshot: base.SnapshotRef) -> None:
        """Create a snapshot, unless it exists."""
        volume_id = snapshot.volume.id
        source = self.copies.find(name_of(volume_id), f"Volume {volume_id}")
        self.copies.copy(source, _name(snapshot.id), snapshot.size_gib)

    def create_volume(self, volume: base.VolumeRef, snapshot: base.SnapshotRef) -> None:
        """Create a volume with the data of a snapshot, unless it exists."""
        self.copies.copy(self._find(snapshot.id), name_of(volume.id), volume.size_gib)

    def revert(self, snapshot: base.SnapshotRef) -> None:
        """Replace a volume by a copy of a snapshot, which is complete before that."""
        source = self._find(snapshot.id)
        self.copies.replace(source, name_of(snapshot.volume.id), snapshot.size_gib)

    def delete(self, snapshot_id: str) -> None:
        """Delete a snapshot, and what an interrupted call has left of it."""
        self.copies.delete(_name(snapshot_id))

    def list_ids(self) -> list[str]:
        """List the complete snapshots."""
        names = [row["lv_name"] for row in self.copies.lvs.list_lvs()]
        return [
            name.removeprefix(PREFIX).removesuffix(SUFFIX)
            for name in names
            if name.startswith(PREFIX) and name.endswith(SUFFIX)
        ]

    def _find(self, snapshot_id: str) -> lvm2.Row:
        return self.copies.find(_name(snapshot_id), f"Snapshot {snapshot_id}")


def _name(snapshot_id: str) -> str:
    return name_of(snapshot_id) + SUFFIX
