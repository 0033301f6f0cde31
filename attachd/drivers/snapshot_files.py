# SPDX-License-Identifier: Apache-2.0
"""Snapshots of volumes that are sparse files; for the drivers that export such files.

``snapshots/<snapshot id>`` in the directory of the volumes is a snapshot: a file that shares the
blocks of its volume where the file system can, and a copy elsewhere.
"""

from collections.abc import Mapping
from typing import Any, Final

from attachd.drivers import abilities, base, sparse

SNAPSHOTS: Final = "snapshots"
"""The directory of the snapshots, in that of the volumes."""


class SnapshotFiles(sparse.SparseFiles):
    """The snapshots of one backend.

    :param volumes: of the backend
    """

    def __init__(self, volumes: sparse.SparseFiles) -> None:
        super().__init__(volumes.folder / SNAPSHOTS, volumes.tree.root)
        self._volumes = volumes

    def take(self, snapshot_id: str, volume_id: str, size_gib: int) -> None:
        """Create the file of a snapshot, unless it exists."""
        source = self._volumes.existing(volume_id)
        self.copy_from(source, snapshot_id, size_gib * sparse.GIB)

    def fill(self, volume_id: str, size_gib: int, snapshot_id: str) -> None:
        """Create the file of a volume with the content of a snapshot, unless it exists."""
        source = self.existing(snapshot_id)
        self._volumes.copy_from(source, volume_id, size_gib * sparse.GIB)

    def revert(self, volume_id: str, size_gib: int, snapshot_id: str) -> None:
        """Give the file of a volume the content of a snapshot."""
        source = self.existing(snapshot_id)
        self._volumes.replace_from(source, volume_id, size_gib * sparse.GIB)


class FileSnapshots(abilities.Snapshots):
    """The ability of a driver whose volumes are files on this machine.

    :ivar snapshots: set by the driver
    """

    copies_snapshots = True
    snapshots: SnapshotFiles

    def create_snapshot(self, snapshot: base.SnapshotRef) -> dict[str, Any]:
        """Share the blocks of the volume's file, or copy it."""
        self.snapshots.take(snapshot.id, snapshot.volume.id, snapshot.size_gib)
        return {}

    def delete_snapshot(self, snapshot: base.SnapshotRef) -> None:
        """Delete the file; others with its blocks keep them."""
        self.snapshots.delete(snapshot.id)

    def create_from_snapshot(
        self, volume: base.VolumeRef, snapshot: base.SnapshotRef
    ) -> dict[str, Any]:
        """Share the blocks of the snapshot's file, or copy it."""
        self.snapshots.fill(volume.id, volume.size_gib, snapshot.id)
        return {}

    def revert(self, snapshot: base.SnapshotRef) -> None:
        """Replace the volume's file by a copy of the snapshot's."""
        self.snapshots.revert(snapshot.volume.id, snapshot.size_gib, snapshot.id)

    def list_snapshots(self) -> Mapping[str, str]:
        """List the files; their volumes are not known here."""
        return dict.fromkeys(self.snapshots.sizes(), "")
