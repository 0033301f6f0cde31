# SPDX-License-Identifier: Apache-2.0
"""Snapshots of volumes on shares; for the nfs driver.

A snapshot is a file on the share of its volume.  A volume that is attached gets none: see
NfsDriver.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from attachd.drivers import abilities, base, snapshot_files
from attachd.drivers.nfs.pools import Pools


class ShareSnapshots(snapshot_files.ManageSnapshotFiles):
    """The ability of the driver.

    :ivar pools: set by the driver
    """

    copies_snapshots = True
    pools: Pools

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

    def get_manageable_snapshot(
        self, volume: base.VolumeRef, reference: Mapping[str, str]
    ) -> abilities.ManageableSnapshot:
        """Return one of them, by the names of pool and file; refused on another share."""
        item = self.existing_snapshots.get(reference)
        if not item.refusal and item.pool not in {"", volume.pool or self.pools.backend}:
            item = dataclasses.replace(item, refusal=f"It is on another share, {item.pool}.")
        return snapshot_files.as_snapshot(item)
