# SPDX-License-Identifier: Apache-2.0
"""Mounts of NFS shares on the machine of a manager.

None of the functions accesses a mounted file system, which may hang.
"""

import contextlib
from pathlib import Path
import re

from oslo_log import log

from attachd import exception
from attachd.drivers import command, sparse
from attachd.linux import share_mounts

LOG = log.getLogger(__name__)

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")


def is_mounted(path: Path) -> bool:
    """Return whether something is mounted at a path.

    Source: proc(5), mountinfo: the fifth field is the mount point.
    """
    fields = (line.split(" ") for line in _MOUNTS.read_text(errors="replace").splitlines())
    return f"{path}" in {_unescape(field[4]) for field in fields}


def mount(share: str, path: Path, options: str, timeout: float) -> None:
    """Mount a share, without devices, programs and links; its mount point is created.

    :raises BackendUnreachable: its server did not answer
    :raises BackendError: it could not be mounted
    """
    with sparse.map_os_errors(f"The mount point {path} cannot be made"):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = ",".join(filter(None, (options, share_mounts.OPTIONS)))
    result = command.run(["mount", "-t", "nfs", "-o", options, share, f"{path}"], timeout)
    # Another process of this machine may have mounted it at the same time.
    if result.exit_code and not is_mounted(path):
        raise exception.BackendUnreachable(
            f"It could not be mounted at {path}: {result.stderr or result.exit_code}."
        )
    with sparse.map_os_errors(f"The mount {path} cannot be restricted"):
        if missing := share_mounts.restrict(path):
            LOG.info("Mount %s: %s", path, missing)


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
