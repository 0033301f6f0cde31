# SPDX-License-Identifier: Apache-2.0
"""The check that the header of a volume's image is the one that is stored; for the rbd driver."""

from collections.abc import Callable, Collection, Mapping, Sequence
import contextlib
import struct
import types
from typing import Any, Final

from oslo_log import log

from attachd import exception
from attachd.ceph import bindings, image_header, object_names
from attachd.drivers import base
from attachd.drivers.rbd.images import GIB, Images, Pools
from attachd.drivers.rbd.users import Naming, User

LOG = log.getLogger(__name__)

_NUMBER: Final = struct.Struct("<Q")
_OBJECT_MAP: Final = 8


class HeaderCheck:
    """Checks headers before images are used, and writes changed ones anew.

    :param list_users: the users of a volume's attachments
    """

    def __init__(
        self, pools: Pools, naming: Naming, list_users: Callable[[str], Sequence[User]]
    ) -> None:
        self._pools = pools
        self._naming = naming
        self._list_users = list_users

    def check(self, volume: base.VolumeRef, *other_sizes_gib: int) -> image_header.Stored:
        """Compare the header of an image with what is stored; write it anew if no host uses it.

        :param other_sizes_gib: which it may have as well, after an extension was interrupted
        :returns: what is stored
        :raises BackendError: it was changed by a host, and hosts have access
        """
        images, name = self._pools.find(volume), self._naming.image(volume.id)
        stored = self._stored(images, volume)
        sizes = {size_gib * GIB for size_gib in (volume.size_gib, *other_sizes_gib)}
        with images.open_pool() as pool, images.errors(f"Image {name} could not be checked"):
            keys, lockers = image_header.read_with_lockers(pool, stored["id"])
            changes = [*image_header.find_changes(stored, keys, sizes)]
            if not changes:
                # All clients were ended, but a host can leave a lock that no client can break.
                if lockers and not self._list_users(volume.id):
                    _remove_lock(pool, stored["id"])
                return stored
            if self._list_users(volume.id):
                raise changed(volume.id, name, changes)
            LOG.warning(
                "Volume %s: the header of its image was changed by a host: %s; it is written anew",
                volume.id,
                ", ".join(changes)[:200],
            )
            self._write(pool, images, stored, volume, keys)
        return stored

    def check_releasable(self, volume: base.VolumeRef) -> None:
        """Refuse a volume that is exported; leave no change or snapshot of a host in its image.

        Of a volume that was not completely managed nothing is stored.
        """
        self.check_not_exported(volume)
        images = self._pools.find(volume)
        if not volume.provider or not images.find(volume.id):
            return
        stored = self.check(volume)
        with images.open_pool() as pool, images.errors(f"Volume {volume.id} was not checked"):
            keys = image_header.read(pool, stored["id"])
            if image_header.snapshots(keys):
                self._write(pool, images, stored, volume, keys)

    def check_not_exported(self, volume: base.VolumeRef) -> None:
        """Refuse a volume whose attachments have users."""
        if exported := self._list_users(volume.id):
            raise exception.BackendError(
                f"Volume {volume.id} is still exported: there is the user {exported[0].entity}.",
                final=True,
            )

    def _stored(self, images: Images, volume: base.VolumeRef) -> image_header.Stored:
        """Return what is stored of the image of a volume; raises BackendError if it is another."""
        image, stored = images.find(volume.id), volume.provider.get("image")
        name = self._naming.image(volume.id)
        if image is None:
            raise exception.BackendError(
                f"Volume {volume.id} is missing: there is no image {name}.", final=True
            )
        if not stored or stored["id"] != image.id:
            raise exception.BackendError(
                f"Volume {volume.id}: image {name} is not the one whose header is in the "
                "database. Restore the image, or unmanage the volume and manage its image.",
                final=True,
            )
        return image_header.Stored(id=stored["id"], header=dict(stored["header"]))

    def _write(
        self,
        pool: Any,
        images: Images,
        stored: image_header.Stored,
        volume: base.VolumeRef,
        keys: Collection[str],
    ) -> None:
        """Write a header anew, with the snapshots of the volume and of copies in progress.

        :param keys: that the header has
        """
        if image_header.UNFINISHED not in keys:
            present = image_header.snapshots(dict.fromkeys(keys, b""))
            images.views.note_lost(pool, stored["id"], present)
        write_with_snapshots(pool, images, stored, volume.size_gib * GIB)


def write_with_snapshots(
    pool: Any, images: Images, stored: image_header.Stored, size_bytes: int
) -> None:
    """Replace all keys of a header by those that are stored and those of its snapshots.

    Without the snapshots the header counts as changed, so that no host gets access to it.
    """
    write_anew(pool, stored, size_bytes, {image_header.UNFINISHED: b"1"})
    images.views.add_snapshots(pool, stored["id"])
    with bindings.load().rados.WriteOpCtx() as change:
        pool.remove_omap_keys(change, (image_header.UNFINISHED,))
        base.check_still_owner()
        pool.operate_write_op(change, object_names.header_name(stored["id"]))


def write_anew(
    pool: Any,
    stored: image_header.Stored,
    size_bytes: int,
    more: Mapping[str, bytes] = types.MappingProxyType({}),
) -> None:
    """Replace all keys of a header by those that are stored, without snapshots and locks.

    The object map is not believed any more: the next client looks for each object.

    :param more: other keys
    """
    kept = image_header.values(stored)
    flags = image_header.MAP_INVALID if image_header.features(kept) & _OBJECT_MAP else 0
    numbers = {image_header.SIZE: size_bytes, image_header.LATEST: 0, "flags": flags}
    kept |= {key: _NUMBER.pack(number) for key, number in numbers.items()} | {**more}
    with bindings.load().rados.WriteOpCtx() as change:
        change.new(0)  # unless it exists
        pool.clear_omap(change)
        pool.set_omap(change, tuple(kept), tuple(kept.values()))
        base.check_still_owner()
        pool.operate_write_op(change, object_names.header_name(stored["id"]))
    _remove_lock(pool, stored["id"])


def _remove_lock(pool: Any, image_id: str) -> None:
    with contextlib.suppress(bindings.load().rados.Error):  # There is no lock.
        base.check_still_owner()
        pool.rm_xattr(object_names.header_name(image_id), image_header.LOCK)


def changed(volume_id: str, name: str, keys: Collection[str]) -> exception.BackendError:
    """Return the error of an image that must not be opened."""
    return exception.BackendError(
        f"Volume {volume_id}: the header of image {name} was changed by a host: "
        f"{', '.join(sorted(keys))[:200]}. Detach the volume from all hosts: then the header is "
        "written anew before its next use.",
        final=True,
    )
