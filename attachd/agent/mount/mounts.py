# SPDX-License-Identifier: Apache-2.0
"""Mounts devices of this host, and unmounts them; everything can be repeated after a crash.

Nothing is forced: what somebody uses stays mounted, and whoever asked is told who does.
"""

from collections.abc import Sequence
import logging
import os
from pathlib import Path

from attachd import exception
from attachd.agent import commands
from attachd.agent.mount import device_nodes, mountinfo, open_handles, probe
from attachd.agent.mount.filesystems import filesystem as filesystem  # noqa: PLC0414
from attachd.agent.mount.filesystems import make_filesystem as make_filesystem  # noqa: PLC0414
from attachd.agent.mount.mountinfo import Mount
from attachd.agent.mount.open_handles import check_unused as check_unused  # noqa: PLC0414

LOG = logging.getLogger(__name__)

TOOLS = ("blkid", "mount", "umount")
"""What mount() and unmount() run."""

_PACKAGES = {
    "blkid": "util-linux",
    "mkfs.btrfs": "btrfs-progs",
    "mkfs.exfat": "exfatprogs",
    "mkfs.ext2": "e2fsprogs",
    "mkfs.ext3": "e2fsprogs",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.f2fs": "f2fs-tools",
    "mkfs.fat": "dosfstools",
    "mkfs.gfs2": "gfs2-utils",
    "mkfs.jfs": "jfsutils",
    "mkfs.nilfs2": "nilfs-tools",
    "mkfs.ntfs": "ntfs-3g",
    "mkfs.ocfs2": "ocfs2-tools",
    "mkfs.vfat": "dosfstools",
    "mkfs.xfs": "xfsprogs",
    "mount": "mount",
    "setpriv": "util-linux",
    "umount": "mount",
    "wipefs": "util-linux",
}

_TIMEOUT = 600.0
"""Seconds.  A journal may have to be replayed, or what was written to be saved."""

_NETWORK = "_netdev"
"""Has a host that shuts down unmount it before it leaves the network; others do not mind."""

# A journal is replayed by writing to the device, which a reader may not do, and must not do while
# somebody else writes.
_WITHOUT_JOURNAL = {
    "btrfs": "rescue=nologreplay",
    "ext3": "noload",
    "ext4": "noload",
    "xfs": "norecovery,nouuid",
}
# struct ext4_super_block
_EXT_SUPERBLOCK = 1024
_EXT_INCOMPATIBLE = slice(0x60, 0x64)
_EXT_RECOVER = 0x4


def missing_tools(tools: Sequence[str]) -> list[str]:
    """Name those commands that this host does not have, each with its Debian package if known."""
    missing = (each for each in tools if commands.which(each) is None)
    return [
        f"{each} (package {_PACKAGES[each]})" if each in _PACKAGES else each for each in missing
    ]


def mount(device: str, folder: str, *, mode: str) -> None:
    """Mount a device at a folder, which is made if it is missing; done already is a success.

    :param folder: an absolute path
    :param mode: "ro" writes nothing to the device, not even what its journal has to say: what
        was not yet in place when the file system was last used is missing or half there
    :raises HostError: it cannot be mounted there, and nothing was done but to make the folder
    """
    if not Path(folder).is_absolute():
        raise exception.HostError(reason=f"{folder} is no absolute path of a folder.")
    if _is_mounted(device, folder, mode):
        return
    kind = _mountable(device)
    if not _is_empty(folder):
        # Somebody who does the same may have been faster.
        if _is_mounted(device, folder, mode):
            return
        raise exception.HostError(
            reason=f"{folder} is not empty, and what is in it could not be seen while something "
            "is mounted there. Choose another folder."
        )
    options = _options(device, kind, mode)
    outcome = commands.execute(
        ["mount", *options, "-t", kind, "--", device, os.path.realpath(folder)], _TIMEOUT
    )
    # Also after a failure: a mount whose caller was killed may have been faster.
    if not _is_mounted(device, folder, mode):
        raise exception.HostError(reason=_why_not(device, folder, options, outcome))


def mounted(device: str, folder: str) -> bool:
    """Tell whether a device is what is mounted at a folder."""
    found = mountinfo.at(folder)
    return found is not None and _is_of(found, device)


