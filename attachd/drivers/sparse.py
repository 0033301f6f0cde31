# SPDX-License-Identifier: Apache-2.0
"""Volumes as sparse files in a directory; for the drivers that export such files.

A volume occupies only the blocks that were written, and the rest reads as zeros.  A change is on
disk when a method returns: the file and its directory are synchronized.
"""

from collections.abc import Iterator
import contextlib
import os
from pathlib import Path
import re

from attachd import exception
from attachd.drivers import base, copying

GIB = 2**30

_PLAIN_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]*")


class SparseFiles:
    """The volumes of one backend, each a file named after its id.

    :param folder: created by :meth:`prepare`, for its owner alone (0700); so are the files (0600)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Create the directory, or check that it can be used."""
        make_private_folder(self.folder)

    def path(self, volume_id: str) -> Path:
        """Return the path of a volume, whether it exists or not."""
        return self.folder / plain_name(volume_id)

    def existing(self, volume_id: str) -> Path:
        """Return the path of a volume; raises BackendError if it does not exist."""
        path = self.path(volume_id)
        if not path.is_file():
            raise exception.BackendError(
                f"Volume {volume_id} is missing: there is no file {path}.", final=True
            )
        return path

    def create(self, volume: base.VolumeRef) -> None:
        """Create the file, all zeros, unless it exists; never shorten it."""
        path = self.path(volume.id)
        try:
            grow(path, volume.size_gib * GIB, os.O_CREAT)
            sync_folder(self.folder)
        except (OSError, OverflowError) as error:
            raise exception.BackendError(
                f"Volume {volume.id} could not be created: {error}.", final=not path.exists()
            ) from error

    def clone(self, volume: base.VolumeRef, source_id: str) -> None:
        """Create the file with the content of another one, unless it exists.

        It gets its name when it is complete, so that an interrupted copy does not count.
        """
        path, part = self.path(volume.id), self._part(volume.id)
        source = self.existing(source_id)
        if path.exists():
            return
        try:
            copying.copy(source, part)
            # The source may have grown since its size was asked for.
            base.check_fencing()
            os.truncate(part, volume.size_gib * GIB)
            grow(part, volume.size_gib * GIB)
            base.check_fencing()
            part.rename(path)
            sync_folder(self.folder)
        except (OSError, OverflowError, exception.BackendError) as error:
            # A process that may not continue must not clean up either.
            base.check_fencing()
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise exception.BackendError(
                f"Volume {source_id} could not be copied: {error}",
                final=not (path.exists() or part.exists()),
            ) from error

    def _part(self, volume_id: str) -> Path:
        """Return the path of a copy in progress."""
        return self.folder / f".{plain_name(volume_id)}.part"

    def delete(self, volume_id: str) -> None:
        """Delete the file, if it exists."""
        path = self.path(volume_id)
        with map_os_errors(f"Volume {volume_id} could not be deleted"):
            for file in (path, self._part(volume_id)):
                base.check_fencing()
                file.unlink(missing_ok=True)
            sync_folder(self.folder)

    def extend(self, volume_id: str, size_gib: int) -> None:
        """Extend the file with zeros; never shorten it."""
        path = self.existing(volume_id)
        with map_os_errors(f"Volume {volume_id} could not be extended"):
            grow(path, size_gib * GIB)

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all volumes in bytes, by id."""
        with map_os_errors(f"The directory {self.folder} could not be listed"):
            return dict(_sizes(self.folder))

    def stats(self, protocol: str) -> base.BackendStats:
        """Return the size of the file system and the sum of the sizes of the volumes."""
        with map_os_errors(f"The directory {self.folder} could not be measured"):
            filesystem = os.statvfs(self.folder)
            allocated = sum(size for _name, size in _sizes(self.folder))
        return base.BackendStats(
            protocol=protocol,
            total_gib=round(filesystem.f_blocks * filesystem.f_frsize / GIB, 2),
            free_gib=round(filesystem.f_bavail * filesystem.f_frsize / GIB, 2),
            allocated_gib=round(allocated / GIB, 2),
            capabilities={
                "multiattach": True,
                "online_clone": True,
                "thin_provisioning": True,
            },
        )


def plain_name(identifier: str) -> str:
    """Return an id that is safe as a file name, as a UUID is; raises BackendError for others."""
    if not _PLAIN_NAME.fullmatch(identifier):
        raise exception.BackendError(
            f"The id {identifier!r} cannot be the name of a file.", final=True
        )
    return identifier


def make_private_folder(folder: Path) -> None:
    """Create a directory for its owner alone; an existing one gets that mode.

    :raises BackendError: naming the directory
    """
    make_folder(folder, 0o700)


def make_folder(folder: Path, mode: int) -> None:
    """Create a directory with exactly this mode; an existing one gets it.

    :raises BackendError: naming the directory
    """
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
        folder.chmod(mode)
    except OSError as error:
        raise exception.BackendError(
            f"The directory {folder} cannot be used: {error}.", final=True
        ) from error


def sync_folder(folder: Path) -> None:
    """Synchronize a directory, so that its names survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def map_os_errors(what_failed: str) -> Iterator[None]:
    """Convert an error of the operating system to a BackendError that is not final."""
    try:
        yield
    except (OSError, OverflowError) as error:
        raise exception.BackendError(f"{what_failed}: {error}.") from error


def grow(path: Path, size: int, flags: int = 0) -> None:
    """Extend a file with zeros, never shorten it, and synchronize it.

    :param flags: further ones to open it with
    """
    base.check_fencing()
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    try:
        if os.fstat(descriptor).st_size < size:
            base.check_fencing()
            os.ftruncate(descriptor, size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sizes(folder: Path) -> Iterator[tuple[str, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or not entry.is_file(follow_symlinks=False):
                continue  # a copy that is being made: a volume without data yet
            # A volume may be deleted meanwhile.
            with contextlib.suppress(FileNotFoundError):
                yield entry.name, entry.stat(follow_symlinks=False).st_size
