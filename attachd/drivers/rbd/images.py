# SPDX-License-Identifier: Apache-2.0
"""The images of pools that are volumes; for the rbd driver.

A copy is made under a name of its own, "PREFIXcopy.ID", of a snapshot with the same name, and is
renamed when it is complete.  An object of that name, the *record*, has the name of the source, so
that the snapshot can be removed after any interrupted step.
"""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import struct
import time
from typing import Any, Final, NamedTuple

from attachd import exception
from attachd.drivers import base
from attachd.drivers.rbd import bindings
from attachd.drivers.rbd.cluster import Cluster
from attachd.drivers.rbd.users import Image, Naming

GIB: Final = 2**30
WATCH_TIMEOUT: Final = 45.0
"""Seconds after which the watches of a client have expired that has died.

By default they expire after 30 (osd_client_watch_timeout).
"""
_POLL_INTERVAL: Final = 0.2

_HEAD: Final = struct.pack("<Q", 2**64 - 2)
"""The image itself, and not a snapshot of it.  Source: include/rados.h, CEPH_NOSNAP."""
_LOCK_TAG: Final = "internal"
_SIZE: Final = struct.Struct("<BQ")
"""The answer of the object class rbd to get_size: the order of the objects, bytes."""


class Watch(NamedTuple):
    """A client that has an image open, other than for reading alone, or has its lock.

    :ivar client_id: see Session
    :ivar address: with its nonce
    """

    client_id: int
    address: str


