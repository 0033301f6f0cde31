# SPDX-License-Identifier: Apache-2.0
"""Make file systems on devices without data; format_and_mount.py decides on which.

A file system gets a UUID that its journal entry determines.  So after a crash a process can
distinguish the remnant of an interrupted mkfs, or its finished result, from any other data.
"""

from collections.abc import Sequence
import os
import re
import time

from attachd import exception
from attachd.agent.mount import open_handles, probe
from attachd.agent.mount.probe import Progress
from attachd.linux import commands

DATA = "data"
"""The result of get_type() for data that are no file system."""

_TYPE = re.compile(r"[a-z][a-z0-9_]{0,15}")
_TIMEOUT = 300.0
_UUID_OPTIONS = {
    "btrfs": "-U{}",
    "ext2": "-U{}",
    "ext3": "-U{}",
    "ext4": "-U{}",
    "xfs": "-muuid={}",
}
_BLKID_NAMES = {"fat": "vfat", "msdos": "vfat"}

# struct ext4_super_block
_EXT_SUPERBLOCK = 1024
_EXT_MOUNT_TIME = slice(0x2C, 0x30)


def get_type(device: str) -> str | None:
    """Return the type of the file system that is on a device now.

    :returns: "data" for a partition table, a member of a larger device, an encrypted disk and the
        like; None: blkid finds nothing
    :raises HostError: the device cannot be read
    """
    contents = probe.detect(device)
    if contents is None:
        return None
    return contents.filesystem or DATA


def mkfs_command(fs_type: str) -> str:
    """Return the command that makes a file system of a type, such as mkfs.ext4.

    :raises HostError: the type is no valid name
    """
    if not _TYPE.fullmatch(fs_type):
        raise exception.HostError(reason=f"{fs_type!r} is no kind of a file system.")
    return f"mkfs.{fs_type}"


def blkid_name(fs_type: str) -> str:
    """Return what blkid finds, and mount(8) takes, for what mkfs.TYPE makes."""
    return _BLKID_NAMES.get(fs_type, fs_type)


def is_type(found: str, fs_type: str) -> bool:
    """Return whether a type that blkid has found is what mkfs.TYPE makes."""
    return found == blkid_name(fs_type)


def is_own_remnant(device: str, fs_type: str, uuid: str) -> bool:
    """Return whether a device that was empty has only a remnant of making a file system.

    :param fs_type: of the file system that was begun
    :param uuid: of it
    """
    contents = probe.detect(device)
    if contents is None:
        return True
    if fs_type in _UUID_OPTIONS:
        return contents.uuid == uuid and not _was_mounted(device, contents.filesystem or "")
    return is_type(contents.filesystem or DATA, fs_type)


def wipe_signatures(device: str) -> None:
    """Remove all signatures from a device, also incomplete ones; raises HostError."""
    _run(["wipefs", "--all", "--quiet", device])


def wipe(device: str, progress: Progress) -> None:
    """Remove what was written to a device that was empty before.

    :raises HostError: something is left
    """
    wipe_signatures(device)
    probe.erase(device, progress)


def check_can_create(device: str, fs_type: str) -> None:
    """Check that a file system of a type could be made, regardless of what is on the device.

    :raises DeviceBusy: the device is in use
    :raises HostError: the host does not have mkfs.TYPE, or there is no such type
    """
    command = mkfs_command(fs_type)
    if commands.which(command) is None:
        raise exception.HostError(reason=f"This host does not have the command {command}.")
    open_handles.check_unused(device)


def create(device: str, fs_type: str, progress: Progress, uuid: str | None) -> None:
    """Make a file system; the caller has checked that the device carries no data.

    :param uuid: of the new file system; None: any
    :raises HostError: the file system is not complete
    """
    command = mkfs_command(fs_type)
    began = time.monotonic()

    def report() -> None:
        progress(f"{command} on {device}: {time.monotonic() - began:.0f} s")

    uuid_option = (
        [_UUID_OPTIONS[fs_type].format(uuid)] if uuid and fs_type in _UUID_OPTIONS else []
    )
    result = commands.run_long([command, *uuid_option, device], report)
    if result.exit_code:
        raise exception.HostError(
            reason=f"{command} failed on {device} ({result.exit_code}): {result.stderr}"
        )
    _flush(device)
    found = get_type(device)
    if found is None or not is_type(found, fs_type):
        raise exception.HostError(
            reason=f"{command} ended on {device}, and there is {found or 'nothing'} on it."
        )


def _flush(device: str) -> None:
    """Write all data to the disk, before the journal records that the file system is complete."""
    file = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    except OSError as error:
        raise exception.HostError(reason=f"{device} cannot be written: {error}.") from error
    finally:
        os.close(file)


def _was_mounted(device: str, fs_type: str) -> bool:
    """Return whether a file system has been mounted since it was made, if it records that."""
    if not fs_type.startswith("ext"):
        return False
    with open(device, "rb") as file:  # noqa: PTH123  a device, not a path to somewhere
        file.seek(_EXT_SUPERBLOCK)
        return any(file.read(1024)[_EXT_MOUNT_TIME])


def _run(arguments: Sequence[str]) -> None:
    result = commands.execute(arguments, _TIMEOUT)
    if result.exit_code:
        raise exception.HostError(reason=f"{' '.join(arguments)} failed: {result.stderr}")
