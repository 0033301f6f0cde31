# SPDX-License-Identifier: Apache-2.0
"""Mounts of NFS shares on the machine of a manager.

None of the functions accesses a mounted file system, which may hang.
"""

import contextlib
from pathlib import Path
import re

from attachd import exception
from attachd.drivers import command, sparse

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")


def is_mounted(path: Path) -> bool:
    """Return whether something is mounted at a path.

    Source: proc(5), mountinfo: the fifth field is the mount point.
    """
    fields = (line.split(" ") for line in _MOUNTS.read_text(errors="replace").splitlines())
    return f"{path}" in {_unescape(field[4]) for field in fields}


def mount(share: str, path: Path, options: str, timeout: float) -> None:
    """Mount a share; its mount point is created.

    :raises BackendUnreachable: its server did not answer
    :raises BackendError: it could not be mounted
    """
    with sparse.map_os_errors(f"The mount point {path} cannot be made"):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = ["mount", "-t", "nfs", *(["-o", options] if options else []), share, f"{path}"]
    result = command.run(line, timeout)
    # Another process of this machine may have mounted it at the same time.
    if result.exit_code and not is_mounted(path):
        raise exception.BackendUnreachable(
            f"It could not be mounted at {path}: {result.stderr or result.exit_code}."
        )


def unmount(path: Path, timeout: float, *options: str) -> bool:
    """Unmount a share unless it is in use, and remove its mount point.

    :param options: of umount(8)
    :returns: whether it is gone
    """
    try:
        command.run(["umount", *options, f"{path}"], timeout)
    except exception.BackendError:
        return False
    if is_mounted(path):
        return False
    with contextlib.suppress(OSError):
        path.rmdir()
    return True


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)
