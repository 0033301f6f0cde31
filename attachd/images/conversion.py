# SPDX-License-Identifier: Apache-2.0
"""The way of an image into a volume: as it is, or converted by qemu-img.

An image that has to be converted is first copied into a file of this machine.  qemu-img reads it
in a process that reaches nothing but this file and the one for the result, and has limits of
memory, time and size.  Neither file has a name, so that a process that dies leaves nothing.
"""

from collections.abc import Callable, Iterable
import errno
import os
import tempfile
from typing import Final, Protocol

from oslo_utils import units

from attachd.images import checks, qemu_img
from attachd.images.checks import CheckedData
from attachd.images.glance import CHUNK, Image, ImageApi

_INTACT: Final = frozenset({0, 3})
"""Exit codes of qemu-img check: no errors; clusters that are not used.

Source: qemu-img(1), check.
"""
_ZEROS: Final = bytes(CHUNK)
_DOWNLOADED: Final = 0.5
"""How much of a conversion is done when the image is here."""


class Target(Protocol):
    """A volume that is written; it reads as zeros where nothing was."""

    def write(self, offset: int, data: bytes) -> None:
        """Write some bytes."""


Step = Callable[[float], None]
"""Called with the fraction that is done, about once a second at least; it raises to end it."""


def write_image(api: ImageApi, image: Image, target: Target, size_gib: int, step: Step) -> None:
    """Write an image to a new volume.

    :param image: that checks.check_usable() accepts
    :param size_gib: of the volume
    :raises ImageNotFound, ImageUnacceptable: no volume can be made of it
    :raises Unavailable: the Image service does not answer, or stops in the middle
    :raises HostError: this machine cannot convert it
    """
    with api.download(image.id) as chunks:
        data = CheckedData(image, chunks)
        if image.disk_format in checks.PLAIN:
            _copy(data, target, image.size, step)
        else:
            _convert(image, data, target, size_gib, step)


def _copy(chunks: Iterable[bytes], target: Target, size: int, step: Step) -> None:
    """Write data without its zeros."""
    offset = 0
    for chunk in chunks:
        if not is_zero(chunk):
            target.write(offset, chunk)
        offset += len(chunk)
        step(offset / size)


def is_zero(chunk: bytes) -> bool:
    """Return whether a chunk is all zeros."""
    return chunk == _ZEROS if len(chunk) == len(_ZEROS) else not any(chunk)


class File:
    """A file without a name."""

    def __init__(self, file: int) -> None:
        self.file = file

    def write(self, offset: int, data: bytes) -> None:
        """Write some bytes, all of them."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self.file, view, offset)
            offset, view = offset + written, view[written:]


def _convert(image: Image, data: CheckedData, target: Target, size_gib: int, step: Step) -> None:
    """Write an image by way of two files of this machine."""
    with (
        qemu_img.space_for(image, step) as space,
        tempfile.TemporaryFile(dir=space.folder) as source,
        tempfile.TemporaryFile(dir=space.folder) as result,
    ):
        os.ftruncate(source.fileno(), image.size)
        _copy(
            data, File(source.fileno()), image.size, lambda done: space.check(done * _DOWNLOADED)
        )
        data.check_content(size_gib)
        os.ftruncate(result.fileno(), size_gib * units.Gi)
        _run_qemu_img(image, (source.fileno(), result.fileno()), size_gib, space)
        _copy_data(result.fileno(), target, size_gib * units.Gi, step)


def _run_qemu_img(
    image: Image, files: tuple[int, int], size_gib: int, space: qemu_img.Space
) -> None:
    """Convert one file to the other; the result is as long as the volume already."""
    name, (source, result) = qemu_img.name_of(image.disk_format), files
    program = qemu_img.QemuImg(space, source, result, size_gib * units.Gi)
    # What a truncated image lacks would be converted to zeros.
    if name == "qcow2" and program.run("check", "-q", "-f", name, program.source) not in _INTACT:
        raise checks.unacceptable(image, "it is damaged, as qemu-img says.")
    line = (*qemu_img.CONVERT, "-n", "--target-is-zero", "-f", name, "-O", "raw")
    if program.run(*line, program.source, program.result):
        raise checks.unacceptable(image, "qemu-img cannot convert it.")


def _copy_data(file: int, target: Target, size: int, step: Step) -> None:
    """Write what a file has, without its holes."""
    end = 0
    while (start := _next_data(file, end)) is not None:
        end = os.lseek(file, start, os.SEEK_HOLE)
        for offset in range(start, end, CHUNK):
            chunk = os.pread(file, min(CHUNK, end - offset), offset)
            if not is_zero(chunk):
                target.write(offset, chunk)
            step(_DOWNLOADED + (1 - _DOWNLOADED) * offset / size)


def _next_data(file: int, offset: int) -> int | None:
    try:
        return os.lseek(file, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # no data from here on
            return None
        raise
