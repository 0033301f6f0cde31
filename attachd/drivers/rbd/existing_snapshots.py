# SPDX-License-Identifier: Apache-2.0
"""Existing snapshots of images that become those of volumes, and the reverse; for the rbd driver.

A snapshot in the header of a volume's image, as ``rbd snap create`` makes it, gets a record and a
view, see snapshots.py.  An unmanaged one keeps both: its record says so.  So a header that is
written anew has it again, and its volume is not deleted.

A host can write its header, with the id of the snapshot of another image: to delete that snapshot
would delete the other one.  So an id that another image has is refused, and one that the pool has
not given out yet.  Nothing tells whether a host has changed the data of a snapshot in its header
before it was managed.
"""

from collections.abc import Iterator, Mapping
import dataclasses
from typing import Any, Final

from attachd import exception
from attachd.ceph import image_header
from attachd.drivers import base, existing
from attachd.drivers.abilities import ManageableSnapshot
from attachd.drivers.rbd import copies, objects
from attachd.drivers.rbd.cluster import Cluster
from attachd.drivers.rbd.header_check import HeaderCheck
from attachd.drivers.rbd.images import GIB, Images, Pools
from attachd.drivers.rbd.users import Image, Naming

MAX_SNAPSHOTS: Final = 100
"""Of one volume: each has a key in the header, which is read before each use of the image."""


@dataclasses.dataclass(frozen=True)
class _Found:
    """A snapshot in the header of a volume's image, or one with a record.

    :ivar name: in the header
    :ivar number: its id in the pool
    :ivar record: the name of its record; "": it has none
    """

    item: ManageableSnapshot
    name: str
    number: int
    record: str = ""


class ExistingSnapshots(existing.ExistingSnapshots):
    """The snapshots of volumes that this driver has not made, or that were unmanaged.

    They are named "IMAGE@SNAPSHOT", with "POOL/" before it if the backend has several pools.
    """

    def __init__(
        self, cluster: Cluster, naming: Naming, pools: Pools, headers: HeaderCheck
    ) -> None:
        self._cluster = cluster
        self._naming = naming
        self._pools = pools
        self._headers = headers

    def list(self) -> list[ManageableSnapshot]:
        """List the complete snapshots of all volumes, and those that could become some."""
        found: list[_Found] = []
        for images in self._pools:
            with images.open_pool() as pool, images.errors("The snapshots could not be listed"):
                view = _Pool(self._cluster, self._naming, images, pool)
                for name in sorted(view.ids):
                    if self._naming.volume_id(name):
                        found += view.list_of(name, self._full_name(images, name))
        return [entry.item for entry in found if entry.name.isprintable()]

    def get(self, volume: base.VolumeRef, reference: Mapping[str, str]) -> ManageableSnapshot:
        """Return one of them, by the names of image and snapshot, or of the snapshot alone."""
        images, image = self._find_image(volume, reference)
        doing = f"The snapshots of volume {volume.id} could not be read"
        with images.open_pool() as pool, images.errors(doing):
            return self._get(images, pool, image, reference).item

    def manage(self, snapshot: base.SnapshotRef, reference: Mapping[str, str]) -> dict[str, Any]:
        """Give a snapshot in the header of an image a record and a view, unless it has some.

        The record is there before it is checked that no other one is for the same snapshot: of
        two calls at the same time at most one succeeds.
        """
        volume, images = snapshot.volume, self._pools.find(snapshot.volume)
        name = images.views.snapshot_name(snapshot.id)
        doing = f"Snapshot {snapshot.id} could not be managed"
        with images.open_pool() as pool, images.errors(doing):
            record = copies.read_record(pool, name)
            if record is None or not record.cloned:
                stored = self._headers.check(volume)
                image = self._naming.image(volume.id)
                source = copies.Source(image, stored, snapshot.size_gib * GIB)
                if record is None:
                    record = self._adopt(images, pool, snapshot, reference, source)
                copies.make_view(pool, name, source, record)
                self._check_unique(images, pool, name, record)
                record = copies.complete(pool, name, record)
            copies.finish_adoption(pool, name, record)
        return {"snapshot": record.snapshot}

    def _adopt(
        self,
        images: Images,
        pool: Any,
        snapshot: base.SnapshotRef,
        reference: Mapping[str, str],
        source: copies.Source,
    ) -> copies.Record:
        """Write the record of a snapshot that can be managed."""
        image = Image(images.pool, source.name, source.stored["id"])
        with existing.missing_is_final():
            found = self._get(images, pool, image, reference)
        existing.check_usable("snapshot", found.item, snapshot.size_gib * GIB)
        name = images.views.snapshot_name(snapshot.id)
        return copies.adopt(pool, name, source, found.number, found.record)

    def unmanage(self, snapshot: base.SnapshotRef) -> None:
        """Note in the record of a snapshot that it is none of a volume any longer."""
        images = self._pools.find(snapshot.volume)
        doing = f"Snapshot {snapshot.id} could not be unmanaged"
        with images.open_pool() as pool, images.errors(doing):
            copies.release(pool, images.views.snapshot_name(snapshot.id))

    @staticmethod
    def _check_unique(images: Images, pool: Any, name: str, record: copies.Record) -> None:
        """Remove record and view of a snapshot that has others, or is gone."""
        others = [
            other
            for other, content in images.views.records(pool)
            if other not in {name, record.former} and content.snapshot == record.snapshot
        ]
        keys = image_header.read(pool, record.source_id)
        if others or record.snapshot not in image_header.snapshots(keys):
            copies.drop(pool, name)
            raise exception.BackendError(
                f"Snapshot {record.snapshot} of image {record.source} is {existing.MANAGED}, or "
                "was deleted.",
                final=True,
            )

    def _find_image(
        self, volume: base.VolumeRef, reference: Mapping[str, str]
    ) -> tuple[Images, Image]:
        images = self._pools.find(volume)
        image = images.find(volume.id)
        if image is None:
            raise existing.invalid(reference, f"Volume {volume.id} has no image.")
        return images, image

    def _get(
        self, images: Images, pool: Any, image: Image, reference: Mapping[str, str]
    ) -> _Found:
        """Return the snapshot of an image that a reference names.

        :raises InvalidInput: there is none
        """
        text = reference.get(existing.KEY)
        view = _Pool(self._cluster, self._naming, images, pool)
        found = [*view.list_of(image.name, self._full_name(images, image.name))]
        # A name may look like another one with its image: the longer form goes first.
        for start in (f"{images.pool}/{image.name}@", f"{image.name}@", ""):
            for entry in found:
                if text == f"{start}{entry.name}":
                    return entry
        raise existing.invalid(
            reference,
            f"It must have the key {existing.KEY} with the name of a snapshot of image "
            f"{images.pool}/{image.name}, that of the volume, as IMAGE@SNAPSHOT or SNAPSHOT.",
        )

    def _full_name(self, images: Images, image: str) -> str:
        return f"{images.pool}/{image}" if len(self._pools) > 1 else image


