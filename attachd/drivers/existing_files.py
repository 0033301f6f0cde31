# SPDX-License-Identifier: Apache-2.0
"""Existing files that become volumes, and volumes that become files again, without a copy.

The files are in the directory ``manageable`` among the volumes of sparse.py, so that a rename
moves them: a file is at any moment either there or a volume.
"""

from collections.abc import Callable, Mapping
import contextlib
import fcntl
import os
from pathlib import Path
import signal
import stat
from typing import Final

from attachd import exception
from attachd.drivers import base, existing, loop, sparse
from attachd.drivers.abilities import ManageableObject

_CLAIMED: Final = 2
"""The names of a file that becomes a volume: its own, and that of the incomplete volume."""


class ExistingFiles(existing.ExistingObjects):
    """The files that can become volumes of one backend.

    :param volumes: the volumes
    :param check_unused: raises BackendError if a volume is exported
    :param describe_use: returns how a file is in use, by its path and descriptor; "": it is not
    :param prefix: before the id in the name of a file that was unmanaged
    """

    def __init__(
        self,
        volumes: sparse.SparseFiles,
        check_unused: Callable[[base.VolumeRef], None],
        describe_use: Callable[[Path, int], str] | None = None,
        prefix: str = existing.RELEASED_PREFIX,
    ) -> None:
        self._volumes = volumes
        self._tree = volumes.tree
        self._check_unused = check_unused
        self._describe_use = describe_use or _describe_use
        self._prefix = prefix
        self.folder = volumes.folder / "manageable"

    def prepare(self) -> None:
        """Create the directory, for its owner alone: no other user can open a file in it."""
        self._volumes.make_folder(self.folder)

    def list(self) -> list[ManageableObject]:
        """List the volumes, and the files in the directory with printable names, if not hidden."""
        sizes = self._volumes.sizes()
        found = [
            existing.managed(self._name(key), size, key) for key, size in sorted(sizes.items())
        ]
        with sparse.map_os_errors(f"The directory {self.folder} could not be listed"):
            for file in self._tree.list(self.folder):
                status = self._tree.stat(file)
                # It may become a volume meanwhile.
                is_shown = not file.name.startswith(".") and file.name.isprintable()
                if status and stat.S_ISREG(status.st_mode) and is_shown:
                    with contextlib.suppress(FileNotFoundError):
                        found.append(self._describe(file, status))
        return found

    def get(self, reference: Mapping[str, str]) -> ManageableObject:
        """Return one of them, by the name of its file; see ExistingObjects.get()."""
        name = reference.get(existing.KEY)
        if not isinstance(name, str) or not _is_file_name(name):
            raise existing.invalid(
                reference, f"It must have the key {existing.KEY} with the name of a file."
            )
        with sparse.map_os_errors(f"The file {name} could not be read"):
            volume_id = name.removeprefix(self._prefix)
            is_volume = volume_id != name and sparse.is_plain_name(volume_id)
            size = self._volumes.size(volume_id) if is_volume else None
            if size is not None:
                return existing.managed(name, size, volume_id)
            status = self._tree.stat(self.folder / name)
            if status is None:
                raise existing.invalid(
                    reference, "The backend has no such file in its directory 'manageable'."
                )
            return self._describe(self.folder / name, status)

    def manage(self, volume: base.VolumeRef, reference: Mapping[str, str]) -> None:
        """Make a volume of a file, unless it is one already; see ManageExisting.manage().

        The file is extended before it gets the name, so that a volume always has its size.
        """
        path, part = self._volumes.path(volume.id), self._volumes.part(volume.id)
        try:
            if self._tree.stat(path) is None:
                self._link(volume, reference, path, part)
            self._unlink(part)
            self._remove_former_name(reference, path)
            self._tree.sync(self.folder)
            self._tree.sync(self._volumes.folder)
        except (OSError, OverflowError) as error:
            with contextlib.suppress(OSError):
                self._unlink(part)
            raise exception.BackendError(
                f"Volume {volume.id} could not be managed: {error}.",
                final=not (self._volumes.may_exist(path) or self._volumes.may_exist(part)),
            ) from error

    def _link(
        self, volume: base.VolumeRef, reference: Mapping[str, str], path: Path, part: Path
    ) -> None:
        """Give the file that was checked the name of the volume; others may replace its own."""
        self._unlink(part)  # of a call that was interrupted
        with existing.missing_is_final():
            found = self.get(reference)
        size = volume.size_gib * sparse.GIB
        existing.check_usable("file", found, size)
        file = self.folder / reference[existing.KEY]
        with self._volumes.opened(file, os.O_RDWR) as descriptor:
            self._claim(descriptor, file, part)
            sparse.grow(descriptor, size)
            base.check_still_owner()
            self._tree.link(descriptor, path)

    def _claim(self, descriptor: int, file: Path, part: Path) -> None:
        """Give a file the name of an incomplete volume, if it has no other name than its own.

        Of two calls for the same file at most one succeeds.  The own name is removed only after
        that: so it is still there unless the other call has succeeded.
        """
        base.check_still_owner()
        self._tree.link(descriptor, part)
        status = os.fstat(descriptor)
        named = self._tree.stat(file)
        if status.st_nlink != _CLAIMED or named is None or not os.path.samestat(named, status):
            self._unlink(part)
            raise exception.BackendError(
                f"The file {file} is being managed by another request, or was replaced.",
                final=True,
            )

    def _unlink(self, path: Path) -> None:
        base.check_still_owner()
        self._tree.unlink(path)

    def _remove_former_name(self, reference: Mapping[str, str], path: Path) -> None:
        """Remove the name that a reference has, if it still is one of the volume."""
        file = self.folder / reference[existing.KEY]
        former, volume = self._tree.stat(file), self._tree.stat(path)
        if former is not None and volume is not None and os.path.samestat(former, volume):
            self._unlink(file)

    def unmanage(self, volume: base.VolumeRef) -> None:
        """Make a file of a volume, ``volume-<its id>``; see ManageExisting.unmanage()."""
        self._check_unused(volume)
        path, file = self._volumes.path(volume.id), self.folder / self._name(volume.id)
        with sparse.map_os_errors(f"Volume {volume.id} could not be unmanaged"):
            if self._tree.stat(path) is not None:
                if self._tree.stat(file) is not None:
                    raise exception.BackendError(f"There is another file {file}.", final=True)
                base.check_still_owner()
                self._tree.rename(path, file)
                self._tree.sync(self.folder)
        self._volumes.delete(volume.id)  # an incomplete copy, and the name on disk

    def _name(self, volume_id: str) -> str:
        """Return the name of the file of an unmanaged volume."""
        return f"{self._prefix}{volume_id}"

    def _describe(self, file: Path, status: os.stat_result) -> ManageableObject:
        refusal = _refusal(status)
        if not refusal:
            try:
                with self._volumes.opened(file, os.O_RDWR) as descriptor:
                    refusal = self._describe_use(file, descriptor)
            except PermissionError:
                refusal = "The user of the manager may not read and write it."
        return ManageableObject({existing.KEY: file.name}, status.st_size, refusal)


