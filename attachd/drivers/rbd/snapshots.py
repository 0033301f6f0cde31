# SPDX-License-Identifier: Apache-2.0
"""Snapshots of volumes; for the rbd driver.

A snapshot is one of the pool, which the header of the volume's image names, so that clients keep
the data of that moment, and a view: an image "PREFIXsnap.ID.source" with a header of the manager's
own, which names the data objects of the volume and this snapshot, see copies.py.  Its record is
named "PREFIXsnap.ID".  No host reaches either.

What the header of the volume says is a claim: a host can remove the snapshot from it, and what it
writes then changes the data of the snapshot.  A snapshot that is missing there is not used.
"""

from collections.abc import Iterator, Mapping
import contextlib
from typing import Any

from attachd import exception
from attachd.ceph import image_header
from attachd.drivers import abilities, base, existing
from attachd.drivers.rbd import copies, header_check, image_data, objects
from attachd.drivers.rbd.existing_snapshots import MAX_SNAPSHOTS
from attachd.drivers.rbd.header_check import HeaderCheck
from attachd.drivers.rbd.images import GIB, Images, Pools


class ImageSnapshots(existing.ManageSnapshotsByName, abilities.ReadSnapshots):
    """The ability of the driver, which sets the attributes."""

    _pools: Pools
    _headers: HeaderCheck

    def create_snapshot(self, snapshot: base.SnapshotRef) -> dict[str, Any]:
        """Make a snapshot of the pool and a view of it, unless they exist."""
        volume = snapshot.volume
        images, name = self._find(snapshot)
        doing = f"Snapshot {snapshot.id} could not be created"
        with images.open_pool() as pool, images.errors(doing):
            record = copies.read_record(pool, name)
            if record is None or not record.cloned:
                stored = self._headers.check(volume)
                if record is None:
                    self._check_others(pool, images, volume, stored["id"])
                image = images.find(volume.id)
                source = copies.Source(image.name if image else "", stored, volume.size_gib * GIB)
                record = copies.begin(pool, name, source)
                copies.keep(pool, name, source, record)
        return {"snapshot": record.snapshot}

    def delete_snapshot(self, snapshot: base.SnapshotRef) -> None:
        """Remove the snapshot from the header of the volume and from the pool, and the view."""
        images, name = self._find(snapshot)
        doing = f"Snapshot {snapshot.id} could not be deleted"
        with images.open_pool() as pool, images.errors(doing):
            copies.forget(pool, name)

    def create_from_snapshot(
        self, volume: base.VolumeRef, snapshot: base.SnapshotRef
    ) -> dict[str, Any]:
        """Copy the view; the copy shares no data with it in the end."""
        images, name = self._find(snapshot)
        if images.find(volume.id) is None:
            doing = f"Volume {volume.id} could not be created"
            with images.open_pool() as pool, images.errors(doing):
                _read(pool, name, snapshot)
        return images.branch(volume, name, snapshot.volume.provider["image"])

    def revert(self, snapshot: base.SnapshotRef) -> None:
        """Give each object of the volume the data that it has in the snapshot."""
        images, name = self._find(snapshot)
        volume = snapshot.volume
        self._headers.check_not_exported(volume)
        stored = self._headers.check(volume)
        doing = f"Volume {volume.id} could not be reverted"
        with images.open_pool() as pool, images.errors(doing):
            record = _read(pool, name, snapshot)
            images.clients.check_unused(pool, record.source)
            keys = image_header.read(pool, stored["id"])
            kept = [item.snapshot for _name, item in images.views.snapshots_of(pool, stored["id"])]
            pool.set_self_managed_snap_write(sorted(kept, reverse=True))
            count = image_header.count_objects(keys)
            objects.roll_back(pool, stored["id"], count, record.snapshot)
            # Its object map is that of the data before.
            size = image_header.size(keys)
            header_check.write_with_snapshots(pool, images, stored, size)

    @contextlib.contextmanager
    def open_snapshot(self, snapshot: base.SnapshotRef) -> Iterator[abilities.VolumeData]:
        """Open the objects of the volume as they were at the moment of the snapshot."""
        images, name = self._find(snapshot)
        stored = snapshot.volume.provider["image"]
        image_data.check_not_striped(snapshot.volume.id, stored)
        doing = f"Snapshot {snapshot.id} could not be read"
        with images.open_pool() as pool, images.errors(doing):
            record = _read(pool, name, snapshot)
            pool.set_read(record.snapshot)
            yield image_data.ObjectData(pool, stored)
        with images.open_pool() as pool, images.errors(doing):
            _read(pool, name, snapshot)

    def list_snapshots(self) -> Mapping[str, str]:
        """List the complete snapshots of all pools, with their volumes."""
        found: dict[str, str] = {}
        for images in self._pools:
            with images.open_pool() as pool, images.errors("The snapshots could not be listed"):
                found |= images.views.list_snapshots(pool)
        return found

    def _check_others(
        self, pool: Any, images: Images, volume: base.VolumeRef, image_id: str
    ) -> None:
        """Refuse a snapshot too many, or one beside those of hosts; without hosts remove those."""
        listed = _list_numbers(pool, image_id)
        known = {record.snapshot for _name, record in images.views.snapshots_of(pool, image_id)}
        if len(known) >= MAX_SNAPSHOTS:
            raise exception.BackendError(
                f"Volume {volume.id} has {len(known)} snapshots, the most that an image may have.",
                final=True,
            )
        unknown = listed - known
        # One whose record is gone by now was deleted: then the header has lost it before.
        if unknown and unknown & _list_numbers(pool, image_id):
            self._headers.check_releasable(volume)

    def _find(self, snapshot: base.SnapshotRef) -> tuple[Images, str]:
        images = self._pools.find(snapshot.volume)
        return images, images.views.snapshot_name(snapshot.id)


def _list_numbers(pool: Any, image_id: str) -> set[int]:
    """Return the ids of the snapshots that the header of an image names."""
    return set(image_header.snapshots(image_header.read(pool, image_id)))


def _read(pool: Any, name: str, snapshot: base.SnapshotRef) -> copies.Record:
    """Return the record of a complete snapshot; raises BackendError, final=True: there is none."""
    record = copies.read_record(pool, name)
    if record is None or not record.cloned or record.released:
        raise exception.BackendError(f"Snapshot {snapshot.id} is missing.", final=True)
    if copies.is_lost(pool, record):
        raise exception.BackendError(
            f"Snapshot {snapshot.id} is lost: a host has removed it from the header of image "
            f"{record.source}, and what hosts wrote since has changed its data.",
            final=True,
        )
    return record
