# SPDX-License-Identifier: Apache-2.0
"""Copies of volumes: what has the identifiers of its original, and may have been in use.

A clone and a snapshot have the UUIDs of their original.  One that was made of a volume in use has
the content of a machine that lost its power: what its journal holds is not in its place yet, and
a reader that leaves out the journal may see an empty directory where there are files.
"""

from collections.abc import Collection
import os
from pathlib import Path
import re
from typing import Final
import uuid

from attachd import exception
from attachd.agent.mount.mount_rules import MountRules
from attachd.agent.mount.probe import Contents
from attachd.linux import block_device, loops, mountinfo
from attachd.linux.commands import CommandResult

NO_UUID: Final = "nouuid"
"""The option with which XFS mounts a file system whose UUID another one has."""

_WITHOUT_JOURNAL: Final = {
    "btrfs": "rescue=nologreplay",
    "ext3": "noload",
    "ext4": "noload",
    "xfs": "norecovery",
}
"""The options of mount(8) that leave out the journal."""
_OTHER_SPELLINGS: Final = frozenset({"norecovery", "nologreplay", "rescue=all"})

# Offsets on the device and lengths: struct ext4_super_block, struct btrfs_super_block.
_EXT_INCOMPATIBLE: Final = (1024 + 0x60, 4)
_EXT_RECOVER: Final = 0x4
_BTRFS_FSID: Final = (65536 + 0x20, 16)
_BTRFS_LOG_ROOT: Final = (65536 + 0x60, 8)
_BTRFS: Final = Path("/sys/fs/btrfs")
_BLOCK: Final = Path("/sys/block")
_NUMBERS: Final = Path("/sys/dev/block")
_REFUSED: Final = re.compile(r"cannot mount .* read-only")
"""What mount(8) says about EROFS."""


def advice(contents: Contents) -> str:
    """Return what to do about contents that are no file system, and may be a copy; "": nothing."""
    if "LVM" not in contents.name:
        return ""
    return (
        " LVM uses no copy of a physical volume beside its original: give a copy names of its own "
        "with vgimportclone, then activate it with vgchange --activate y."
    )


def check_unique(device: str, fs_type: str) -> None:
    """Check that a btrfs is not the copy of one that is mounted, unless the kernel can mount both.

    The kernel knows the devices of btrfs by the UUID in their content.  Before Linux 6.7 it showed
    the data of the original for a copy, or refused it.

    :raises HostError: it is one
    """
    if fs_type != "btrfs" or (_BTRFS / "features" / "temp_fsid").exists():
        return
    fsid = uuid.UUID(bytes=_read(device, *_BTRFS_FSID))
    members = {path.name for path in (_BTRFS / f"{fsid}" / "devices").glob("*")}
    if members and Path(device).resolve().name not in members:
        raise exception.HostError(
            reason=f"{device} carries a btrfs with the UUID {fsid}, which is mounted from "
            f"{', '.join(sorted(members))}: it is a copy of that, and btrfs would mix them up. "
            "Unmount the original, mount the copy on another host, or attach it without a "
            f"mountpoint, give it a UUID of its own with 'btrfstune -m {device}', and mount it "
            "then."
        )


def check_clean(device: str, fs_type: str, rules: MountRules) -> None:
    """Check that a file system that is only to be read does not need its journal, as far as known.

    The kernel refuses to replay a journal on a device that is read-only, and so says of XFS
    whether it is needed.

    :param rules: if they have the journal left out, all is permitted
    :raises HostError: it does, or cannot be mounted without a write
    """
    if fs_type not in _WITHOUT_JOURNAL or _leaves_out_journal(rules):
        return
    if _is_marked_unclean(device, fs_type):
        raise unclean_error(device, fs_type)
    if fs_type == "xfs" and not block_device.is_read_only(device):
        raise exception.HostError(
            reason=f"{device} accepts writes, so the kernel would replay the journal of its file "
            f"system. Make it read-only first: blockdev --setro {device}"
        )


def is_refused_as_unclean(fs_type: str, result: CommandResult) -> bool:
    """Return whether the kernel refused a mount since it may not replay the journal."""
    return fs_type in _WITHOUT_JOURNAL and bool(_REFUSED.search(result.stderr))


def unclean_error(device: str, fs_type: str) -> exception.HostError:
    """Return the error about a journal that would have to be replayed."""
    option = _WITHOUT_JOURNAL[fs_type]
    return exception.HostError(
        reason=f"{device} was copied while it was in use, or is in use by another host now: the "
        f"journal of its {fs_type} has changes that are not in their places, and the device is "
        "only to be read. Without them files could be missing, so it is not mounted. Attach it "
        "once with mode rw, which replays the journal, and detach it; or have it shown without "
        f"these changes, with --mount-options {option}"
    )


def check_no_other_path(device: str, same_volume: Collection[str]) -> None:
    """Check that no other device with the same data is mounted, which two mounts would destroy.

    :param same_volume: other devices with the same data
    :raises HostError: one is
    """
    own = Path(device).resolve().name
    names = {Path(path).resolve().name for path in same_volume}
    # Also those over plain files.
    names |= {Path(loop).name for path in same_volume for loop in loops.list_made_for(Path(path))}
    for mount in mountinfo.list_mounts():
        number = f"{os.major(mount.device)}:{os.minor(mount.device)}"
        name = (_NUMBERS / number).resolve().name
        if mount.fs_type != "xfs" or name == own:
            continue
        if name in names or _is_same_disk(name, own):
            raise exception.HostError(
                reason=f"{device} is the same volume as /dev/{name}, which is mounted at "
                f"{mount.mountpoint}: two mounts would destroy the file system. Use that mount, "
                "or end it first."
            )


def _is_same_disk(name: str, other: str) -> bool:
    """Return whether two devices have the same identifier, or are over the same file."""
    identity = block_device.identity(f"/dev/{name}")
    file = loops.read_backing_name(_BLOCK / name / "loop")
    return (bool(identity) and identity == block_device.identity(f"/dev/{other}")) or (
        bool(file) and file == loops.read_backing_name(_BLOCK / other / "loop")
    )


def read_number(device: str, offset: int, length: int) -> int:
    """Return a little-endian number of a superblock; raises HostError."""
    return int.from_bytes(_read(device, offset, length), "little")


def _is_marked_unclean(device: str, fs_type: str) -> bool:
    """Return whether a superblock says that the journal has to be replayed; XFS has no mark."""
    if fs_type == "btrfs":
        return read_number(device, *_BTRFS_LOG_ROOT) != 0
    return fs_type.startswith("ext") and bool(
        read_number(device, *_EXT_INCOMPATIBLE) & _EXT_RECOVER
    )


def _leaves_out_journal(rules: MountRules) -> bool:
    options = set(rules.options.split(","))
    return not options.isdisjoint({*_WITHOUT_JOURNAL.values(), *_OTHER_SPELLINGS})


def _read(device: str, offset: int, length: int) -> bytes:
    try:
        with Path(device).open("rb") as file:
            file.seek(offset)
            return file.read(length)
    except OSError as error:
        raise exception.HostError(reason=f"{device} cannot be read: {error.strerror}.") from error
