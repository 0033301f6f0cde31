# SPDX-License-Identifier: Apache-2.0
"""The data of images, which the manager itself reads and writes; for the rbd driver.

librbd writes to new images, to whose headers no host has had access.  Data is read from the
objects of an image without its header: their names and sizes follow from what is stored of it.
"""

from collections.abc import Iterator
import contextlib
from typing import Any, Final

from attachd import exception
from attachd.ceph import bindings, image_header, object_names
from attachd.drivers import base
from attachd.drivers.abilities import DirectAccess, VolumeData
from attachd.drivers.rbd.header_check import HeaderCheck
from attachd.drivers.rbd.images import Images, Pools
from attachd.drivers.rbd.users import Naming

_STRIPED: Final = frozenset({"stripe_unit", "stripe_count"})


class ObjectData(VolumeData):
    """The data of an image, read from its objects.

    :param pool: open
    """

    def __init__(self, pool: Any, stored: image_header.Stored) -> None:
        self._pool = pool
        self._prefix = object_names.data_prefix(stored["id"])
        self._object_size = 1 << image_header.order(image_header.values(stored))

    def read(self, offset: int, length: int) -> bytes:
        """Return some bytes: zeros where there is no object, and behind its end."""
        parts = []
        while length > 0:
            number, start = divmod(offset, self._object_size)
            count = min(length, self._object_size - start)
            parts.append(self._read_object(number, start, count).ljust(count, b"\0"))
            offset, length = offset + count, length - count
        return b"".join(parts)

    def _read_object(self, number: int, start: int, count: int) -> bytes:
        try:
            data: bytes = self._pool.read(f"{self._prefix}.{number:016x}", count, start)
        except bindings.load().rados.ObjectNotFound:
            return b""
        return data

    def write(self, offset: int, data: bytes) -> None:  # noqa: ARG002
        """Refuse to write.

        :raises BackendError: always
        """
        raise exception.BackendError("The image is open for reading.", final=True)


class ImageData(VolumeData):
    """The data of a new image, which librbd has open."""

    def __init__(self, image: Any) -> None:
        self._image = image

    def read(self, offset: int, length: int) -> bytes:
        """Return some bytes."""
        data: bytes = self._image.read(offset, length)
        return data

    def write(self, offset: int, data: bytes) -> None:
        """Write some bytes."""
        base.check_still_owner()
        self._image.write(data, offset)


@contextlib.contextmanager
def open_for_reading(
    images: Images, volume_id: str, stored: image_header.Stored
) -> Iterator[VolumeData]:
    """Open a volume for reading; its hosts may write meanwhile."""
    check_not_striped(volume_id, stored)
    with images.open_pool() as pool, images.errors(f"Volume {volume_id} could not be read"):
        yield ObjectData(pool, stored)


def check_not_striped(volume_id: str, stored: image_header.Stored) -> None:
    """Check that the data of a volume can be read.

    :raises BackendError: final=True, it is striped over its objects
    """
    if _STRIPED & stored["header"].keys():
        raise exception.BackendError(
            f"The data of volume {volume_id} is striped over its objects, which this service does "
            "not read.",
            final=True,
        )


@contextlib.contextmanager
def open_new(images: Images, volume_id: str, name: str) -> Iterator[VolumeData]:
    """Open a new volume for writing."""
    doing = f"Volume {volume_id} could not be written"
    with images.open_pool() as pool, images.errors(doing):
        image = bindings.load().rbd.Image(pool, name)
        try:
            yield ImageData(image)
            image.flush()
        finally:
            image.close()


class ImageAccess(DirectAccess):
    """The ability of the driver, which sets the attributes."""

    _pools: Pools
    _headers: HeaderCheck
    _naming: Naming

    def open_data(
        self, volume: base.VolumeRef, mode: base.AccessMode
    ) -> contextlib.AbstractContextManager[VolumeData]:
        """Open the objects of the image for reading, or a new image for writing."""
        images, stored = self._pools.find(volume), self._headers.check(volume)
        if mode == "ro":
            return open_for_reading(images, volume.id, stored)
        return open_new(images, volume.id, self._naming.image(volume.id))
