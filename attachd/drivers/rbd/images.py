# SPDX-License-Identifier: Apache-2.0
"""The images of pools that are volumes; for the rbd driver.

librbd opens only images to whose headers no host has, or ever had, access: new ones, and copies in
progress.  Everything else is done with the objects of an image (objects.py, image_header.py), or
in a process of its own (resizing.py).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import contextlib
import struct
from typing import Any, Final

from attachd import exception
from attachd.ceph import bindings, image_header, object_names
from attachd.drivers import base
from attachd.drivers.rbd import copies, objects, resizing, stray_data
from attachd.drivers.rbd.cluster import Cluster
from attachd.drivers.rbd.copies import Source
from attachd.drivers.rbd.image_clients import ImageClients, Watch
from attachd.drivers.rbd.resizing import Resizing
from attachd.drivers.rbd.users import Image, Naming
from attachd.drivers.rbd.views import Views

GIB: Final = 2**30
_HEAD: Final = struct.pack("<Q", 2**64 - 2)
"""The image itself, and not a snapshot of it.  Source: include/rados.h, CEPH_NOSNAP."""
_SIZE: Final = struct.Struct("<BQ")
"""The answer of the object class rbd to get_size: the order of the objects, bytes."""


class Images:
    """Creates, copies, extends, deletes and lists the images of one pool.

    :param naming: of the volumes
    :ivar pool: its name
    :ivar clients: those that have its images open
    :ivar errors: see Cluster.errors()
    :ivar views: of copies in progress and of snapshots
    """

    def __init__(
        self,
        cluster: Cluster,
        naming: Naming,
        resizing: Resizing,
        clients: ImageClients,
        pool: str,
    ) -> None:
        self._cluster = cluster
        self.errors = cluster.errors
        self._naming = naming
        self._resizing = resizing
        self.clients = clients
        self.pool = pool
        self.views = Views(naming)

    def open_pool(self) -> contextlib.AbstractContextManager[Any]:
        """Open the pool for a block; yields rados.Ioctx."""
        return self._cluster.pool(self.pool)

    def has(self, volume_id: str) -> bool:
        """Return whether there is an image of a volume, or an incomplete copy."""
        views = self.views
        names = (
            self._naming.image(volume_id),
            *(views.copy_name(volume_id), views.clone_name(volume_id)),
        )
        with self.open_pool() as pool, self.errors(f"Volume {volume_id} could not be found"):
            return any(objects.exists(pool, name) for name in names)

    def find(self, volume_id: str) -> Image | None:
        """Return the image of a volume; None: it does not exist, or not yet."""
        name = self._naming.image(volume_id)
        with self.open_pool() as pool, self.errors(f"Image {name} could not be found"):
            image_id = objects.read_id(pool, name)
        return Image(self.pool, name, image_id) if image_id else None

    def watches(self, volume_id: str) -> Sequence[Watch]:
        """List the clients that have a volume open; none if it does not exist."""
        image = self.find(volume_id)
        return self.clients.list_watches(image.id) if image else ()

    def lock_owner(self, volume_id: str) -> Watch | None:
        """Return the client that has the lock of a volume for writing; None: none has.

        A client that hangs or has died keeps the lock, also when its watch has expired, until the
        next writer breaks it.
        """
        image = self.find(volume_id)
        if image is None:
            return None
        with self.open_pool() as pool, self.errors(f"Image {image.name} could not be read"):
            # The command that shows the owner takes many times as long.
            if not image_header.count_lockers(pool, image.id):
                return None
        return self.clients.lock_owner(image.id)

    def sizes(self) -> Mapping[str, int]:
        """Return the sizes of the volumes, in bytes, as their headers have them."""
        with self.open_pool() as pool, self.errors("The images could not be listed"):
            volume_ids = {
                image_id: volume_id
                for name, image_id in objects.list_ids(pool).items()
                if (volume_id := self._naming.volume_id(name))
            }
            answers = _read_sizes(pool, volume_ids)
        # A header that cannot be read has no size.
        return {id_: answers.get(image_id, (0, 0))[1] for image_id, id_ in volume_ids.items()}

    def find_stray_data(self) -> list[base.Orphan]:
        """Find data of no image, and data of volumes beyond their end."""
        with self.open_pool() as pool, self.errors("The objects could not be listed"):
            names = objects.list_ids(pool).items()
            own = [image_id for name, image_id in names if self._naming.volume_id(name)]
            sizes = _read_sizes(pool, own).items()
            counts = {image_id: -(-size >> order) for image_id, (order, size) in sizes}
            return [*stray_data.find(pool, self.pool, counts)]

    def create(self, volume: base.VolumeRef) -> dict[str, Any]:
        """Create an image, unless it exists; returns what is to be stored."""
        name, rbd = self._naming.image(volume.id), bindings.load().rbd
        doing = f"Volume {volume.id} could not be created"
        with self.open_pool() as pool, self.errors(doing):
            if volume.provider and objects.exists(pool, name):
                return dict(volume.provider)
            try:
                _create(pool, name, volume.size_gib)
            except rbd.ImageExists:
                if not image_header.size(image_header.read(pool, objects.read_id(pool, name))):
                    # A process was killed while it created it.
                    objects.remove_names(pool, name)
                    _create(pool, name, volume.size_gib)
            return _describe(pool, volume.id, name)

    def clone(self, volume: base.VolumeRef, source: base.VolumeRef) -> dict[str, Any]:
        """Copy an image, unless the copy exists; an interrupted copy is continued.

        The header of the source was checked.

        The copy becomes independent of its source before it is a volume: otherwise its users
        would have to read all data of the source.
        """
        name, copy = self._naming.image(volume.id), self.views.copy_name(volume.id)
        copied = self._naming.image(source.id)
        doing = f"Volume {volume.id} could not be copied of {source.id}"
        with self.open_pool() as pool, self.errors(doing):
            if name not in objects.list_ids(pool):
                if source.size_gib > volume.size_gib:
                    raise exception.BackendError(
                        f"Volume {source.id} is larger than {volume.size_gib} GiB by now.",
                        final=True,
                    )
                origin = Source(copied, source.provider["image"], source.size_gib * GIB)
                record = copies.begin(pool, copy, origin)
                copies.branch(pool, copy, origin, record)
                _complete(pool, copy, volume.size_gib)
                copies.check_snapshot(pool, source.id, record)
            objects.rename(pool, copy, name)
            copies.forget(pool, copy)
            return _describe(pool, volume.id, name)

    def branch(
        self, volume: base.VolumeRef, snapshot: str, stored: image_header.Stored
    ) -> dict[str, Any]:
        """Create a volume of a snapshot, unless it exists; an interrupted copy begins anew.

        :param snapshot: its name, see Views.snapshot_name()
        :param stored: of the image of the snapshot's volume
        """
        copy = self.views.copy_name(volume.id)

        def make(pool: Any) -> None:
            copies.remove(pool, copy)
            copies.clone_view(pool, snapshot, copy, stored)

        return self._create_as_copy(volume, copy, make)

    def clone_image(
        self, volume: base.VolumeRef, parents: Any, parent: tuple[str, str]
    ) -> dict[str, Any]:
        """Create a volume of an image of another service; an interrupted copy begins anew.

        :param parents: the pool of the image, open
        :param parent: its name, and its snapshot
        """
        clone = self.views.clone_name(volume.id)

        def make(pool: Any) -> None:
            copies.remove_foreign(pool, clone)
            copies.clone_foreign(pool, clone, parents, parent)

        return self._create_as_copy(volume, clone, make)

    def _create_as_copy(
        self, volume: base.VolumeRef, copy: str, make: Callable[[Any], None]
    ) -> dict[str, Any]:
        """Create a volume, unless it exists, as an image that is complete before its renaming.

        :param copy: the name until then
        :param make: makes an image of that name in the pool, instead of one that is left there
        """
        name = self._naming.image(volume.id)
        with self.open_pool() as pool, self.errors(f"Volume {volume.id} could not be created"):
            if name not in objects.list_ids(pool):
                make(pool)
                _complete(pool, copy, volume.size_gib)
            objects.rename(pool, copy, name)
            return _describe(pool, volume.id, name)

    def extend(self, name: str, size_gib: int) -> None:
        """Extend an image, also one in use; never shorten it."""
        self._resizing.extend(self.pool, name, size_gib * GIB)

    def delete(self, volume: base.VolumeRef) -> None:
        """Delete an image, also an incomplete copy.

        What its header says decides only how its data is found: its names follow from its id.

        :raises BackendError: final=True if a client has it open, or it is being copied
        """
        name, copy = self._naming.image(volume.id), self.views.copy_name(volume.id)
        clone = self.views.clone_name(volume.id)
        with self.open_pool() as pool, self.errors(f"Volume {volume.id} could not be deleted"):
            for image in (copy, clone, name):
                self.clients.check_unused(pool, image)
            self._check_no_snapshots(pool, volume.id)
            self.views.forget_useless(pool, name)
            copies.remove_foreign(pool, clone)
            copies.remove(pool, copy)
            _remove(pool, name, volume)

    def release(self, volume_id: str, name: str) -> None:
        """Give the image of a volume another name, if there is one; remove an incomplete copy."""
        former, copy = self._naming.image(volume_id), self.views.copy_name(volume_id)
        doing = f"Volume {volume_id} could not be unmanaged"
        with self.open_pool() as pool, self.errors(doing):
            self.clients.check_unused(pool, copy)
            self._check_no_snapshots(pool, volume_id)
            copies.remove(pool, copy)
            objects.rename(pool, former, name)
            if objects.exists(pool, former):
                # An image was to be managed under this name, and was not.
                objects.remove_id(pool, former)

    def manage(self, volume: base.VolumeRef, name: str) -> dict[str, Any]:
        """Give an image the name and the size of a volume; returns what is to be stored."""
        target = self._naming.image(volume.id)
        doing = f"Volume {volume.id} could not be managed"
        with self.open_pool() as pool, self.errors(doing):
            objects.rename(pool, name, target)
            stored = _describe(pool, volume.id, target)
            size = image_header.size(image_header.read(pool, stored["image"]["id"]))
        if size < volume.size_gib * GIB:
            self.extend(target, volume.size_gib)
        return stored

    def list_copies(self) -> Sequence[str]:
        """Return the names of incomplete copies, and of the views of their sources."""
        with self.open_pool() as pool, self.errors("The images could not be listed"):
            return self.views.list_copies(pool)

    def _check_no_snapshots(self, pool: Any, volume_id: str) -> None:
        image = self._naming.image(volume_id)
        if reason := self.views.describe_need(pool, image):
            raise exception.BackendError(f"Volume {volume_id} {reason}", final=True)


def _describe(pool: Any, volume_id: str, name: str) -> dict[str, Any]:
    """Return what is to be stored of an image to which no host has access."""
    image_id = objects.read_id(pool, name)
    keys = image_header.read(pool, image_id)
    if key := image_header.find_unusable(image_id, keys):
        raise exception.BackendError(
            f"Volume {volume_id}: image {name} has the key {key}, which hosts of volumes "
            "cannot use: check the options rbd_default_... of the cluster.",
        )
    return {"image": image_header.describe(image_id, keys)}


def _complete(pool: Any, copy: str, size_gib: int) -> None:
    """Copy the data that an image shares with the view; no host has access to both."""
    with _open_image(pool, copy) as image:
        if image.size() < size_gib * GIB:
            base.check_still_owner()
            image.resize(size_gib * GIB)
        if image.overlap():
            # It may take long, and does no harm if the process is taken over: the data stays the
            # same.
            base.check_still_owner()
            image.flatten()


class Pools:
    """The pools of a backend.

    :param name: of the backend
    :param images: of each pool, by its name
    """

    def __init__(self, name: str, images: Mapping[str, Images]) -> None:
        self._name = name
        self._images = dict(images)

    def __iter__(self) -> Iterator[Images]:
        return iter(self._images.values())

    def __len__(self) -> int:
        return len(self._images)

    def get(self, pool: str) -> Images | None:
        """Return the images of a pool; None: it is none of the backend."""
        return self._images.get(pool)

    def find(self, volume: base.VolumeRef) -> Images:
        """Return the images of the pool that has a volume, or shall get it.

        A volume has the name of the backend for its pool if it was created while the backend had
        one, and none if an audit has found it.
        """
        named = self._images.get(volume.pool)
        order = sorted(self, key=lambda images: images is not named)
        if len(order) == 1 or (named and volume.pool != self._name):
            return order[0]
        return next((images for images in order if images.has(volume.id)), order[0])

    def sizes(self) -> Mapping[str, int]:
        """Return the sizes of the volumes of all pools, in bytes."""
        return {name: size for images in self for name, size in images.sizes().items()}


def _create(pool: Any, name: str, size_gib: int) -> None:
    rbd = bindings.load().rbd
    base.check_still_owner()
    try:
        rbd.RBD().create(pool, name, size_gib * GIB)
    except rbd.InvalidArgument:
        resizing.check_size(name, size_gib * GIB)
        raise
    copies.check_id(pool, name)


def _remove(pool: Any, name: str, volume: base.VolumeRef) -> None:
    """Remove an image with its data."""
    if image_id := objects.read_id(pool, name):
        objects.remove_data(pool, image_id, _count_objects(pool, image_id, volume))
    objects.remove_names(pool, name)


def _count_objects(pool: Any, image_id: str, volume: base.VolumeRef) -> int | None:
    """Return how many data objects an image has; None: its header is not that of the volume.

    Without stored data the volume was not completely created.
    """
    keys, stored = image_header.read(pool, image_id), volume.provider.get("image")
    size = volume.size_gib * GIB
    if stored:
        changed = any(image_header.find_changes(stored, keys, {size}))
    else:
        changed = (
            bool(image_header.find_unusable(image_id, keys)) or image_header.size(keys) != size
        )
    return None if changed or "stripe_unit" in keys else image_header.count_objects(keys)


@contextlib.contextmanager
def _open_image(pool: Any, name: str) -> Iterator[Any]:
    image = bindings.load().rbd.Image(pool, name)
    try:
        yield image
    finally:
        image.close()


def _read_sizes(pool: Any, image_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return the order of the data objects and the bytes of images, by their ids.

    Of an image whose header cannot be read there is nothing.
    """
    found: dict[str, tuple[int, int]] = {}
    asked = []
    for image_id in image_ids:
        arguments = ("rbd", "get_size", _HEAD, _SIZE.size, _keep(found, image_id))
        asked.append(pool.aio_execute(object_names.header_name(image_id), *arguments))
    for request in asked:
        request.wait_for_complete_and_cb()
    return found


def _keep(found: dict[str, tuple[int, int]], image_id: str) -> Any:
    """Return a function that stores an answer, unless the header cannot be read."""

    def answered(_request: Any, answer: bytes | None) -> None:
        if answer and len(answer) == _SIZE.size:
            found[image_id] = _SIZE.unpack(answer)

    return answered