def check_unmountable(folder: str) -> None:
    """Find out that a mount could be unmounted; nothing mounted there is a success.

    :raises DeviceBusy: who uses it: processes by their files, mappings, folders and roots, other
        mounts on it, swap and loop devices over its files
    """
    found = mountinfo.at(folder)
    if found is not None and (busy := open_handles.of_mount(found)):
        raise exception.DeviceBusy(device=found.folder, users=open_handles.told(busy))


def unmount(folder: str, *, device: str | None = None) -> None:
    """Unmount what is mounted at a folder; nothing mounted there is a success.

    :param device: unmount nothing but this one; None: whatever is there
    :raises DeviceBusy: who uses it; it stays mounted
    :raises HostError: it is still mounted
    """
    found = mountinfo.at(folder)
    if found is None or (device is not None and not _is_of(found, device)):
        return
    check_unmountable(folder)
    outcome = commands.execute(["umount", "--", found.folder], _TIMEOUT)
    left = mountinfo.at(folder)
    if left is None or left.number != found.number:
        return
    busy = open_handles.of_mount(left) or open_handles.of_file_system(left)
    if busy:
        raise exception.DeviceBusy(device=left.folder, users=open_handles.told(busy))
    raise exception.HostError(reason=f"{left.folder} is still mounted: {outcome.stderr}")


def _is_mounted(device: str, folder: str, mode: str) -> bool:
    """Tell whether a device is mounted at a folder as it should be.

    :raises HostError: something else is mounted there
    """
    found = mountinfo.at(folder)
    if found is None:
        return False
    if not _is_of(found, device):
        raise exception.HostError(
            reason=f"{found.source} is mounted at {folder} already. Unmount it, or choose another "
            f"folder for {device}."
        )
    if found.read_only != (mode == "ro"):
        now = "read-only" if found.read_only else "for writing"
        raise exception.HostError(
            reason=f"{device} is mounted at {folder} {now}, and mode {mode} is wanted. "
            "Unmount it, then repeat the command."
        )
    return True


def _is_of(found: Mount, device: str) -> bool:
    try:
        numbers = device_nodes.look(device).numbers()
    except OSError:
        # A device can be gone while it is mounted.
        return found.source == device
    return any(found.is_of(each) for each in numbers)


def _mountable(device: str) -> str:
    """Return the kind of the file system of a device; raises HostError if there is none."""
    found = probe.probe(device)
    if found is None:
        raise exception.HostError(
            reason=f"{device} has no file system. Have one made with --mkfs, such as --mkfs ext4."
        )
    if found.filesystem is None:
        raise exception.HostError(
            reason=f"{device} carries {found.name}, which cannot be mounted. Attach it without "
            "a mountpoint, and use what is on it by its own means."
        )
    return found.filesystem


def _is_empty(folder: str) -> bool:
    """Let there be a folder, and tell whether it is empty."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        return not any(Path(folder).iterdir())
    except OSError as error:
        raise exception.HostError(
            reason=f"{folder} cannot be used as a mountpoint: {error.strerror}."
        ) from error


def _options(device: str, kind: str, mode: str) -> list[str]:
    if mode != "ro":
        # Said like this, mount does not fall back to reading where writing is refused.
        return ["--rw", "-o", _NETWORK]
    without = _WITHOUT_JOURNAL.get(kind)
    if without is None or (kind in {"ext3", "ext4"} and not _must_recover(device)):
        return ["--read-only", "-o", _NETWORK]
    LOG.info("%s is mounted without its journal, which is not empty or may not be", device)
    return ["--read-only", "-o", f"{_NETWORK},{without}"]


def _must_recover(device: str) -> bool:
    """Tell whether the journal of an ext3 or ext4 has something to say."""
    try:
        with Path(device).open("rb") as file:
            file.seek(_EXT_SUPERBLOCK)
            features = file.read(1024)[_EXT_INCOMPATIBLE]
    except OSError as error:
        raise exception.HostError(reason=f"{device} cannot be read: {error.strerror}.") from error
    return bool(int.from_bytes(features, "little") & _EXT_RECOVER)


def _why_not(device: str, folder: str, options: list[str], outcome: commands.CommandResult) -> str:
    what = f"{device} cannot be mounted at {folder} ({' '.join(options)}): {outcome.stderr}"
    if options[-1] != _NETWORK:
        return (
            f"{what} The device is only to be read, so the journal of its file system could not "
            "be replayed, and without that it is not whole. Have a host that may write mount and "
            "unmount it once, then repeat the command."
        )
    return f"{what} The kernel's messages (dmesg) may tell more."