class Images:
    """Creates, copies, extends, deletes and lists the images of one pool.

    :param naming: of the volumes
    :ivar pool: its name
    """

    def __init__(self, cluster: Cluster, naming: Naming, pool: str) -> None:
        self._cluster = cluster
        self._errors = cluster.errors
        self._naming = naming
        self.pool = pool

    def open_pool(self) -> contextlib.AbstractContextManager[Any]:
        """Open the pool for a block; yields rados.Ioctx."""
        return self._cluster.pool(self.pool)

    def has(self, volume_id: str) -> bool:
        """Return whether there is an image of a volume, or an incomplete copy."""
        names = (self._naming.image(volume_id), self._copy_name(volume_id))
        with self.open_pool() as pool, self._errors(f"Volume {volume_id} could not be found"):
            return any(_exists(pool, name) for name in names)

    def find(self, volume_id: str) -> Image | None:
        """Return the image of a volume; None: it does not exist, or not yet."""
        name = self._naming.image(volume_id)
        with self.open_pool() as pool, self._errors(f"Image {name} could not be opened"):
            try:
                with open_image(pool, name, read_only=True) as image:
                    return Image(self.pool, name, image.id())
            except bindings.load().rbd.ImageNotFound:
                return None

    def watches(self, volume_id: str) -> Sequence[Watch]:
        """List the clients that have a volume open; none if it does not exist."""
        name = self._naming.image(volume_id)
        with self.open_pool() as pool, self._errors(f"Image {name} could not be opened"):
            return list_watches(pool, name)

    def lock_owner(self, volume_id: str) -> Watch | None:
        """Return the client that has the lock of a volume for writing; None: none has.

        A client that hangs or has died keeps the lock, also when its watch has expired, until the
        next writer breaks it.
        """
        name = self._naming.image(volume_id)
        with self.open_pool() as pool, self._errors(f"Image {name} could not be opened"):
            return _lock_owner(pool, name)

    def sizes(self) -> Mapping[str, int]:
        """Return the sizes of the volumes, in bytes."""
        sizes: dict[str, int] = {}
        with self.open_pool() as pool, self._errors("The images could not be listed"):
            asked = []
            for image in bindings.load().rbd.RBD().list2(pool):
                if volume_id := self._naming.volume_id(image["name"]):
                    # Opening an image takes many requests, of which this is one.
                    header = f"rbd_header.{image['id']}"
                    answered = _keep(sizes, volume_id)
                    arguments = ("rbd", "get_size", _HEAD, _SIZE.size, answered)
                    asked.append(pool.aio_execute(header, *arguments))
            for request in asked:
                request.wait_for_complete_and_cb()
        return sizes

    def create(self, volume: base.VolumeRef) -> None:
        """Create an image, unless it exists."""
        name, rbd = self._naming.image(volume.id), bindings.load().rbd
        doing = f"Volume {volume.id} could not be created"
        with self.open_pool() as pool, self._errors(doing):
            try:
                _create(pool, name, volume.size_gib)
            except rbd.ImageExists:
                with (
                    contextlib.suppress(rbd.ImageNotFound),
                    open_image(pool, name, read_only=True),
                ):
                    return
                # A process was killed while it created it.
                base.check_fencing()
                rbd.RBD().remove(pool, name)
                _create(pool, name, volume.size_gib)
            _check_id(pool, name)

    def clone(self, volume: base.VolumeRef, source_id: str) -> None:
        """Copy an image, unless the copy exists; an interrupted copy is continued.

        The copy becomes independent of its source before it is a volume: otherwise its users
        would have to read all data of the source.
        """
        name, source = self._naming.image(volume.id), self._naming.image(source_id)
        copy = self._copy_name(volume.id)
        doing = f"Volume {volume.id} could not be copied of {source_id}"
        with self.open_pool() as pool, self._errors(doing):
            if name not in list_ids(pool):
                if not _exists(pool, copy):
                    self._branch(pool, volume, source_id, source, copy)
                _complete(pool, copy, volume.size_gib)
            rename(pool, copy, name)
            self._forget_copy(pool, volume.id)

    def extend(self, volume_id: str, size_gib: int) -> None:
        """Extend an image, also one in use; never shorten it."""
        name, rbd = self._naming.image(volume_id), bindings.load().rbd
        doing = f"Volume {volume_id} could not be extended"
        with self.open_pool() as pool, self._errors(doing):
            try:
                with open_image(pool, name) as image:
                    grow(image, size_gib)
            except rbd.ImageNotFound as error:
                raise _missing(volume_id, name) from error

    def delete(self, volume_id: str) -> None:
        """Delete an image, also an incomplete copy.

        :raises BackendError: final=True if a client has it open, or it is being copied
        """
        name, rbd = self._naming.image(volume_id), bindings.load().rbd
        copy = self._copy_name(volume_id)
        doing = f"Volume {volume_id} could not be deleted"
        with self.open_pool() as pool, self._errors(doing):
            for image in (copy, name):
                self.check_unused(pool, image)
            try:
                _remove(pool, copy)
                self._forget_copy(pool, volume_id)
                with contextlib.suppress(rbd.ImageNotFound):
                    self._remove_snapshots(pool, name)
                _remove(pool, name)
            except rbd.ImageHasSnapshots as error:
                raise exception.BackendError(
                    f"Volume {volume_id} cannot be deleted: it is being copied, or image {name} "
                    "has snapshots.",
                    final=True,
                ) from error
            except rbd.ImageBusy as error:
                raise exception.BackendError(f"{doing}: it is in use: {error}.") from error

    def release(self, volume_id: str, name: str) -> None:
        """Give the image of a volume another name, if there is one; remove an incomplete copy."""
        former, copy = self._naming.image(volume_id), self._copy_name(volume_id)
        doing = f"Volume {volume_id} could not be unmanaged"
        with self.open_pool() as pool, self._errors(doing):
            self.check_unused(pool, copy)
            _remove(pool, copy)
            self._forget_copy(pool, volume_id)
            if former in list_ids(pool):
                self._remove_snapshots(pool, former)
            rename(pool, former, name)
            if _exists(pool, former):
                # An image was to be managed under this name, and was not.
                _remove_id(pool, former)

    def copies(self) -> Sequence[str]:
        """Return the names of incomplete copies."""
        with self.open_pool() as pool, self._errors("The images could not be listed"):
            names = bindings.load().rbd.RBD().list(pool)
        return [name for name in names if name.startswith(self._copy_name(""))]

    def check_unused(self, pool: Any, name: str) -> None:
        """Refuse an image that a client has open.

        A manager has images open for short times, or, if it was killed, until its watches expire.

        :raises BackendError: final=True
        """
        deadline = time.monotonic() + WATCH_TIMEOUT
        while watches := list_watches(pool, name):
            others = self._foreign(watches)
            if others or time.monotonic() > deadline:
                address = (others or watches)[0].address
                raise exception.BackendError(
                    f"Image {name} is in use by the client {address}.", final=True
                )
            time.sleep(_POLL_INTERVAL)

    def list_foreign_watches(self, pool: Any, name: str) -> Sequence[Watch]:
        """List the clients that have an image open, without managers and those that died."""
        watches = list_watches(pool, name)
        return self._foreign(watches) if watches else ()

    def _foreign(self, watches: Sequence[Watch]) -> Sequence[Watch]:
        own = self._cluster.entity
        users = {session.client_id: session.entity for session in self._cluster.sessions()}
        return [watch for watch in watches if users.get(watch.client_id, own) != own]

    def _copy_name(self, volume_id: str) -> str:
        return f"{self._naming.prefix}copy.{volume_id}"

    def _branch(
        self, pool: Any, volume: base.VolumeRef, source_id: str, source: str, copy: str
    ) -> None:
        """Make an image that shares the data of a snapshot of the source."""
        rbd = bindings.load().rbd
        try:
            with open_image(pool, source) as image:
                if copy not in snapshot_names(image):
                    if image.size() > volume.size_gib * GIB:
                        raise exception.BackendError(
                            f"Volume {source_id} is larger than {volume.size_gib} GiB by now.",
                            final=True,
                        )
                    base.check_fencing()
                    pool.write_full(copy, source.encode())
                    base.check_fencing()
                    image.create_snap(copy)
        except rbd.ImageNotFound as error:
            raise _missing(source_id, source) from error
        base.check_fencing()
        rbd.RBD().clone(pool, source, copy, pool, copy)
        _check_id(pool, copy)

    def _forget_copy(self, pool: Any, volume_id: str) -> None:
        """Remove the snapshot of a copy that is complete or gone, and the record."""
        copy, lib = self._copy_name(volume_id), bindings.load()
        try:
            source = pool.read(copy).decode()
        except lib.rados.ObjectNotFound:
            return
        with contextlib.suppress(lib.rbd.ImageNotFound), open_image(pool, source) as image:
            if copy in snapshot_names(image):
                base.check_fencing()
                image.remove_snap(copy)
        base.check_fencing()
        with contextlib.suppress(lib.rados.ObjectNotFound):
            pool.remove_object(copy)

    def _remove_snapshots(self, pool: Any, name: str) -> None:
        """Remove the snapshots of copies that were given up."""
        with open_image(pool, name, read_only=True) as image:
            names = snapshot_names(image)
            found = [item for item in names if item.startswith(self._copy_name(""))]
        if found:
            with open_image(pool, name) as image:
                for snapshot in found:
                    base.check_fencing()
                    image.remove_snap(snapshot)


