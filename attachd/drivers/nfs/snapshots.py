# SPDX-License-Identifier: Apache-2.0
"""Snapshots of volumes on shares; for the nfs driver.

A snapshot is a file on the share of its volume.  A volume that is attached gets none: see
NfsDriver.
"""

from collections.abc import Iterable, Mapping
import dataclasses
from typing import Any

from attachd.drivers import abilities, base, snapshot_files
from attachd.drivers.nfs.pools import ExistingFiles, Pools


class ShareSnapshots(abilities.ManageSnapshots):
    """The ability of the driver.

    :ivar pools: set by the driver, as the next one
    :ivar existing_snapshots: the files that can become snapshots
    """

    copies_snapshots = True
    pools: Pools
    existing_snapshots: ExistingFiles

    def create_snapshot(self, snapshot: base.SnapshotRef) -> dict[str, Any]:
        """Copy the volume's file; refused while it is exported."""
        volume = snapshot.volume
        share = self.pools.share_of(volume)
        share.call("create_snapshot", snapshot.id, volume.id, snapshot.size_gib)
        return {}

    def delete_snapshot(self, snapshot: base.SnapshotRef) -> None:
        """Delete the file."""
        self.pools.share_of(snapshot.volume).call("delete_snapshot", snapshot.id)

    def create_from_snapshot(
        self, volume: base.VolumeRef, snapshot: base.SnapshotRef
    ) -> dict[str, Any]:
        """Copy the snapshot's file."""
        share = self.pools.share_of(snapshot.volume)
        share.call("create_from_snapshot", volume.id, volume.size_gib, snapshot.id)
        return {}

    def revert(self, snapshot: base.SnapshotRef) -> None:
        """Replace the volume's file by a copy of the snapshot's."""
        volume = snapshot.volume
        share = self.pools.share_of(volume)
        share.call("revert", volume.id, snapshot.size_gib, snapshot.id)

    def list_snapshots(self) -> Mapping[str, str]:
        """List the files of all shares; their volumes are not known here."""
        return {found: "" for ids in self.pools.call_each("snapshot_ids") for found in ids}

    def list_manageable_snapshots(self) -> Iterable[abilities.ManageableSnapshot]:
        """List the files of all shares; of which volume they are is not known here."""
        return [snapshot_files.as_snapshot(item) for item in self.existing_snapshots.list()]

    def get_manageable_snapshot(
        self, volume: base.VolumeRef, reference: Mapping[str, str]
    ) -> abilities.ManageableSnapshot:
        """Return one of them, by the names of pool and file; refused on another share."""
        item = self.existing_snapshots.get(reference)
        if not item.refusal and item.pool not in {"", volume.pool or self.pools.backend}:
            item = dataclasses.replace(item, refusal=f"It is on another share, {item.pool}.")
        return snapshot_files.as_snapshot(item)

    def manage_snapshot(
        self, snapshot: base.SnapshotRef, reference: Mapping[str, str]
    ) -> dict[str, Any]:
        """Rename a file on the share of the volume to a snapshot."""
        self.existing_snapshots.manage(_as_volume(snapshot), reference)
        return {}

    def unmanage_snapshot(self, snapshot: base.SnapshotRef) -> None:
        """Rename a snapshot to a file."""
        self.existing_snapshots.unmanage(_as_volume(snapshot))


def _as_volume(snapshot: base.SnapshotRef) -> base.VolumeRef:
    """Return what ExistingFiles needs of a snapshot."""
    return base.VolumeRef(snapshot.id, snapshot.size_gib, pool=snapshot.volume.pool)
