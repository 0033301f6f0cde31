# SPDX-License-Identifier: Apache-2.0
"""Let a group read and write a mounted file system; see file_groups.py."""

from collections.abc import Collection
import sys
from typing import Final

from oslo_log import log

from attachd import exception
from attachd.agent.mount import file_groups
from attachd.linux import block_device, commands, mountinfo

LOG = log.getLogger(__name__)

_TIMEOUT: Final = 600.0
"""Seconds in which nothing is written to the device."""


def grant(mountpoint: str, group: int, locks: Collection[int] = ()) -> None:
    """Let a group read and write all files of a file system; one that can already costs little.

    New files get the group as well.  It can be repeated after a crash.

    :param mountpoint: where it is mounted for writing
    :param group: its number
    :param locks: file descriptors that are open until the end of the program that does it
    :raises HostError: some files do not have the group yet
    """
    mount = mountinfo.find_at(mountpoint)
    if mount is None:
        raise exception.HostError(reason=f"Nothing is mounted at {mountpoint}.")
    result = commands.execute(
        (
            *(sys.executable, "-m", file_groups.__name__),
            *(mount.mountpoint, f"{mount.mount_id}", f"{group}"),
        ),
        _TIMEOUT,
        tuple(locks),
        progress=lambda: block_device.count_writes(mount.source),
    )
    if result.exit_code:
        raise exception.HostError(
            reason=f"The files at {mountpoint} could not be given to the group {group}: "
            f"{result.stderr}"
        )
    if refused := int(result.stdout):
        LOG.warning(
            "%d files at %s do not permit that their group is changed to %d, as immutable ones",
            refused,
            mountpoint,
            group,
        )