def _complete(pool: Any, copy: str, size_gib: int) -> None:
    with open_image(pool, copy) as image:
        grow(image, size_gib)
        if image.overlap():
            # It may take long, and a fenced process does no harm with it: the data stays the
            # same.
            base.check_fencing()
            image.flatten()


def _check_id(pool: Any, name: str) -> None:
    """Delete a new image if the names of its objects begin like those of another one.

    Capabilities give access to the objects whose names begin with that of the header.
    """
    if other := find_similar(list_ids(pool), name):
        _remove(pool, name)
        raise exception.BackendError(
            f"The ids of two images, {name} and {other}, cannot be told apart. Try again.",
            final=True,
        )


class Pools:
    """The pools of a backend.

    :param name: of the backend
    :param naming: of the volumes
    """

    def __init__(self, name: str, cluster: Cluster, naming: Naming) -> None:
        self._name = name
        self._images = {pool: Images(cluster, naming, pool) for pool in naming.pools}

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
    base.check_fencing()
    bindings.load().rbd.RBD().create(pool, name, size_gib * GIB)


def _remove(pool: Any, name: str) -> None:
    base.check_fencing()
    rbd = bindings.load().rbd
    with contextlib.suppress(rbd.ImageNotFound):
        rbd.RBD().remove(pool, name)


