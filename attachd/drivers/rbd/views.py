# SPDX-License-Identifier: Apache-2.0
"""The views in a pool, of copies in progress and of snapshots; see copies.py."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from attachd.ceph import image_header
from attachd.drivers.rbd import copies, objects
from attachd.drivers.rbd.users import Naming


class Views:
    """The views of one pool, which each method is passed open."""

    def __init__(self, naming: Naming) -> None:
        self._naming = naming

    def copy_name(self, volume_id: str) -> str:
        """Return the name of a volume that is being copied; that of the view begins with it."""
        return f"{self._naming.prefix}copy.{volume_id}"

    def clone_name(self, volume_id: str) -> str:
        """Return the name of a volume that is being copied of an image of the Image service."""
        return f"{self.copy_name(volume_id)}{copies.CLONE_SUFFIX}"

    def snapshot_name(self, snapshot_id: str) -> str:
        """Return the name of the record of a snapshot; that of its view begins with it."""
        return f"{self._naming.prefix}snap.{snapshot_id}"

    def list_names(self, pool: Any) -> Sequence[str]:
        """Return the names of all images that are no volumes and belong to the driver."""
        return self._begin_with(pool, self.copy_name(""), self.snapshot_name(""))

    def list_copies(self, pool: Any) -> Sequence[str]:
        """Return the names of incomplete copies, and of the views of their sources."""
        return self._begin_with(pool, self.copy_name(""))

    def list_snapshots(self, pool: Any) -> dict[str, str]:
        """Return the volumes of the complete snapshots, by the ids of the snapshots."""
        beginning = self.snapshot_name("")
        return {
            name.removeprefix(beginning): self._naming.volume_id(record.source) or ""
            for name, record in self.records(pool)
            if name.startswith(beginning) and record.cloned and not record.released
        }

    def snapshots_of(self, pool: Any, image_id: str) -> list[tuple[str, copies.Record]]:
        """Return the snapshots of an image, also those of copies in progress, by their age."""
        found = [item for item in self.records(pool) if item[1].source_id == image_id]
        return sorted(found, key=lambda item: item[1].snapshot)

    def add_snapshots(self, pool: Any, image_id: str) -> None:
        """Add the snapshots of an image to its header."""
        copies.add_again(pool, image_id, self.snapshots_of(pool, image_id))

    def note_lost(self, pool: Any, image_id: str, present: Collection[int]) -> None:
        """Note which snapshots the header of an image has lost, before it is written anew.

        One that is not complete may not have been named there yet.

        :param present: the ids of those that it has
        """
        for name, record in self.snapshots_of(pool, image_id):
            if record.cloned and record.snapshot not in present and not record.lost:
                copies.note_lost(pool, name, record)

    def describe_need(self, pool: Any, image: str) -> str:
        """Return why an image has to stay; "": it may go."""
        needing = [
            name
            for name, record in self.records(pool)
            if record.source == image and not _is_useless(pool, record)
        ]
        if not needing:
            return ""
        if needing[-1].startswith(self.snapshot_name("")):
            return (
                f"has snapshots, of which some may be unmanaged: their data is in the objects of "
                f"image {image}."
            )
        return f"is being copied: image {image} is needed until then."

    def records(self, pool: Any) -> Iterator[tuple[str, copies.Record]]:
        """Read the records of all copies and snapshots, by their names."""
        yield from copies.read_records(pool, self.copy_name(""))
        yield from copies.read_records(pool, self.snapshot_name(""))

    def forget_useless(self, pool: Any, image: str) -> None:
        """Remove the unmanaged snapshots of an image that are lost, with the image."""
        for name, record in list(self.records(pool)):
            if record.source == image and _is_useless(pool, record):
                copies.forget_released(pool, name, record)

    @staticmethod
    def _begin_with(pool: Any, *beginnings: str) -> Sequence[str]:
        return [name for name in objects.list_ids(pool) if name.startswith(beginnings)]


def _is_useless(pool: Any, record: copies.Record) -> bool:
    """Return whether a snapshot is unmanaged, and lost, so that it cannot be managed again."""
    if not record.released or record.lost:
        return record.released
    keys = image_header.read(pool, record.source_id)
    is_there = record.snapshot in image_header.snapshots(keys)
    return not is_there and image_header.UNFINISHED not in keys
