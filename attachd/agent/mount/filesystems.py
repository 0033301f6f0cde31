# SPDX-License-Identifier: Apache-2.0
"""Makes file systems on devices without data; for format_and_mount.py, which knows who may.

A file system gets a UUID that its maker knows beforehand.  So whoever comes after a crash can
tell what that maker left behind, half-made or whole, from anything else that got there.
"""

from collections.abc import Sequence
import os
import re
import time

from attachd import exception
from attachd.agent import commands
from attachd.agent.mount import open_handles, probe
from attachd.agent.mount.probe import Progress

DATA = "data"
"""What filesystem() says of what is neither nothing nor a file system."""

_KIND = re.compile(r"[a-z][a-z0-9_]{0,15}")
_TIMEOUT = 300.0
_UUID_OPTIONS = {
    "btrfs": "-U{}",
    "ext2": "-U{}",
    "ext3": "-U{}",
    "ext4": "-U{}",
    "xfs": "-muuid={}",
}
_KNOWN_AS = {"fat": "vfat", "msdos": "vfat"}

# struct ext4_super_block
_EXT_SUPERBLOCK = 1024
_EXT_MOUNTED_AT = slice(0x2C, 0x30)


def filesystem(device: str) -> str | None:
    """Tell what is on a device, as it is now.

    :returns: the kind of the file system; "data" for a partition table, a member of something
        larger, an encrypted disk and the like; None: blkid knows of nothing
    :raises HostError: it cannot be read
    """
    found = probe.probe(device)
    if found is None:
        return None
    return found.filesystem or DATA


def command_for(kind: str) -> str:
    """Return the command that makes a kind of file system, such as mkfs.ext4.

    :raises HostError: no file system can be called that
    """
    if not _KIND.fullmatch(kind):
        raise exception.HostError(reason=f"{kind!r} is no kind of a file system.")
    return f"mkfs.{kind}"


def is_kind(found: str, kind: str) -> bool:
    """Tell whether what is found is what mkfs.KIND makes."""
    return found == _KNOWN_AS.get(kind, kind)


def make_filesystem(
    device: str, kind: str, progress: Progress, *, uuid: str | None = None
) -> None:
    """Make a file system on a device without data; probe.py tells how that is found out.

    Where it is killed, what it has left is data for whoever repeats it; see format_and_mount.py.

    :param kind: one for which the host has mkfs.KIND
    :param uuid: what the file system is to be known by; None: any
    :raises DeviceBusy: somebody uses the device
    :raises HostError: it carries data, which stay as they are; or it was not made
    """
    check_makeable(device, kind)
    probe.check_empty(device, progress)
    make(device, kind, progress, uuid)


def is_left(device: str, kind: str, uuid: str) -> bool:
    """Tell whether a device that was empty carries no more than what was left of making it.

    :param kind: of the file system that was begun
    :param uuid: of it
    """
    found = probe.probe(device)
    if found is None:
        return True
    if kind in _UUID_OPTIONS:
        return found.uuid == uuid and not _was_mounted(device, found.filesystem or "")
    return is_kind(found.filesystem or DATA, kind)


def forget(device: str) -> None:
    """Remove all signatures from a device, be they whole or not; raises HostError."""
    _run(["wipefs", "--all", "--quiet", device])


def unmake(device: str) -> None:
    """Let a device that was empty be so again, after a file system was begun on it.

    :raises HostError: it is not
    """
    forget(device)
    probe.erase(device)


def check_makeable(device: str, kind: str) -> None:
    """Find out that a file system of a kind could be made, whatever is on the device.

    :raises DeviceBusy: somebody uses the device
    :raises HostError: the host does not have mkfs.KIND, or there is no such kind
    """
    command = command_for(kind)
    if commands.which(command) is None:
        raise exception.HostError(reason=f"This host does not have the command {command}.")
    open_handles.check_unused(device)


def make(device: str, kind: str, progress: Progress, uuid: str | None) -> None:
    """Make a file system on what is surely nobody's; raises HostError if it is not whole."""
    command = command_for(kind)
    began = time.monotonic()

    def waiting() -> None:
        progress(f"{command} on {device}: {time.monotonic() - began:.0f} s")

    named = [_UUID_OPTIONS[kind].format(uuid)] if uuid and kind in _UUID_OPTIONS else []
    outcome = commands.run_long([command, *named, device], waiting)
    if outcome.exit_code:
        raise exception.HostError(
            reason=f"{command} failed on {device} ({outcome.exit_code}): {outcome.stderr}"
        )
    _flush(device)
    found = filesystem(device)
    if found is None or not is_kind(found, kind):
        raise exception.HostError(
            reason=f"{command} ended on {device}, and there is {found or 'nothing'} on it."
        )


def _flush(device: str) -> None:
    """Let what was written be on the disk before anybody notes that it is."""
    file = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    except OSError as error:
        raise exception.HostError(reason=f"{device} cannot be written: {error}.") from error
    finally:
        os.close(file)


def _was_mounted(device: str, kind: str) -> bool:
    """Tell whether a file system has been used since it was made, where it notes that itself."""
    if not kind.startswith("ext"):
        return False
    with open(device, "rb") as file:  # noqa: PTH123  a device, not a path to somewhere
        file.seek(_EXT_SUPERBLOCK)
        return any(file.read(1024)[_EXT_MOUNTED_AT])


def _run(arguments: Sequence[str]) -> None:
    outcome = commands.execute(arguments, _TIMEOUT)
    if outcome.exit_code:
        raise exception.HostError(reason=f"{' '.join(arguments)} failed: {outcome.stderr}")