def is_open(file: int) -> bool | None:
    """Return whether a process of this machine, or a loop device, has a file open as well.

    The kernel grants a lease for writing only to the sole user of a file.  A process that opens
    the file at this moment makes the kernel send a signal: SIGURG, which processes ignore, instead
    of SIGIO, which ends them.

    :param file: its descriptor, the only one of this process
    :returns: None: it cannot be detected, without leases for this file system or this user

    Source: fcntl(2), F_SETLEASE.
    """
    try:
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:
        return True
    except OSError:
        return None
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def describe_loop_devices(file: Path) -> str:
    """Return which loop devices of this machine use a file; "" if none does."""
    if devices := loop.over(file):
        return f"It is in use: {', '.join(device.path for device in devices)} is over it."
    return ""


def _is_file_name(text: str) -> bool:
    return bool(text) and not text.startswith(".") and "/" not in text and "\0" not in text


def _refusal(status: os.stat_result) -> str:
    """Return why a file cannot become a volume, used or not; "" if it can."""
    if not stat.S_ISREG(status.st_mode):
        return "It is no regular file."
    if not status.st_size:
        return "It is empty."
    if status.st_nlink > 1:
        return f"It has {status.st_nlink} names (hard links): others may write to it."
    return ""


def _describe_use(file: Path, descriptor: int) -> str:
    """Return how a file is in use, or may be; "" if it is not."""
    if use := describe_loop_devices(file):
        return use
    in_use = is_open(descriptor)
    if in_use:
        return "It is in use: a process has it open."
    if in_use is None:
        return (
            "Whether it is open cannot be detected: the user of the manager does not own it, or "
            "its file system has no leases."
        )
    return ""
