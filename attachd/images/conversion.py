# SPDX-License-Identifier: Apache-2.0
"""The way of an image into a volume: as it is, or converted by qemu-img.

An image that has to be converted is first copied into a file of this machine.  qemu-img reads it
in a process that reaches nothing but this file and the one for the result, and has limits of
memory, time and size.  Neither file has a name, so that a process that dies leaves nothing.
"""

from collections.abc import Callable, Iterable, Iterator
import contextlib
import errno
import os
from pathlib import Path
import tempfile
import time
from typing import Final, Protocol

from oslo_log import log
from oslo_utils import units

from attachd import exception
from attachd.conf import CONF
from attachd.images import checks
from attachd.images.checks import CheckedData
from attachd.images.glance import CHUNK, Image, ImageApi
from attachd.linux import commands, sandbox

LOG = log.getLogger(__name__)

_QEMU_NAMES: Final = {"vhd": "vpc"}
"""Formats that QEMU knows by another name."""

_INTACT: Final = frozenset({0, 3})
"""Exit codes of qemu-img check: no errors; clusters that are not used.

Source: qemu-img(1), check.
"""
_ZEROS: Final = bytes(CHUNK)
_PRIVATE: Final = 0o700
_DOWNLOADED: Final = 0.5
"""How much of a conversion is done when the image is here."""


class Target(Protocol):
    """A volume that is written; it reads as zeros where nothing was."""

    def write(self, offset: int, data: bytes) -> None:
        """Write some bytes."""


Step = Callable[[float], None]
"""Called with the fraction that is done, about once a second at least; it raises to end it."""


def write_image(api: ImageApi, image_id: str, target: Target, size_gib: int, step: Step) -> None:
    """Write an image to a new volume.

    :param size_gib: of the volume
    :raises ImageNotFound, ImageUnacceptable, InvalidInput: no volume can be made of it
    :raises Unavailable: the Image service does not answer, or stops in the middle
    :raises HostError: this machine cannot convert it
    """
    image = api.get(image_id)
    checks.check_usable(image, size_gib)
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
        if not _is_zero(chunk):
            target.write(offset, chunk)
        offset += len(chunk)
        step(offset / size)


def _is_zero(chunk: bytes) -> bool:
    return chunk == _ZEROS if len(chunk) == len(_ZEROS) else not any(chunk)


class _File:
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
    folder = _prepare_folder()
    with (
        _map_full_disk(image),
        tempfile.TemporaryFile(dir=folder) as source,
        tempfile.TemporaryFile(dir=folder) as result,
    ):
        check = _SpaceCheck(folder, step)
        os.ftruncate(source.fileno(), image.size)
        _copy(data, _File(source.fileno()), image.size, lambda done: check(done * _DOWNLOADED))
        data.check_content(size_gib)
        os.ftruncate(result.fileno(), size_gib * units.Gi)
        _run_qemu_img(image, source.fileno(), result.fileno(), size_gib, check)
        _copy_data(result.fileno(), target, size_gib * units.Gi, step)


def _prepare_folder() -> Path:
    folder = Path(CONF.glance.conversion_dir or f"{CONF.state_path}/conversion")
    folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    return folder


class _SpaceCheck:
    """Ends a conversion before its files fill their file system."""

    def __init__(self, folder: Path, step: Step) -> None:
        self._folder = folder
        self._step = step

    def __call__(self, done: float) -> None:
        status = os.statvfs(self._folder)
        if status.f_bavail * status.f_frsize < CONF.glance.conversion_free_space * units.Gi:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._step(done)


@contextlib.contextmanager
def _map_full_disk(image: Image) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise exception.HostError(
                reason=f"Image {image.id} cannot be converted: {error}."
            ) from error
        raise exception.HostError(
            reason=f"Image {image.id} cannot be converted: the space for conversions "
            "([glance]conversion_dir) does not suffice."
        ) from error


def _run_qemu_img(
    image: Image, source: int, result: int, size_gib: int, check: Callable[[float], None]
) -> None:
    """Convert one file to the other; the result is as long as the volume already."""
    name = _QEMU_NAMES.get(str(image.disk_format), str(image.disk_format))
    confined = sandbox.Confinement(
        readable=(source,),
        writable=(result,),
        memory_bytes=CONF.glance.conversion_memory * units.Mi,
        cpu_seconds=CONF.glance.conversion_timeout,
        file_bytes=size_gib * units.Gi,
    )
    deadline = time.monotonic() + CONF.glance.conversion_timeout

    def on_wait() -> None:
        check(_DOWNLOADED)
        if time.monotonic() > deadline:
            raise checks.unacceptable(image, "its conversion takes too long.")

    def run(*arguments: str) -> int:
        line = confined.command_line(_find_qemu_img(), *arguments)
        ended = commands.run_long(line, on_wait, pass_fds=(source, result))
        if ended.exit_code:
            LOG.warning(
                *("Image %s: qemu-img %s ended with %d: %s", image.id, arguments[0]),
                *(ended.exit_code, ended.stderr),
            )
        return ended.exit_code

    paths = (f"/proc/self/fd/{source}", f"/proc/self/fd/{result}")
    # What a truncated image lacks would be converted to zeros.
    if name == "qcow2" and run("check", "-q", "-f", name, paths[0]) not in _INTACT:
        raise checks.unacceptable(image, "it is damaged, as qemu-img says.")
    if run("convert", "-n", "--target-is-zero", "-f", name, "-O", "raw", *paths):
        raise checks.unacceptable(image, "qemu-img cannot convert it.")


def _find_qemu_img() -> str:
    path = commands.which("qemu-img")
    if path is None:
        raise exception.HostError(reason="qemu-img (package qemu-utils) is not installed.")
    return path


def _copy_data(file: int, target: Target, size: int, step: Step) -> None:
    """Write what a file has, without its holes."""
    end = 0
    while (start := _next_data(file, end)) is not None:
        end = os.lseek(file, start, os.SEEK_HOLE)
        for offset in range(start, end, CHUNK):
            chunk = os.pread(file, min(CHUNK, end - offset), offset)
            if not _is_zero(chunk):
                target.write(offset, chunk)
            step(_DOWNLOADED + (1 - _DOWNLOADED) * offset / size)


def _next_data(file: int, offset: int) -> int | None:
    try:
        return os.lseek(file, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # no data from here on
            return None
        raise
