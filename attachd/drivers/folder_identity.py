# SPDX-License-Identifier: Apache-2.0
"""The identity of a folder with volumes, for drivers of local files."""

import errno
import os
from pathlib import Path
import re
from typing import Final
import uuid

from attachd.drivers import sparse
from attachd.linux.confined import ConfinedDirectory

NAME: Final = ".storage-id"
"""Of the file, in the folder."""
_LENGTH: Final = 36
_NUMBER: Final = f"[0-9a-f-]{{{_LENGTH}}}"


def read_identity(folder: Path) -> str:
    """Return the identity of a folder, which is the same for all machines that share it.

    It is a number that the first caller stores in a file, with the inode of that file: in a copy
    of the folder, the file has another one.
    """
    path = folder / NAME
    with sparse.map_os_errors(f"The identity of {folder} cannot be read"):
        try:
            descriptor = _open(path)
        except FileNotFoundError:
            _create(path)
            descriptor = _open(path)
        with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
            number = file.read(_LENGTH + 1).strip()
            if not re.fullmatch(_NUMBER, number):
                raise OSError(errno.EINVAL, "It has no number", f"{path}")
            return f"{number}/{os.fstat(file.fileno()).st_ino}"


def _open(path: Path) -> int:
    """Open the file; a link, a FIFO or a device that another machine has put there is an error."""
    return ConfinedDirectory(path.parent).open(path, os.O_RDONLY)


def _create(path: Path) -> None:
    """Store a new number, unless another process does so; a file is never seen incomplete."""
    name = f"{uuid.uuid4()}"
    new = path.with_name(f"{NAME}.{name}")
    try:
        with new.open("x", encoding="ascii") as file:
            file.write(name)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(new, path)
        except FileExistsError:
            return
    finally:
        new.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
