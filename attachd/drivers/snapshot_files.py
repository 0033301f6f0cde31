# SPDX-License-Identifier: Apache-2.0
"""Snapshots of volumes that are sparse files; for the drivers that export such files.

``snapshots/<snapshot id>`` in the directory of the volumes is a snapshot: a file that shares the
blocks of its volume where the file system can, and a copy elsewhere.  ``snapshots/manageable`` has
files that can become snapshots, and those that were some.
"""

from collections.abc import Callable, Iterable, Mapping
import contextlib
from pathlib import Path
from typing import Any, Final

from attachd.drivers import abilities, base, existing, existing_files, sparse

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


def existing_snapshots(
    snapshots: SnapshotFiles, describe_use: Callable[[Path, int], str] | None = None
) -> existing_files.ExistingFiles:
    """Return the files that can become snapshots of one backend.

    No snapshot is exported.

    :param describe_use: as of ExistingFiles
    """
    return existing_files.ExistingFiles(
        snapshots, lambda _snapshot: None, describe_use, "snapshot-"
    )


class ManageSnapshotFiles(abilities.ManageSnapshots):
    """The ability to manage files as snapshots.

    :ivar existing_snapshots: the files that can become snapshots, set by the driver
    """

    existing_snapshots: existing.ExistingObjects

    def list_manageable_snapshots(self) -> Iterable[abilities.ManageableSnapshot]:
        """List the files; of which volume they are is not known here."""
        return [as_snapshot(item) for item in self.existing_snapshots.list()]

    def manage_snapshot(
        self, snapshot: base.SnapshotRef, reference: Mapping[str, str]
    ) -> dict[str, Any]:
        """Rename a file to a snapshot."""
        self.existing_snapshots.manage(_as_volume(snapshot), reference)
        return {}

    def unmanage_snapshot(self, snapshot: base.SnapshotRef) -> None:
        """Rename a snapshot to a file."""
        self.existing_snapshots.unmanage(_as_volume(snapshot))


class FileSnapshots(ManageSnapshotFiles, abilities.ReadSnapshots):
    """The ability of a driver whose volumes are files on this machine.

    :ivar snapshots: set by the driver
    """

    copies_snapshots = True
    snapshots: SnapshotFiles
    existing_snapshots: existing_files.ExistingFiles

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

    def open_snapshot(
        self, snapshot: base.SnapshotRef
    ) -> contextlib.AbstractContextManager[abilities.VolumeData]:
        """Open the file."""
        return sparse.open_data(self.snapshots, snapshot.id, "ro")

    def list_snapshots(self) -> Mapping[str, str]:
        """List the files; their volumes are not known here."""
        return dict.fromkeys(self.snapshots.sizes(), "")

    def get_manageable_snapshot(
        self,
        volume: base.VolumeRef,  # noqa: ARG002  the directory is that of all volumes
        reference: Mapping[str, str],
    ) -> abilities.ManageableSnapshot:
        """Return one of them, by the name of its file."""
        return as_snapshot(self.existing_snapshots.get(reference))


def as_snapshot(item: abilities.ManageableObject) -> abilities.ManageableSnapshot:
    """Return a file that may become a snapshot, described as if it could become a volume."""
    return abilities.ManageableSnapshot(
        item.reference, item.size_bytes, item.refusal, snapshot_id=item.volume_id
    )


def _as_volume(snapshot: base.SnapshotRef) -> base.VolumeRef:
    """Return what files that may become volumes need of a snapshot."""
    return base.VolumeRef(snapshot.id, snapshot.size_gib, pool=snapshot.volume.pool)
