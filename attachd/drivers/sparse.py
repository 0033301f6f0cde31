# SPDX-License-Identifier: Apache-2.0
"""Volumes as sparse files in a directory; for the drivers that export such files.

A volume occupies only the blocks that were written, and the rest reads as zeros.  A change is on
disk when a method returns: the file and its directory are synchronized.

Other machines may be able to write to the directory, as on a share: all names in it are used by
way of attachd/linux/confined.py.
"""

from collections.abc import Iterator, Mapping
import contextlib
import errno
import os
from pathlib import Path
import re
import stat

from attachd import exception
from attachd.drivers import abilities, base, copying
from attachd.linux import holes
from attachd.linux.confined import ConfinedDirectory

GIB = 2**30

_PRIVATE = 0o700
_BLOCK = 4096
_PROBE = ".discard"
"""The name of a file that exists for a moment."""
_PLAIN_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")


class SparseFiles:
    """The volumes of one backend, each a file named after its id.

    :param folder: created by :meth:`prepare`, for its owner alone (0700); so are the files (0600)
    :param root: a directory above it whose content other machines may change; None: ``folder``
    :ivar tree: the root
    """

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        self.folder = folder
        self.tree = ConfinedDirectory(root or folder)

    def prepare(self) -> None:
        """Create the directory, or check that it can be used."""
        self.make_folder(self.folder)

    def make_folder(self, folder: Path) -> None:
        """Create a directory of the root for its owner alone; an existing one gets that mode.

        :raises BackendError: naming the directory
        """
        if folder == self.tree.root:
            make_folder(folder, _PRIVATE)
            return
        with _map_folder_errors(folder):
            self.tree.root.mkdir(parents=True, exist_ok=True)
            self.tree.make_folder(folder, _PRIVATE)

    def can_discard(self) -> bool:
        """Return whether the file system frees blocks of a file that are discarded."""
        path = self.folder / _PROBE
        try:
            self.tree.unlink(path)
            with self.opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as file:
                os.write(file, bytes(_BLOCK))
                holes.punch(file, 0, _BLOCK)
        except OSError:
            return False
        finally:
            with contextlib.suppress(OSError):
                self.tree.unlink(path)
        return True

    def path(self, volume_id: str) -> Path:
        """Return the path of a volume, whether it exists or not."""
        return self.folder / plain_name(volume_id)

    def size(self, volume_id: str) -> int | None:
        """Return the size of the file of a volume in bytes; None: there is none."""
        with map_os_errors(f"Volume {volume_id} could not be found"):
            status = self.tree.stat(self.path(volume_id))
        return status.st_size if status is not None and stat.S_ISREG(status.st_mode) else None

    def existing(self, volume_id: str) -> Path:
        """Return the path of a volume; raises BackendError if it does not exist."""
        path = self.path(volume_id)
        if self.size(volume_id) is None:
            raise exception.BackendError(
                f"Volume {volume_id} is missing: there is no file {path}.", final=True
            )
        return path

    def may_exist(self, path: Path) -> bool:
        """Return whether a name is there, or it is unknown whether it is."""
        try:
            return self.tree.stat(path) is not None
        except OSError:
            return True

    def create(self, volume: base.VolumeRef) -> None:
        """Create the file, all zeros, unless it exists; never shorten it."""
        path = self.path(volume.id)
        try:
            base.check_still_owner()
            with self.opened(path, os.O_RDWR | os.O_CREAT) as file:
                size = volume.size_gib * GIB
                if os.fstat(file).st_size < size:  # else it is the volume, which may be exported
                    _check_single_name(file, path)
                grow(file, size)
            self.tree.sync(self.folder)
        except (OSError, OverflowError) as error:
            raise exception.BackendError(
                f"Volume {volume.id} could not be created: {error}.",
                final=not self.may_exist(path),
            ) from error

    @contextlib.contextmanager
    def opened(self, path: Path, flags: int) -> Iterator[int]:
        """Open a file for the block, see ConfinedDirectory.open()."""
        descriptor = self.tree.open(path, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def clone(self, volume: base.VolumeRef, source_id: str) -> None:
        """Create the file of a volume with the content of another one, unless it exists."""
        self.copy_from(self.existing(source_id), volume.id, volume.size_gib * GIB)

    def copy_from(self, source: Path, file_id: str, size: int) -> None:
        """Create a file with the content of another one of the root, unless it exists.

        It gets its name when it is complete, so that an interrupted copy does not count.

        :param source: the path of the other one
        :param file_id: the id that is its name
        :param size: in bytes
        """
        path, part = self.path(file_id), self.part(file_id)
        with map_os_errors(f"{file_id} could not be found"):
            present = self.tree.stat(path) is not None
        if present:
            self.existing(file_id)
        with self._clearing(source, path, part):
            if not present:
                self._copy(source, part, path, size)
            base.check_still_owner()
            self.tree.unlink(part)
            self.tree.sync(self.folder)

    def replace_from(self, source: Path, file_id: str, size: int) -> None:
        """Give a file the content of another one of the root; see :meth:`copy_from`.

        An interrupted call leaves the file as it was, or none.
        """
        path, part = self.path(file_id), self.part(file_id)
        with self._clearing(source, path, part):
            self._copy(source, part, path, size, replace=True)
            base.check_still_owner()
            self.tree.unlink(part)
            self.tree.sync(self.folder)

    @contextlib.contextmanager
    def _clearing(self, source: Path, path: Path, part: Path) -> Iterator[None]:
        """Remove an incomplete copy after an error."""
        try:
            yield
        except (OSError, OverflowError, exception.BackendError) as error:
            # A process that may not continue must not clean up either.
            base.check_still_owner()
            with contextlib.suppress(OSError):
                self.tree.unlink(part)
            raise exception.BackendError(
                f"{source.name} could not be copied: {error}",
                final=not (self.may_exist(path) or self.may_exist(part)),
            ) from error

    def _copy(
        self, source: Path, part: Path, path: Path, size: int, *, replace: bool = False
    ) -> None:
        """Copy a file; the file that was written gets the name.

        Another machine may have replaced the name of the copy.
        """
        base.check_still_owner()
        self.tree.unlink(part)  # of a copy that was interrupted
        with (
            self.opened(source, os.O_RDONLY) as reading,
            self.opened(part, os.O_RDWR | os.O_CREAT) as writing,
        ):
            _check_single_name(writing, part)
            # The source may be larger: it has grown, or a host has made it so.
            copying.copy(reading, writing, f"{source}", size)
            grow(writing, size)
            if replace:
                base.check_still_owner()
                self.tree.unlink(path)
            base.check_still_owner()
            self.tree.link(writing, path)

    def part(self, volume_id: str) -> Path:
        """Return the path that a volume has in part, while it is copied or managed."""
        return self.folder / f".{plain_name(volume_id)}.part"

    def delete(self, volume_id: str) -> None:
        """Delete the file, if it exists."""
        path = self.path(volume_id)
        with map_os_errors(f"Volume {volume_id} could not be deleted"):
            for file in (path, self.part(volume_id)):
                base.check_still_owner()
                self.tree.unlink(file)
            self.tree.sync(self.folder)

    def extend(self, volume_id: str, size_gib: int) -> None:
        """Extend the file with zeros; never shorten it."""
        path = self.existing(volume_id)
        with (
            map_os_errors(f"Volume {volume_id} could not be extended"),
            self.opened(path, os.O_RDWR) as file,
        ):
            grow(file, size_gib * GIB)

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all volumes in bytes, by id."""
        with map_os_errors(f"The directory {self.folder} could not be listed"):
            found = self.tree.list_sizes(self.folder)
        # Others are copies that are being made, and names that hosts have made.
        return {name: size for name, size in found.items() if is_plain_name(name)}

    def stats(self, protocol: str) -> base.BackendStats:
        """Return the size of the file system and the sum of the sizes of the volumes."""
        with map_os_errors(f"The directory {self.folder} could not be measured"):
            filesystem = os.statvfs(self.tree.root)
        allocated = sum(self.sizes().values())
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


class FileData(abilities.VolumeData):
    """The bytes of an open file or block device, which never gets longer.

    :param file: its descriptor
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self._size = os.lseek(file, 0, os.SEEK_END)
        self._unsynced = 0

    def read(self, offset: int, length: int) -> bytes:
        """Return some bytes."""
        with map_os_errors("The file of the volume could not be read"):
            return b"".join(self._read_parts(offset, length))

    def _read_parts(self, offset: int, length: int) -> Iterator[bytes]:
        while length > 0:
            part = os.pread(self._file, length, offset)
            if not part:
                raise OSError(errno.EIO, "It has become shorter")
            yield part
            offset, length = offset + len(part), length - len(part)

    def write(self, offset: int, data: bytes) -> None:
        """Write some bytes; now and then also to the disk, so that the last step is short."""
        with map_os_errors("The file of the volume could not be written"):
            self._write(offset, data)

    def _write(self, offset: int, data: bytes) -> None:
        if offset + len(data) > self._size:
            raise OSError(errno.ENOSPC, "They are beyond the end of the volume")
        view = memoryview(data)
        while view:
            base.check_still_owner()
            written = os.pwrite(self._file, view, offset)
            offset, view = offset + written, view[written:]
            self._unsynced += written
        if self._unsynced >= copying.SYNC_BYTES:
            os.fdatasync(self._file)
            self._unsynced = 0


@contextlib.contextmanager
def open_data(
    files: SparseFiles, volume_id: str, mode: base.AccessMode
) -> Iterator[abilities.VolumeData]:
    """Open the file of a volume, as DirectAccess.open_data()."""
    path = files.existing(volume_id)
    with (
        map_os_errors(f"Volume {volume_id} could not be read or written"),
        files.opened(path, os.O_RDONLY if mode == "ro" else os.O_RDWR) as file,
    ):
        yield FileData(file)
        if mode == "rw":
            os.fsync(file)


class FilesDriver(base.Driver, abilities.DirectAccess):
    """A driver whose volumes are files on this machine."""

    _volumes: SparseFiles

    def list_volumes(self) -> Mapping[str, int]:
        """List the volumes' files."""
        return self._volumes.sizes()

    def find_size(self, volume: base.VolumeRef) -> int | None:
        """Return the size of the file of a volume."""
        return self._volumes.size(volume.id)

    def open_data(
        self, volume: base.VolumeRef, mode: base.AccessMode
    ) -> contextlib.AbstractContextManager[abilities.VolumeData]:
        """Open the file of a volume."""
        return open_data(self._volumes, volume.id, mode)


def plain_name(identifier: str) -> str:
    """Return an id that is safe as a file name, as a UUID is; raises BackendError for others."""
    if not is_plain_name(identifier):
        raise exception.BackendError(
            f"The id {identifier!r} cannot be the name of a file.", final=True
        )
    return identifier


def is_plain_name(name: str) -> bool:
    """Return whether a name can be that of a file with an id."""
    return _PLAIN_NAME.fullmatch(name) is not None


def make_folder(folder: Path, mode: int) -> None:
    """Create a directory with exactly this mode; an existing one gets it.

    :raises BackendError: naming the directory
    """
    with _map_folder_errors(folder):
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
        folder.chmod(mode)


@contextlib.contextmanager
def _map_folder_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise exception.BackendError(
            f"The directory {folder} cannot be used: {error}.", final=True
        ) from error


@contextlib.contextmanager
def map_os_errors(what_failed: str) -> Iterator[None]:
    """Convert an error of the operating system to a BackendError that is not final."""
    try:
        yield
    except (OSError, OverflowError) as error:
        raise exception.BackendError(f"{what_failed}: {error}.") from error


def grow(file: int, size: int) -> None:
    """Extend an open file with zeros, never shorten it, and synchronize it."""
    if os.fstat(file).st_size < size:
        base.check_still_owner()
        os.ftruncate(file, size)
    os.fsync(file)


def _check_single_name(file: int, path: Path) -> None:
    """Check that a file that becomes a volume is not another one's, too; raises OSError."""
    if os.fstat(file).st_nlink > 1:
        raise OSError(errno.EMLINK, "It has further names (hard links)", f"{path}")
