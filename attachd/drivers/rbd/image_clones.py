# SPDX-License-Identifier: Apache-2.0
"""Volumes of images that the Image service keeps in the cluster itself; for the rbd driver.

Where an image lies is a claim: users of the Image service can register locations, and give their
images what they like for one.  So an image is cloned only if the pool is one of rbd_image_pools,
and if the name of the RBD image is the id of the image, as the Image service itself names it: this
is no volume, and no image of another user.

The clone is made under the name of a copy and flattened, see copies.py: a key of a host reaches
one image and no parent.

Source: glance_store, the store rbd.
"""

from collections.abc import Mapping
import contextlib
from typing import Any, Final, NamedTuple
import urllib.parse

from oslo_config import cfg
from oslo_log import log

from attachd import exception
from attachd.ceph import bindings
from attachd.drivers import abilities, base
from attachd.drivers.rbd.cluster import Cluster
from attachd.drivers.rbd.images import Pools

LOG = log.getLogger(__name__)

OPTIONS: Final = (
    cfg.ListOpt(
        "rbd_image_pools",
        default=[],
        help="The pools in which the Image service keeps its images, if it uses this cluster. "
        "Volumes of raw images there are copied inside of the cluster, without the Image service. "
        "The cephx user rbd_user needs 'profile rbd-read-only pool=...' for them. Empty: the "
        "manager reads all images from the Image service.",
    ),
)

_SCHEME: Final = "rbd://"
_PARTS: Final = 4


class Location(NamedTuple):
    """Where an image is said to be."""

    fsid: str
    pool: str
    image: str
    snapshot: str


def parse(url: str) -> Location | None:
    """Return the location of a URL; None: it is none of a snapshot in a pool."""
    parts = [urllib.parse.unquote(part) for part in url.removeprefix(_SCHEME).split("/")]
    if not url.startswith(_SCHEME) or len(parts) != _PARTS or not all(parts):
        return None
    return Location(*parts)


class ImageClones(abilities.CloneImage):
    """The ability of the driver, which sets the attributes."""

    options: cfg.ConfigOpts.GroupAttr
    storage_ids: Mapping[str, str]
    _cluster: Cluster
    _pools: Pools

    def check_image_pools(self) -> None:
        """Check that the pools of images are there and can be read.

        :raises BackendError: naming the option to set
        """
        rbd = bindings.load().rbd
        for pool in self.options.rbd_image_pools:
            try:
                with self._cluster.pool(pool) as ioctx, self._cluster.errors("It was not read"):
                    rbd.RBD().list2(ioctx)
            except exception.BackendUnreachable:
                raise
            except exception.BackendError as error:
                raise exception.BackendError(
                    f"rbd_image_pools: pool {pool!r} cannot be read. It has to exist, and "
                    f"{self._cluster.entity} needs 'profile rbd-read-only pool={pool}'.",
                    final=True,
                ) from error
        self.clones_images = bool(self.options.rbd_image_pools)

    def clone_image(
        self, volume: base.VolumeRef, image: abilities.StoredImage
    ) -> dict[str, Any] | None:
        """Clone the first location that can be true, and flatten the clone."""
        images = self._pools.find(volume)
        for url in image.locations:
            location = parse(url)
            reason = self._find_reason(location, image)
            if reason or location is None:
                LOG.info("Image %s is not cloned of %.200r: %s", image.id, url, reason)
                continue
            LOG.info("Image %s is cloned for volume %s", image.id, volume.id)
            with self._cluster.pool(location.pool) as parents:
                return images.clone_image(volume, parents, (location.image, location.snapshot))
        return None

    def _find_reason(self, location: Location | None, image: abilities.StoredImage) -> str:
        """Return why an image is not cloned of a location; "": it is."""
        if location is None:
            return "this is no snapshot of Ceph"
        if location.fsid not in {it.partition("/")[0] for it in self.storage_ids.values()}:
            return "this is another cluster"
        if location.pool not in self.options.rbd_image_pools:
            return "the pool is none of rbd_image_pools"
        if location.image != image.id:
            return "the RBD image does not have the id of the image for its name"
        return self._find_mismatch(location, image)

    def _find_mismatch(self, location: Location, image: abilities.StoredImage) -> str:
        size = self._find_size(location)
        if size is None:
            return "there is no such snapshot"
        return "" if size == image.size_bytes else f"it has {size} bytes"

    def _find_size(self, location: Location) -> int | None:
        """Return the bytes of a snapshot; None: there is none."""
        rbd, name = bindings.load().rbd, location.image
        doing = f"Image {location.pool}/{name} could not be opened"
        with self._cluster.pool(location.pool) as pool, self._cluster.errors(doing):
            try:
                image = rbd.Image(pool, name, snapshot=location.snapshot, read_only=True)
            except rbd.ImageNotFound:
                return None
            with contextlib.closing(image):
                return int(image.size())