class _Pool:
    """The snapshots of one open pool, read as far as they are needed."""

    def __init__(self, cluster: Cluster, naming: Naming, images: Images, pool: Any) -> None:
        self._cluster = cluster
        self._naming = naming
        self._images = images
        self._pool = pool
        self.ids = objects.list_ids(pool)
        self._records = list(images.views.records(pool))
        self._headers: dict[str, dict[str, bytes]] = {}
        self._last: int | None = None

    def list_of(self, image: str, full_name: str) -> Iterator[_Found]:
        """Describe the snapshots of a volume.

        :param full_name: of the image, in references
        """
        image_id = self.ids[image]
        records = [item for item in self._records if item[1].source_id == image_id]
        entries = {
            number: entry
            for number in image_header.snapshots(self._header(image))
            if (entry := image_header.read_snapshot(self._pool, image_id, number))
        }
        volume_id = self._naming.volume_id(image) or ""
        for name, record in records:
            entry = entries.pop(record.snapshot, None)
            if name.startswith(self._images.views.snapshot_name("")) and record.cloned:
                item = self._describe_recorded(name, record, entry)
                yield _Found(
                    _add_names(item, full_name, name, volume_id), name, record.snapshot, name
                )
        for number, entry in sorted(entries.items()):
            refusal = _find_refusal(entry, None) or self._find_claim(image, number)
            if not refusal and len(records) >= MAX_SNAPSHOTS:
                refusal = f"The volume has {len(records)} snapshots, the most it may have."
            item = ManageableSnapshot({}, entry.size_bytes, refusal)
            yield _Found(_add_names(item, full_name, entry.name, volume_id), entry.name, number)

    def _describe_recorded(
        self, name: str, record: copies.Record, entry: image_header.SnapshotEntry | None
    ) -> ManageableSnapshot:
        """Describe a complete snapshot with a record, without its names."""
        size = entry.size_bytes if entry else self._size(name)
        if record.released:
            return ManageableSnapshot({}, size, _find_refusal(entry, record))
        id_ = name.removeprefix(self._images.views.snapshot_name(""))
        return ManageableSnapshot({}, size, existing.MANAGED, id_)

    def _size(self, name: str) -> int:
        """Return the size of a view."""
        image_id = self.ids.get(f"{name}{copies.VIEW_SUFFIX}", "")
        return image_header.size(image_header.read(self._pool, image_id)) if image_id else 0

    def _header(self, image: str) -> dict[str, bytes]:
        if image not in self._headers:
            image_id = self.ids[image]
            self._headers[image] = image_header.read(self._pool, image_id) if image_id else {}
        return self._headers[image]

    def _find_claim(self, image: str, number: int) -> str:
        """Return why a snapshot may be none of the image whose header names it; "": it is one."""
        if any(record.snapshot == number for _name, record in self._records):
            return f"Snapshot {number} is one of another image: a host has forged its entry."
        for other in self.ids.keys() - {image}:
            if number in image_header.snapshots(self._header(other)):
                return f"Image {other} has the same snapshot, {number}: a host has forged one."
        if number > self._last_number():
            return f"The pool has no snapshot {number}: a host has forged its entry."
        return ""

    def _last_number(self) -> int:
        """Return the number of the last snapshot that the pool has given out."""
        if self._last is None:
            pools = self._cluster.read("osd dump")["pools"]
            numbers = {pool["pool_name"]: int(pool["snap_seq"]) for pool in pools}
            self._last = numbers.get(self._images.pool, 0)
        return self._last


def _add_names(
    item: ManageableSnapshot, image: str, name: str, volume_id: str
) -> ManageableSnapshot:
    """Return the description of a snapshot with the names of its image and its volume."""
    return dataclasses.replace(
        item, reference={existing.KEY: f"{image}@{name}"}, volume_id=volume_id
    )


def _find_refusal(entry: image_header.SnapshotEntry | None, record: copies.Record | None) -> str:
    """Return why a snapshot cannot be managed, by its entry in the header; "": it can."""
    if entry is None or (record and record.lost):
        return "It is lost: a host has removed it from the header of the image."
    if not entry.is_readable:
        return "Its entry in the header of the image cannot be read."
    if not entry.is_users:
        return "It belongs to a group, a mirror or the trash."
    if entry.is_protected:
        return "It is protected for clones: delete these, then 'rbd snap unprotect' it."
    if entry.children:
        return f"It has {entry.children} clones: separate them with 'rbd flatten'."
    return ""
