# SPDX-License-Identifier: Apache-2.0
"""The way of a volume into an image: as it is, or converted by qemu-img."""

from collections.abc import Callable, Iterator
import os
import tempfile
from typing import Final, Protocol

from oslo_utils import units

from attachd.images import checks, conversion, qemu_img
from attachd.images.glance import ACTIVE, CHUNK, Image, ImageApi

_READ: Final = 0.5
"""How much of a conversion is done when the volume is read."""

_OVERHEAD: Final = 64 * units.Mi
"""Bytes that a format may need beside the data, and one in 64 of these."""


class Source(Protocol):
    """A volume that is read."""

    def read(self, offset: int, length: int) -> bytes:
        """Return some bytes."""


Step = Callable[[float], None]


def upload_volume(api: ImageApi, image_id: str, source: Source, size_gib: int, step: Step) -> None:
    """Send the data of a volume for an image that waits for it; none if it has been sent.

    :raises ImageNotFound: the image is gone
    :raises ImageUnacceptable: the Image service refuses the data
    :raises Unavailable: it does not answer, or stops in the middle
    :raises HostError: this machine cannot convert the data
    """
    image, size = api.get(image_id), size_gib * units.Gi
    if image.status == ACTIVE:  # A manager was killed when it had sent all of it.
        return
    if image.disk_format in checks.PLAIN:
        api.upload(image_id, _read_volume(source, size, step), size)
        return
    with (
        qemu_img.space_for(image, step) as space,
        tempfile.TemporaryFile(dir=space.folder) as data,
        tempfile.TemporaryFile(dir=space.folder) as result,
    ):
        os.ftruncate(data.fileno(), size)
        _copy(_read_volume(source, size, lambda done: space.check(done * _READ)), data.fileno())
        _run_qemu_img(image, (data.fileno(), result.fileno()), size, space)
        length = os.fstat(result.fileno()).st_size
        api.upload(image_id, _read_file(result.fileno(), length, step), length)


def _read_volume(source: Source, size: int, step: Step) -> Iterator[bytes]:
    for offset in range(0, size, CHUNK):
        step(offset / size)
        yield source.read(offset, min(CHUNK, size - offset))


def _copy(chunks: Iterator[bytes], file: int) -> None:
    """Write data without its zeros."""
    target = conversion.File(file)
    for number, chunk in enumerate(chunks):
        if not conversion.is_zero(chunk):
            target.write(number * CHUNK, chunk)


def _run_qemu_img(image: Image, files: tuple[int, int], size: int, space: qemu_img.Space) -> None:
    program = qemu_img.QemuImg(space, *files, size + size // 64 + _OVERHEAD)
    name = qemu_img.name_of(image.disk_format)
    line = (*qemu_img.CONVERT, "-f", "raw", "-O", name, program.source, program.result)
    if program.run(*line):
        raise checks.unacceptable(image, f"qemu-img cannot convert the volume to {name}.")


def _read_file(file: int, size: int, step: Step) -> Iterator[bytes]:
    for offset in range(0, size, CHUNK):
        step(_READ + (1 - _READ) * offset / size)
        yield os.pread(file, CHUNK, offset)
