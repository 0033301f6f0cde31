# SPDX-License-Identifier: Apache-2.0
"""Mount and unmount devices of this host; each function can be repeated after a crash.

Nothing is forced: what is in use stays mounted, and the error names the users.
"""

from collections.abc import Collection, Sequence
import functools
import os
from pathlib import Path

from attachd import exception
from attachd.agent.mount import copies, mount_rules, open_handles, probe
from attachd.agent.mount.mount_rules import MountRules
from attachd.linux import block_device, commands, device_nodes, loops, mountinfo
from attachd.linux.commands import CommandResult
from attachd.linux.mountinfo import Mount

TOOLS = ("blkid", "mount", "umount")
"""The commands that mount() and unmount() run."""

PACKAGES = {
    "blkid": "util-linux",
    "fstrim": "util-linux",
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
"""Debian's packages by command."""

FLUSH_TIMEOUT = _TIMEOUT = 600.0
"""Seconds.  A journal may have to be replayed, or cached data to be written."""

_NETWORK = "_netdev"
"""Lets a host that shuts down unmount it before it leaves the network."""

_EXT_TYPES = frozenset({"ext2", "ext3", "ext4"})
# Offsets on the device and lengths, in struct ext4_super_block.
_EXT_COMPATIBLE = (1024 + 0x5C, 4)
_EXT_HAS_JOURNAL = 0x4
_EXT_JOURNAL_INODE = (1024 + 0xE0, 4)


def missing_tools(tools: Sequence[str]) -> list[str]:
    """List the commands that this host does not have, each with its package if known."""
    missing = (tool for tool in tools if commands.which(tool) is None)
    return [f"{tool} (package {PACKAGES[tool]})" if tool in PACKAGES else tool for tool in missing]


def mount(
    device: str,
    mountpoint: str,
    *,
    mode: str,
    rules: MountRules = mount_rules.DEFAULTS,
    same_volume: Collection[str] = (),
) -> None:
    """Mount a device at a directory, which is made if it is missing; success if it is mounted.

    The copy of a volume is mounted beside its original, whose UUID it has.

    :param mountpoint: an absolute path
    :param mode: "ro" writes nothing to the device, not even what its journal contains: a file
        system that needs that is refused, unless the rules have it mounted without its journal
    :param rules: what the mount permits; one that is there already stays as it is
    :param same_volume: other devices of this host with the same data, which are no copies
    :raises HostError: it cannot be mounted there; at most the directory was made
    """
    if not Path(mountpoint).is_absolute():
        raise exception.HostError(reason=f"{mountpoint} is no absolute path of a directory.")
    if _is_mounted_as(device, mountpoint, mode):
        return
    fs_type = _permitted_type(device, rules)
    if not _is_empty_directory(mountpoint):
        # Another process may have mounted the same device meanwhile.
        if _is_mounted_as(device, mountpoint, mode):
            return
        raise exception.HostError(
            reason=f"{mountpoint} is not empty, and what is in it could not be seen while "
            "something is mounted there. Choose another directory."
        )
    result = _mount_once(device, mountpoint, fs_type, mode, rules, same_volume)
    # Also after a failure: the mount command of a killed process may have been faster.
    if not _is_mounted_as(device, mountpoint, mode):
        raise _not_mounted(device, mountpoint, fs_type, mode, result)


def _mount_once(
    device: str,
    mountpoint: str,
    fs_type: str,
    mode: str,
    rules: MountRules,
    same_volume: Collection[str],
) -> CommandResult:
    """Mount a device; returns the result of the command that the kernel had a reason to refuse."""
    copies.check_unique(device, fs_type)
    run = functools.partial(_run_mount, device, mountpoint, fs_type)
    if mode == "ro":
        copies.check_clean(device, fs_type, rules)
        uuid_option = [copies.NO_UUID] if fs_type == "xfs" else []
        result = run(["--read-only", "-o", _join_options(fs_type, rules, *uuid_option)])
    else:
        # With --rw, mount does not fall back to read-only where writing is refused.
        result = run(["--rw", "-o", _join_options(fs_type, rules)])
        if result.exit_code and fs_type == "xfs":
            copies.check_no_other_path(device, same_volume)
            run(["--rw", "-o", _join_options(fs_type, rules, copies.NO_UUID)])
    return result


def _not_mounted(
    device: str, mountpoint: str, fs_type: str, mode: str, result: CommandResult
) -> exception.HostError:
    if mode == "ro" and copies.is_refused_as_unclean(fs_type, result):
        return copies.unclean_error(device, fs_type)
    return exception.HostError(
        reason=f"{device} cannot be mounted at {mountpoint}: {result.stderr} The kernel's "
        "messages (dmesg) may have the reason."
    )


def _run_mount(
    device: str, mountpoint: str, fs_type: str, options: Sequence[str]
) -> CommandResult:
    line = ["mount", *options, "-t", fs_type, "--", device, os.path.realpath(mountpoint)]
    return commands.execute(line, _TIMEOUT)


def list_missing_directories(mountpoint: str) -> list[str]:
    """List the directories that mount() will make, the deepest first."""
    return [
        f"{path}" for path in (Path(mountpoint), *Path(mountpoint).parents) if not _exists(path)
    ]


def is_mounted(device: str, mountpoint: str) -> bool:
    """Return whether a device is what is mounted at a mountpoint."""
    current = mountinfo.find_at(mountpoint)
    return current is not None and _is_of(current, device)


def check_unmountable(mountpoint: str) -> None:
    """Check that a mount is not in use; success if nothing is mounted there.

    :raises DeviceBusy: it is in use; the message names the users: processes with their files,
        mappings, working directories and roots, other mounts on it, swap and loop devices over
        its files
    """
    current = mountinfo.find_at(mountpoint)
    if current is not None and (users := open_handles.list_mount_users(current)):
        raise exception.DeviceBusy(
            device=current.mountpoint, users=open_handles.format_users(users)
        )


def unmount(mountpoint: str, *, device: str | None = None) -> None:
    """Unmount what is mounted at a mountpoint; success if nothing is.

    :param device: unmount only this one; None: any device
    :raises DeviceBusy: it is in use, and stays mounted; the message names the users
    :raises HostError: it is still mounted
    """
    current = mountinfo.find_at(mountpoint)
    if current is None or (device is not None and not _is_of(current, device)):
        return
    check_unmountable(mountpoint)
    result = commands.execute(["umount", "--", current.mountpoint], _TIMEOUT)
    remaining = mountinfo.find_at(mountpoint)
    if remaining is None or remaining.mount_id != current.mount_id:
        return
    users = open_handles.list_mount_users(remaining)
    users = users or open_handles.list_filesystem_users(remaining)
    if users:
        raise exception.DeviceBusy(
            device=remaining.mountpoint, users=open_handles.format_users(users)
        )
    raise exception.HostError(reason=f"{remaining.mountpoint} is still mounted: {result.stderr}")


def flush(mountpoint: str, device: str, timeout: float) -> None:
    """Write all data of a mounted file system to its device; success if it is not mounted.

    :param timeout: in seconds, in which nothing is written
    :raises HostError: not all is written, or the result is unknown; the mount stays
    """
    if is_mounted(device, mountpoint):
        commands.run(
            "sync",
            "--file-system",
            mountpoint,
            timeout=timeout,
            progress=lambda: block_device.count_writes(device),
        )


def cut(mountpoint: str, device: str) -> None:
    """Detach a mount from the tree though it is in use; success if it is not mounted.

    Processes keep the files that they have open, and with them the device.

    :raises HostError: it is still mounted
    """
    while is_mounted(device, mountpoint):
        commands.run("umount", "--lazy", "--no-canonicalize", "--", mountpoint)


def _is_mounted_as(device: str, mountpoint: str, mode: str) -> bool:
    """Return whether a device is mounted at a mountpoint in a mode.

    :raises HostError: another device, or another mode, is mounted there
    """
    current = mountinfo.find_at(mountpoint)
    if current is None:
        return False
    if not _is_of(current, device):
        raise exception.HostError(
            reason=f"{current.source} is mounted at {mountpoint} already. Unmount it, or choose "
            f"another directory for {device}."
        )
    if current.read_only != (mode == "ro"):
        now = "read-only" if current.read_only else "for writing"
        raise exception.HostError(
            reason=f"{device} is mounted at {mountpoint} {now}, and mode {mode} is requested. "
            "Unmount it, then repeat the command."
        )
    return True


def _is_of(current: Mount, device: str) -> bool:
    number = f"{os.major(current.device)}:{os.minor(current.device)}"
    if loops.is_made_for(Path("/sys/dev/block") / number / "loop", Path(device)):
        return True  # a plain file, which may have been replaced
    try:
        numbers = device_nodes.stat_device(device).device_numbers()
    except OSError:
        # A device can be gone while it is mounted.
        return current.source == device
    return any(current.is_of_device(number) for number in numbers)


def _permitted_type(device: str, rules: MountRules) -> str:
    """Return the file system type of a device, which the rules permit; raises HostError."""
    fs_type = _mountable_type(device)
    rules.check_type(fs_type, device)
    if fs_type in _EXT_TYPES and not rules.names_journal:
        _check_own_journal(device)
    return fs_type


def _mountable_type(device: str) -> str:
    """Return the file system type of a device; raises HostError if there is none."""
    contents = probe.detect(device)
    if contents is None:
        raise exception.HostError(
            reason=f"{device} has no file system. Have one made with --mkfs, such as --mkfs ext4."
        )
    if contents.filesystem is None:
        raise exception.HostError(
            reason=f"{device} carries {contents.name}, which cannot be mounted. Attach it without "
            f"a mountpoint, and use what is on it by its own means.{copies.advice(contents)}"
        )
    return contents.filesystem


def _exists(path: Path) -> bool:
    """Return whether there is something at a path, without a request to a file server."""
    try:
        device_nodes.statx(path)
    except FileNotFoundError:
        return False
    except OSError:
        pass  # It is there, and cannot be reached.
    return True


def _is_empty_directory(path: str) -> bool:
    """Make a directory if it is missing, and return whether it is empty."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        return not any(Path(path).iterdir())
    except OSError as error:
        raise exception.HostError(
            reason=f"{path} cannot be used as a mountpoint: {error.strerror}."
        ) from error


def _join_options(fs_type: str, rules: MountRules, *more: str) -> str:
    return ",".join([_NETWORK, *more, rules.options_for(fs_type)])


def _check_own_journal(device: str) -> None:
    """Check that an ext file system does not name another device of the host as its journal.

    The kernel would write there.  The mount options in the file system can name one as well, but
    only of a file system without a journal of its own.

    Source: the kernel's ext4_load_journal().
    """
    has_journal = copies.read_number(device, *_EXT_COMPATIBLE) & _EXT_HAS_JOURNAL
    if has_journal and not copies.read_number(device, *_EXT_JOURNAL_INODE):
        raise exception.HostError(
            reason=f"The file system on {device} has its journal on another device, which the "
            "content of the volume names: it is not mounted. If that device is right, name it "
            "by the mount option journal_path."
        )
