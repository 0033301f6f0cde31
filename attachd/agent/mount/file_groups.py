# SPDX-License-Identifier: Apache-2.0
"""Let a group read and write the files of a mounted file system; run by group_access.py.

It is a program of its own, as it may take long, or hang.  The root directory comes last: it shows
that all else is done, so that a run that was killed is repeated, and one that is not needed costs
one request.

Containers may change the file system at the same time.  So no name is followed that could be a
link, and nothing outside of the file system is reached.

Source: kubelet's changes for fsGroup, with the policy OnRootMismatch.
"""

from collections.abc import Iterator
import errno
import os
from pathlib import Path
import resource
import stat
import sys
from typing import Final

_DIRECTORY_BITS: Final = 0o2770
_FILE_BITS: Final = 0o660
_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_OTHER: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_CHANGED: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""Errors of a name that has become another object, or none: a container works on it."""


def main() -> None:
    """Print the number of files that refuse the change, such as immutable ones.

    The arguments are a mountpoint, the ID of the mount as in mountinfo, and the number of a group.
    """
    mountpoint, mount_id, group = sys.argv[1:]
    _raise_limit()
    try:
        root = os.open(mountpoint, _OPEN_DIRECTORY)
        if f"mnt_id:\t{mount_id}\n" not in Path(f"/proc/self/fdinfo/{root}").read_text():
            sys.exit(f"{mountpoint} is covered by another mount")
        refused = 0 if is_granted(root, int(group)) else grant(root, int(group))
    except OSError as error:
        sys.exit(f"{error.filename or mountpoint}: {error.strerror}")
    sys.stdout.write(f"{refused}\n")


def _raise_limit() -> None:
    """Permit directories of any depth: each level has an open file."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def is_granted(root: int, group: int) -> bool:
    """Return whether a group has the root directory, and thus all that was in it.

    :param root: the open root directory
    """
    found = os.fstat(root)
    return found.st_gid == group and found.st_mode & _DIRECTORY_BITS == _DIRECTORY_BITS


def grant(root: int, group: int) -> int:
    """Give all files to a group; return how many refuse that.

    :param root: the open root directory
    """
    refused, device = 0, os.fstat(root).st_dev
    for file in _walk(root, device):
        try:
            _change(file, group)
        except PermissionError:
            refused += 1
    _change(root, group)
    return refused


def _walk(root: int, device: int) -> Iterator[int]:
    """Yield an open file for each object below a directory, but symbolic links.

    :param device: of the file system, which is not left
    """
    levels = [(root, os.scandir(root))]
    while levels:
        parent, entries = levels[-1]
        entry = next(entries, None)
        if entry is None:
            levels.pop()
            if parent != root:
                os.close(parent)
            continue
        is_directory = entry.is_dir(follow_symlinks=False)
        file = _open(entry.name, parent, _OPEN_DIRECTORY if is_directory else _OPEN_OTHER)
        if file is None:
            continue
        found = os.fstat(file)
        is_inside = found.st_dev == device and not stat.S_ISLNK(found.st_mode)
        if is_inside:
            yield file
        if is_inside and is_directory:
            levels.append((file, os.scandir(file)))
        else:
            os.close(file)


def _open(name: str, parent: int, flags: int) -> int | None:
    """Open a name in a directory; None: it is no longer what it was."""
    try:
        return os.open(name, flags, dir_fd=parent)
    except OSError as error:
        if error.errno in _CHANGED:
            return None
        raise


def _change(file: int, group: int) -> None:
    """Give one object to a group; one that it has already is not written."""
    # The system calls for open files do not take those that are not open for reading.
    path = Path(f"/proc/self/fd/{file}")
    found = os.fstat(file)
    if found.st_gid != group:
        os.chown(path, -1, group)
        # The kernel takes setuid and setgid from files.
        found = os.fstat(file)
    mode = stat.S_IMODE(found.st_mode)
    bits = _DIRECTORY_BITS if stat.S_ISDIR(found.st_mode) else _FILE_BITS
    if mode & bits != bits:
        path.chmod(mode | bits)


if __name__ == "__main__":
    main()