def grow(image: Any, size_gib: int) -> None:
    """Extend an open image, unless it has that size."""
    if image.size() < size_gib * GIB:
        base.check_fencing()
        image.resize(size_gib * GIB)


def _exists(pool: Any, name: str) -> bool:
    try:
        pool.stat(f"rbd_id.{name}")
    except bindings.load().rados.ObjectNotFound:
        return False
    return True


@contextlib.contextmanager
def open_image(pool: Any, name: str, *, read_only: bool = False) -> Iterator[Any]:
    """Open an image; for reading alone, it is not watched."""
    image = bindings.load().rbd.Image(pool, name, read_only=read_only)
    try:
        yield image
    finally:
        image.close()


def list_watches(pool: Any, name: str) -> list[Watch]:
    """List the clients that have an image open; none if it does not exist."""
    try:
        with open_image(pool, name, read_only=True) as image:
            return [Watch(watch["id"], watch["addr"]) for watch in image.watchers_list()]
    except bindings.load().rbd.ImageNotFound:
        return []


def _lock_owner(pool: Any, name: str) -> Watch | None:
    """Return the client that has the exclusive lock of an image, if there are both.

    Source: librbd/ManagedLock.cc; other locks, which users make, have other tags.
    """
    try:
        with open_image(pool, name, read_only=True) as image:
            found = image.list_lockers() or {"tag": None}
    except bindings.load().rbd.ImageNotFound:
        return None
    if found["tag"] != _LOCK_TAG:
        return None
    ((client, _cookie, address),) = found["lockers"]
    return Watch(int(client.removeprefix("client.")), address)


def snapshot_names(image: Any) -> list[str]:
    """List snapshots, without those that are removed with their last copy."""
    user = bindings.load().rbd.RBD_SNAP_NAMESPACE_TYPE_USER
    return [item["name"] for item in image.list_snaps() if item["namespace"] == user]


def list_ids(pool: Any) -> dict[str, str]:
    """Return the ids of all images of a pool, by their names."""
    return {image["name"]: image["id"] for image in bindings.load().rbd.RBD().list2(pool)}


def find_similar(ids: Mapping[str, str], name: str) -> str:
    """Return another image the names of whose objects begin like those of an image; "": none.

    Capabilities give access to the objects whose names begin with that of the header.
    """
    own = ids.get(name, "")
    for other, other_id in ids.items():
        # The first format of images has no ids.
        shorter, longer = sorted((own, other_id), key=len)
        if other != name and shorter and longer.startswith(shorter):
            return other
    return ""


def rename(pool: Any, source: str, target: str) -> None:
    """Rename an image, if it exists; also one whose renaming was interrupted.

    librbd adds the object with the id under the new name, changes the directory of images, and
    removes the object of the old name.

    Source: librbd/operation/RenameRequest.h.
    """
    ids = list_ids(pool)
    if target in ids and source not in ids and _read_id(pool, source) == ids[target]:
        _remove_id(pool, source)
    if source in ids:
        if target not in ids and _read_id(pool, target) == ids[source]:
            _remove_id(pool, target)
        base.check_fencing()
        bindings.load().rbd.RBD().rename(pool, source, target)


def _read_id(pool: Any, name: str) -> str:
    """Return the id in the object of a name; "": there is none.

    Source: cls/rbd/cls_rbd.cc, set_id: the length of the text in 4 bytes, and the text.
    """
    try:
        return str(pool.read(f"rbd_id.{name}")[4:].decode())
    except bindings.load().rados.ObjectNotFound:
        return ""


def _remove_id(pool: Any, name: str) -> None:
    base.check_fencing()
    pool.remove_object(f"rbd_id.{name}")


def _keep(sizes: dict[str, int], volume_id: str) -> Any:
    """Return a function that stores the size in an answer, if the image was not deleted."""

    def answered(_request: Any, answer: bytes | None) -> None:
        if answer and len(answer) == _SIZE.size:
            sizes[volume_id] = _SIZE.unpack(answer)[1]

    return answered


def _missing(volume_id: str, name: str) -> exception.BackendError:
    return exception.BackendError(
        f"Volume {volume_id} is missing: there is no image {name}.", final=True
    )
