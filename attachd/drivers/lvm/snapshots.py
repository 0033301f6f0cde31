# SPDX-License-Identifier: Apache-2.0
"""Snapshots of logical volumes; for the lvm driver.

A snapshot is an LV in the volume group of its volume, ``attachd-ID.snapshot``.  That of a thin
volume shares its blocks, and that of a thick one is a copy: a thick snapshot of lvm2 slows down
each write, and fills up.
"""

from dataclasses import dataclass
from pathlib import Path
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

    def adopt(self, snapshot_id: str, row: lvm2.Row) -> None:
        """Rename another LV to a snapshot.

        :param row: of the LV, of :meth:`list_details`
        """
        self.copies.adopt(row, _name(snapshot_id))

    def release(self, snapshot_id: str, name: str) -> None:
        """Rename a snapshot to another LV, and delete what an interrupted call has left of it."""
        self.copies.release(_name(snapshot_id), name)

    def activate(self, snapshot_id: str) -> Path:
        """Return the path of the device of a snapshot, which has to exist."""
        row = self._find(snapshot_id)
        self.copies.lvs.activate(row)
        return Path(row["lv_path"])

    def delete(self, snapshot_id: str) -> None:
        """Delete a snapshot, and what an interrupted call has left of it."""
        self.copies.delete(_name(snapshot_id))

    def list_ids(self) -> list[str]:
        """List the complete snapshots."""
        found = [snapshot_id_of(row["lv_name"]) for row in self.copies.lvs.list_lvs()]
        return list(filter(None, found))

    def list_details(self) -> list[lvm2.Row]:
        """List all LVs but volumes and what is incomplete, with the columns ``lvm2.DETAILS``."""
        rows = self.copies.lvs.list_lvs(lvm2.DETAILS)
        return [row for row in rows if is_snapshot_or_foreign(row["lv_name"])]

    def _find(self, snapshot_id: str) -> lvm2.Row:
        return self.copies.find(_name(snapshot_id), f"Snapshot {snapshot_id}")


def snapshot_id_of(name: str) -> str:
    """Return the id of the complete snapshot that an LV is; "" if it is none."""
    if not (name.startswith(PREFIX) and name.endswith(SUFFIX)):
        return ""
    return name.removeprefix(PREFIX).removesuffix(SUFFIX)


def is_snapshot_or_foreign(name: str) -> bool:
    """Return whether an LV is a complete snapshot, or none that the driver has named."""
    return not name.startswith(PREFIX) or bool(snapshot_id_of(name))


def _name(snapshot_id: str) -> str:
    return name_of(snapshot_id) + SUFFIX
