# SPDX-License-Identifier: Apache-2.0
"""The check that the header of a volume's image is the one that is stored; for the rbd driver."""

from collections.abc import Callable, Sequence
from typing import Any

from oslo_log import log

from attachd import exception
from attachd.drivers import base
from attachd.drivers.rbd import header
from attachd.drivers.rbd.images import GIB, Images, Pools
from attachd.drivers.rbd.users import Naming, User

LOG = log.getLogger(__name__)


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

    def check(self, volume: base.VolumeRef, *other_sizes_gib: int) -> header.Stored:
        """Compare the header of an image with what is stored; write it anew if no host uses it.

        :param other_sizes_gib: which it may have as well, after an extension was interrupted
        :returns: what is stored
        :raises BackendError: it was changed by a host, and hosts have access
        """
        images, name = self._pools.find(volume), self._naming.image(volume.id)
        stored = self._stored(images, volume)
        sizes = {size_gib * GIB for size_gib in (volume.size_gib, *other_sizes_gib)}
        with images.open_pool() as pool, images.errors(f"Image {name} could not be checked"):
            changes = [*header.find_changes(stored, header.read(pool, stored["id"]), sizes)]
            if not changes:
                return stored
            if self._list_users(volume.id):
                raise header.changed(volume.id, name, changes)
            LOG.warning(
                "Volume %s: the header of its image was changed by a host: %s; it is written anew",
                volume.id,
                ", ".join(changes)[:200],
            )
            self._write(pool, images, stored, volume)
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
            if header.snapshots(header.read(pool, stored["id"])):
                self._write(pool, images, stored, volume)

    def check_not_exported(self, volume: base.VolumeRef) -> None:
        """Refuse a volume whose attachments have users."""
        if exported := self._list_users(volume.id):
            raise exception.BackendError(
                f"Volume {volume.id} is still exported: there is the user {exported[0].entity}.",
                final=True,
            )

    def _stored(self, images: Images, volume: base.VolumeRef) -> header.Stored:
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
        return header.Stored(id=stored["id"], header=dict(stored["header"]))

    def _write(
        self, pool: Any, images: Images, stored: header.Stored, volume: base.VolumeRef
    ) -> None:
        """Write a header anew, with the snapshots of copies in progress."""
        header.write_anew(pool, stored, volume.size_gib * GIB)
        images.add_snapshots(pool, stored["id"])
