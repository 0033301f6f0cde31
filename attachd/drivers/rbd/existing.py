# SPDX-License-Identifier: Apache-2.0
"""Existing images that become volumes, and volumes that become images again, without a copy.

An image is renamed: it keeps its id, by which its data is found.  It is described by what its
header says, and is not opened: users of other services could have written there what they liked.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attachd import exception
from attachd.ceph import bindings, image_header
from attachd.drivers import base, existing
from attachd.drivers.abilities import ManageableObject
from attachd.drivers.rbd import images, objects, users
from attachd.drivers.rbd.cluster import Cluster


class ExistingImages(existing.ExistingObjects):
    """The images that can become volumes.

    They are named "IMAGE" if the backend has one pool, and "POOL/IMAGE" in any case.

    :param check_releasable: raises BackendError if a volume is exported
    """

    def __init__(
        self,
        cluster: Cluster,
        naming: users.Naming,
        pools: images.Pools,
        check_releasable: Callable[[base.VolumeRef], None],
    ) -> None:
        self._cluster = cluster
        self._naming = naming
        self._pools = pools
        self._check_releasable = check_releasable

    def list(self) -> list[ManageableObject]:
        """List the volumes, and the other images of the pools, without copies and snapshots."""
        return [item for found in self._pools for item in self._list(found)]

    def _list(self, found: images.Images) -> Sequence[ManageableObject]:
        volumes = [self._managed(found, *item) for item in found.sizes().items()]
        with found.open_pool() as pool, self._errors("The images could not be listed"):
            ids = objects.list_ids(pool)
            own = set(found.views.list_names(pool))
            names = [name for name in ids if name not in own and not self._volume_id(name)]
            items = [self._describe(found, pool, ids, name) for name in sorted(names)]
        return volumes + [item for item in items if item]

    def get(self, reference: Mapping[str, str]) -> ManageableObject:
        """Return one of them, by the name of its image; see ExistingObjects.get()."""
        found, name = self._parse(reference)
        with found.open_pool() as pool, self._errors(f"Image {name} could not be opened"):
            ids = objects.list_ids(pool)
            volume_id = self._volume_id(name)
            if volume_id and name in ids:
                return self._managed(found, volume_id, found.sizes().get(volume_id, 0))
            if item := self._describe(found, pool, ids, name):
                return item
        raise existing.invalid(reference, f"Pool {found.pool} has no such image.")

    def manage(self, volume: base.VolumeRef, reference: Mapping[str, str]) -> dict[str, Any]:
        """Make a volume of an image, unless it is one already; see ManageExisting.manage()."""
        (found, name), target = self._parse(reference), self._naming.image(volume.id)
        doing = f"Volume {volume.id} could not be managed"
        if self._pools.get(volume.pool) not in {found, None}:
            raise exception.BackendError(f"{doing}: its pool is {volume.pool}.", final=True)
        with found.open_pool() as pool, self._errors(doing):
            if target not in objects.list_ids(pool):
                with existing.missing_is_final():
                    item = self.get(reference)
                existing.check_usable("image", item, volume.size_gib * images.GIB)
                found.clients.check_unused(pool, name)
        return found.manage(volume, name)

    def unmanage(self, volume: base.VolumeRef) -> None:
        """Rename a volume's image to ``PREFIXunmanaged.ID``; see ManageExisting.unmanage()."""
        self._check_releasable(volume)
        name = f"{self._naming.prefix}unmanaged.{volume.id}"
        self._pools.find(volume).release(volume.id, name)

    def _parse(self, reference: Mapping[str, str]) -> tuple[images.Images, str]:
        """Return the images of the pool that a reference names, and the name of the image."""
        text = reference.get(existing.KEY)
        pool, slash, name = text.rpartition("/") if isinstance(text, str) else ("", "", "")
        if not slash and len(self._pools) == 1:
            pool = self._naming.pools[0]
        found = self._pools.get(pool)
        if found and name:
            return found, name
        raise existing.invalid(
            reference,
            f"It must have the key {existing.KEY} with the name of an image, as POOL/IMAGE, and "
            f"the pool must be {' or '.join(self._naming.pools)}.",
        )

    def _name(self, found: images.Images, name: str) -> str:
        """Return the name of an image in references."""
        return f"{found.pool}/{name}" if len(self._pools) > 1 else name

    def _pool(self, found: images.Images) -> str:
        return found.pool if len(self._pools) > 1 else ""

    def _volume_id(self, name: str) -> str:
        return self._naming.volume_id(name) or ""

    def _managed(self, found: images.Images, volume_id: str, size: int) -> ManageableObject:
        name = self._name(found, self._naming.image(volume_id))
        return existing.managed(name, size, volume_id, self._pool(found))

    def _describe(
        self, found: images.Images, pool: Any, ids: Mapping[str, str], name: str
    ) -> ManageableObject | None:
        """Describe an image that is no volume; None: it does not exist."""
        if name not in ids:
            return None
        keys = image_header.read(pool, ids[name]) if ids[name] else {}
        reference = {existing.KEY: self._name(found, name)}
        refusal = self._refusal(found, keys, ids, name)
        return ManageableObject(
            reference, image_header.size(keys), refusal, pool=self._pool(found)
        )

    def _refusal(
        self,
        found: images.Images,
        keys: Mapping[str, bytes],
        ids: Mapping[str, str],
        name: str,
    ) -> str:
        """Return why an image cannot become a volume; "" if it can."""
        if not ids[name]:
            return "It has the first format of images: copy it with 'rbd migration'."
        if not image_header.size(keys):
            return "It is empty."
        if watches := found.clients.list_foreign(ids[name]):
            return f"It is in use: the client {watches[0].address} has it open."
        if snapshots := image_header.snapshots(keys):
            return f"It has snapshots ({', '.join(map(str, snapshots))}): delete them."
        if unusable := _unusable(keys, ids, name):
            return unusable
        return self._describe_users(users.Image(found.pool, name, ids[name]))

    def _describe_users(self, image: users.Image) -> str:
        """Return which users have capabilities for an image alone; "": none."""
        for entity, caps in self._cluster.users().items():
            if users.reaches(caps, image):
                return f"The cephx user {entity} may use it: delete it, or its capabilities."
        return ""

    def _errors(self, doing: str) -> Any:
        return self._cluster.errors(doing)


def _unusable(keys: Mapping[str, bytes], ids: Mapping[str, str], name: str) -> str:
    """Return why users of attachments could not use an image; "": they can."""
    if "parent" in keys:
        return "It shares data with another image: separate them with 'rbd flatten'."
    if features := image_header.features(keys) & ~image_header.FEATURES:
        names = ", ".join(_feature_names(features))
        return f"It has features that hosts of volumes cannot use: {names}."
    if key := image_header.find_unusable(ids[name], keys):
        return f"Its header has the key {key}, which hosts of volumes cannot use: copy it."
    if other := objects.find_similar(ids, name):
        return f"Its id begins like that of the image {other}: copy it."
    return ""


def _feature_names(features: int) -> list[str]:
    known = {
        value: name.removeprefix("RBD_FEATURE_").lower().replace("_", "-")
        for name, value in vars(bindings.load().rbd).items()
        if name.startswith("RBD_FEATURE_")
    }
    bits = (1 << number for number in range(features.bit_length()) if features >> number & 1)
    return [known.get(bit, hex(bit)) for bit in bits]
