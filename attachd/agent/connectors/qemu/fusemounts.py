# SPDX-License-Identifier: Apache-2.0
"""The mounts by which daemons show files; for storage_daemon.py."""

from pathlib import Path

from attachd import exception
from attachd.agent import commands
from attachd.agent.mount import mountinfo


def is_mounted(path: Path) -> bool:
    """Tell whether something is mounted at a path; the path itself is not touched."""
    return any(each.folder == f"{path}" for each in mountinfo.mounts())


def unmount(path: Path, *, lock: int) -> None:
    """Take away all that is mounted at a path, in use or not; its daemon has ended.

    :param lock: see commands.run()
    :raises HostError: something is left
    """
    while is_mounted(path):
        try:
            # Nobody answers there any more, so nothing may look at the path itself.
            commands.run("umount", "--lazy", "--no-canonicalize", f"{path}", keeping=[lock])
        except exception.HostError:
            if is_mounted(path):
                raise
