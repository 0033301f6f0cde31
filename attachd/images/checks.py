# SPDX-License-Identifier: Apache-2.0
"""Which images can become volumes, by what the Image service says of them and by their content.

What an image contains is chosen by its owner.  The format that the Image service names has to be
that of the content, and the content must lead to nothing outside of the image.

Source: oslo.utils, imageutils.format_inspector; OSSA-2024-001 (CVE-2024-32498).
"""

from collections.abc import Iterator
import hashlib
from typing import Final

from oslo_utils import units
from oslo_utils.imageutils import format_inspector

from attachd import exception
from attachd.conf import CONF
from attachd.images.glance import ACTIVE, Image

PLAIN: Final = frozenset({"raw", "iso"})
"""The formats whose data is that of the volume."""

_CONTENT_OF_PLAIN: Final = frozenset({"raw", "gpt", "iso"})
"""What the inspector calls the content of a plain image."""

_CONTAINERS: Final = frozenset({None, "bare"})
_HEADER: Final = 512
"""Bytes of the beginning of an image that are kept."""
_ENCRYPTION_METHOD: Final = slice(32, 36)
"""Where the header of a qcow2 file names its encryption.

Source: QEMU, docs/interop/qcow2.txt.
"""


def check_usable(image: Image, size_gib: int) -> None:
    """Check that a volume of a size can be made of an image.

    :raises InvalidInput: of the field "imageRef": the image is not active, or too large
    :raises ImageUnacceptable: its format is not supported, or it has a signature
    """
    reason = _find_reason(image, size_gib)
    if reason is not None:
        raise exception.InvalidInput(field="imageRef", value=image.id, reason=reason)
    if image.disk_format not in CONF.glance.disk_formats:
        raise unacceptable(
            image,
            f"its format is {image.disk_format}, and this service takes "
            f"{', '.join(CONF.glance.disk_formats)}.",
        )
    if image.container_format not in _CONTAINERS:
        raise unacceptable(image, f"it is in a container, {image.container_format}.")
    if image.is_signed and CONF.glance.signed_images == "refuse":
        raise unacceptable(image, "it has a signature, which this service cannot verify.")


def _find_reason(image: Image, size_gib: int) -> str | None:
    """Return why an image does not fit; None: it does."""
    if image.status != ACTIVE:
        return f"Image {image.id} is not active, its status is {image.status}."
    if not image.size:
        return f"Image {image.id} has no data."
    if image.size > size_gib * units.Gi:
        return (
            f"Size of specified image {_gib(image.size)}GB is larger than volume size "
            f"{size_gib}GB."
        )
    if image.min_disk > size_gib:
        return (
            f"Volume size {size_gib}GB cannot be smaller than the image minDisk size "
            f"{image.min_disk}GB."
        )
    if (image.virtual_size or 0) > size_gib * units.Gi:
        return (
            f"Image virtual size is {_gib(image.virtual_size or 0)}GB and doesn't fit in a volume "
            f"of size {size_gib}GB."
        )
    return None


def _gib(size: int) -> int:
    return -(-size // units.Gi)


def unacceptable(image: Image, reason: str) -> exception.ImageUnacceptable:
    """Return the error for an image that no volume can be made of."""
    return exception.ImageUnacceptable(image_id=image.id, reason=reason)


class CheckedData:
    """The data of an image: read in chunks, checked when it has been read.

    :param chunks: as ImageApi.download() yields them
    :ivar received: bytes so far
    """

    def __init__(self, image: Image, chunks: Iterator[bytes]) -> None:
        self._image = image
        expected = None if image.disk_format in PLAIN else image.disk_format
        self._inspected = format_inspector.InspectWrapper(chunks, expected)  # type: ignore[arg-type]
        self._header = b""
        self._digest, self._expected = _digest(image)
        self.received = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield the chunks.

        :raises ImageUnacceptable: size, hash, format or content are not as they have to be
        """
        try:
            for chunk in self._inspected:
                self.received += len(chunk)
                if self.received > self._image.size:
                    raise unacceptable(self._image, self._describe_size())
                if len(self._header) < _HEADER:
                    self._header += chunk[: _HEADER - len(self._header)]
                self._digest.update(chunk)
                yield chunk
        except format_inspector.ImageFormatError as error:
            raise unacceptable(self._image, f"{error}.") from error
        self._check()

    def _describe_size(self) -> str:
        return f"it has not the {self._image.size} bytes that the Image service names."

    def _check(self) -> None:
        if self.received != self._image.size:
            raise unacceptable(self._image, self._describe_size())
        if self._digest.hexdigest() != self._expected:
            raise unacceptable(self._image, "its data does not have its checksum.")
        _check_formats(self._image, self._inspected)

    def check_content(self, size_gib: int) -> None:
        """Check an image that is to be converted: that it leads to nothing else, and fits.

        :raises ImageUnacceptable: it does not
        """
        found = (self._inspected.formats or [])[0]
        try:
            found.safety_check()
        except (
            format_inspector.SafetyCheckFailed,
            format_inspector.ImageFormatError,
        ) as error:
            raise unacceptable(self._image, f"it is not safe: {error}.") from error
        if f"{found}" == "qcow2" and any(self._header[_ENCRYPTION_METHOD]):
            raise unacceptable(self._image, "it is encrypted.")
        if found.virtual_size > size_gib * units.Gi:
            raise unacceptable(
                self._image,
                f"its disk has {_gib(found.virtual_size)} GiB, and the volume {size_gib} GiB.",
            )


def _check_formats(image: Image, inspected: format_inspector.InspectWrapper) -> None:
    """Check that the content is of the format that the Image service names.

    :raises ImageUnacceptable: it is not
    """
    try:
        names = {str(found) for found in inspected.formats or ()}
    except format_inspector.ImageFormatError as error:
        raise unacceptable(image, f"{error}.") from error
    allowed = _CONTENT_OF_PLAIN if image.disk_format in PLAIN else {image.disk_format}
    if not names or not names <= allowed:
        raise unacceptable(
            image,
            f"its format is to be {image.disk_format}, and its content is "
            f"{', '.join(sorted(names)) or 'unknown'}.",
        )


def check_beginning(image: Image, data: bytes) -> None:
    """Check the format of a plain image by its first :data:`CHUNK` bytes.

    :raises ImageUnacceptable: it is not that which the Image service names
    """
    inspected = format_inspector.InspectWrapper(iter((data,)), None)  # type: ignore[arg-type]
    for _chunk in inspected:
        pass
    _check_formats(image, inspected)


def _digest(image: Image) -> tuple["hashlib._Hash", str]:
    """Return a digest and what it has to be at the end.

    :raises ImageUnacceptable: the Image service names no hash
    """
    if image.hash_algorithm in hashlib.algorithms_available and image.hash_value:
        return hashlib.new(str(image.hash_algorithm)), image.hash_value
    if image.checksum:
        return hashlib.md5(usedforsecurity=False), image.checksum
    raise unacceptable(image, "the Image service names no checksum of it.")
