# SPDX-License-Identifier: Apache-2.0
"""Directories to which other machines can write: no name in one leads out of it.

A host that writes to a share can replace each name in it at any moment: by a symbolic link, a
FIFO, a device node, a directory.  So no operation follows a link or enters another file system,
files are opened as what was checked, and nothing but regular files is opened.

Source: openat2(2), of Linux 5.6; proc(5), /proc/pid/fd.
"""

from collections.abc import Iterator
import contextlib
import ctypes
import errno
import os
from pathlib import Path
import stat
from typing import Final

_OPENAT2: Final = 437
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_RESOLVE: Final = _NO_XDEV | _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_REASONS: Final = {
    errno.ELOOP: "A symbolic link is in the way, and links are not followed here",
    errno.EXDEV: "Another file system is mounted in the way",
    errno.ENOSYS: "The kernel has no openat2(2), with which links are avoided: Linux 5.6 or later "
    "is needed, and a container has to permit the call",
}
_KINDS: Final = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFBLK: "a device node",
    stat.S_IFCHR: "a device node",
    stat.S_IFSOCK: "a socket",
}

_LIBC = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    """struct open_how of linux/openat2.h."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class ConfinedDirectory:
    """A directory; its methods take paths that begin with its own.

    All methods raise OSError, which names the path.

    :param root: its own path, which other machines cannot change; it may be a link
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def open(self, path: Path, flags: int) -> int:
        """Open a regular file.

        :param flags: of open(2); with O_CREAT a missing file is created, for its owner alone
        :returns: its descriptor
        """
        with self._parent(path) as (parent, name):
            if flags & os.O_CREAT:
                with contextlib.suppress(FileExistsError):
                    new = flags | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                    return os.open(name, new, 0o600, dir_fd=parent)
            found = _openat2(parent, name, os.O_PATH | os.O_NOFOLLOW, path)
        try:
            return reopen(found, path, flags & ~os.O_CREAT)
        finally:
            os.close(found)

    def stat(self, path: Path) -> os.stat_result | None:
        """Return the status of what has a name, also of a link; None: there is nothing."""
        try:
            with self._parent(path) as (parent, name):
                return os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def list(self, folder: Path) -> list[Path]:
        """List the names in a directory."""
        with self._folder(folder) as descriptor:
            return [folder / name for name in sorted(os.listdir(descriptor))]  # noqa: PTH208 (a descriptor)

    def list_sizes(self, folder: Path) -> dict[str, int]:
        """Return the sizes in bytes of the regular files in a directory, by name."""
        sizes = {}
        with self._folder(folder) as descriptor, os.scandir(descriptor) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False):
                        sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
        return sizes

    def make_folder(self, folder: Path, mode: int) -> None:
        """Make a directory with exactly this mode; an existing one gets it."""
        with self._parent(folder) as (parent, name), contextlib.suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=parent)
        with self._folder(folder) as descriptor:
            os.fchmod(descriptor, mode)

    def link(self, file: int, path: Path) -> None:
        """Give an open file one more name; success if the name is its already."""
        with self._parent(path) as (parent, name):
            try:
                # With dir_fd it is the link that is followed, to the open file.
                os.link(f"/proc/self/fd/{file}", name, dst_dir_fd=parent, follow_symlinks=True)
            except FileExistsError:
                found = os.stat(name, dir_fd=parent, follow_symlinks=False)
                if not os.path.samestat(found, os.fstat(file)):
                    raise OSError(errno.EEXIST, "Another file has the name", f"{path}") from None
            except FileNotFoundError:
                if os.fstat(file).st_nlink:
                    raise
                reason = "The file for it was removed or replaced meanwhile"
                raise OSError(errno.ESTALE, reason, f"{path}") from None

    def rename(self, path: Path, target: Path) -> None:
        """Rename a file; what has the other name is replaced."""
        with self._parent(path) as (parent, name), self._parent(target) as (other, new_name):
            os.rename(name, new_name, src_dir_fd=parent, dst_dir_fd=other)

    def unlink(self, path: Path) -> None:
        """Remove a name that is no directory; success if there is none."""
        with contextlib.suppress(FileNotFoundError), self._parent(path) as (parent, name):
            os.unlink(name, dir_fd=parent)

    def remove_folder(self, folder: Path) -> None:
        """Remove an empty directory."""
        with self._parent(folder) as (parent, name):
            os.rmdir(name, dir_fd=parent)

    def sync(self, folder: Path) -> None:
        """Synchronize a directory, so that its names survive a power failure."""
        with self._folder(folder) as descriptor:
            os.fsync(descriptor)

    @contextlib.contextmanager
    def _parent(self, path: Path) -> Iterator[tuple[int, str]]:
        """Open the directory of a path; returns it, and the name in it."""
        with self._folder(path.parent) as descriptor:
            yield descriptor, path.name

    @contextlib.contextmanager
    def _folder(self, folder: Path) -> Iterator[int]:
        relative = folder.relative_to(self.root)
        if ".." in relative.parts:
            raise OSError(errno.EXDEV, "It is outside of its directory", f"{folder}")
        descriptor = os.open(self.root, _FOLDER)
        try:
            if relative.parts:
                root = descriptor
                descriptor = _openat2(root, f"{relative}", _FOLDER, folder)
                os.close(root)
            yield descriptor
        finally:
            os.close(descriptor)


def reopen(found: int, path: Path, flags: int) -> int:
    """Open a file that was opened with O_PATH, if it is a regular one; returns its descriptor.

    Another file that has its name by now is not opened, so that the check counts.

    :param path: for messages
    :raises OSError: it is no regular file, or cannot be opened
    """
    mode = os.fstat(found).st_mode
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "of an unknown kind")
        raise OSError(errno.EINVAL, f"It is {kind} where a regular file is expected", f"{path}")
    try:
        return os.open(f"/proc/self/fd/{found}", flags | os.O_CLOEXEC)
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"{path}") from None


def _openat2(directory: int, name: str, flags: int, path: Path) -> int:
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _RESOLVE)
    descriptor: int = _LIBC.syscall(
        _OPENAT2,
        directory,
        ctypes.c_char_p(os.fsencode(name)),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, _REASONS.get(number, os.strerror(number)), f"{path}")
    return descriptor
