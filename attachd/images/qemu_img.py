# SPDX-License-Identifier: Apache-2.0
"""The program qemu-img, confined to two files, and the space for them on this machine."""

from collections.abc import Callable, Iterator
import contextlib
import errno
import os
from pathlib import Path
import time
from typing import Final

from oslo_log import log
from oslo_utils import units

from attachd import exception
from attachd.conf import CONF
from attachd.images import checks
from attachd.images.glance import Image
from attachd.linux import commands, sandbox

LOG = log.getLogger(__name__)

_NAMES: Final = {"vhd": "vpc"}
"""Formats that QEMU knows by another name."""

CONVERT: Final = ("convert", "-m", "2")
"""The command that converts, with two requests at a time: each has a buffer of 2 MiB, and files of
this machine do not gain from more."""

_PRIVATE: Final = 0o700


def name_of(disk_format: str | None) -> str:
    """Return QEMU's name of a format of the Image service."""
    return _NAMES.get(str(disk_format), str(disk_format))


class Space:
    """The directory for the files of one conversion.

    :param step: called with the fraction that is done; it raises to end the conversion
    """

    def __init__(self, folder: Path, image: Image, step: Callable[[float], None]) -> None:
        self.folder = folder
        self.image = image
        self._step = step
        self._done = 0.0

    def check(self, done: float | None = None) -> None:
        """Check that the files leave enough space.

        :param done: the fraction; None: as before
        :raises OSError: they do not
        """
        status = os.statvfs(self.folder)
        if status.f_bavail * status.f_frsize < CONF.glance.conversion_free_space * units.Gi:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._done = self._done if done is None else done
        self._step(self._done)


@contextlib.contextmanager
def space_for(image: Image, step: Callable[[float], None]) -> Iterator[Space]:
    """Provide the space for the files of the block.

    :raises HostError: it does not suffice, or files cannot be made
    """
    folder = Path(CONF.glance.conversion_dir or f"{CONF.state_path}/conversion")
    try:
        folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        yield Space(folder, image, step)
    except OSError as error:
        reason = f"{error}."
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            reason = "the space for conversions ([glance]conversion_dir) does not suffice."
        raise exception.HostError(
            reason=f"Image {image.id} cannot be converted: {reason}"
        ) from error


class QemuImg:
    """The program, for two files that are open.

    :param file_bytes: the limit of the result
    :ivar source: the path by which it opens the file that it reads
    :ivar result: the path of the other one
    """

    def __init__(self, space: Space, source: int, result: int, file_bytes: int) -> None:
        self._space = space
        self._fds = (source, result)
        self.source, self.result = (f"/proc/self/fd/{fd}" for fd in self._fds)
        self._confined = sandbox.Confinement(
            readable=(source,),
            writable=(result,),
            memory_bytes=CONF.glance.conversion_memory * units.Mi,
            cpu_seconds=CONF.glance.conversion_timeout,
            file_bytes=file_bytes,
        )
        self._deadline = time.monotonic() + CONF.glance.conversion_timeout

    def run(self, *arguments: str) -> int:
        """Run it and return its exit code.

        :raises HostError: it is not installed
        :raises ImageUnacceptable: it takes too long
        """
        path = commands.which("qemu-img")
        if path is None:
            raise exception.HostError(reason="qemu-img (package qemu-utils) is not installed.")
        line = self._confined.command_line(path, *arguments)
        ended = commands.run_long(line, self._on_wait, pass_fds=self._fds)
        if ended.exit_code:
            LOG.warning(
                *("Image %s: qemu-img %s ended with %d: %s", self._space.image.id),
                *(arguments[0], ended.exit_code, ended.stderr),
            )
        return ended.exit_code

    def _on_wait(self) -> None:
        self._space.check()
        if time.monotonic() > self._deadline:
            raise checks.unacceptable(self._space.image, "its conversion takes too long.")
