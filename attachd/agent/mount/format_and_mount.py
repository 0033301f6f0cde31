# SPDX-License-Identifier: Apache-2.0
"""Mount the device of a journal entry, with a new file system if requested, and unmount it.

A device without data may get a file system first.  Meanwhile the entry records it: after a crash
the device has an incomplete file system, which only the same entry may make again, or remove.
"""

from collections.abc import Iterator
import contextlib
import os
from pathlib import Path
from typing import Any
import uuid

from attachd import exception
from attachd.agent.journal import Entry, Journal, Owner, Step
from attachd.agent.mount import filesystems, mounts, open_handles, probe
from attachd.agent.mount.probe import Progress
from attachd.linux import loops, mountinfo
from attachd.linux.confined import ConfinedDirectory

_MAX_LINKS = 40
_NAMESPACE = uuid.UUID("6f1d1a6e-3c57-4c0e-9f0e-0d3f2f4b9a51")


def mount_volume(journal: Journal, entry: Entry, progress: Progress, *, mode: str) -> Entry:
    """Mount the device of an entry at its mountpoint, with a new file system if it requests one.

    It can be repeated after a crash at any point.

    :param entry: its device is there
    :param mode: how the device can be used, rw or ro
    :returns: the entry as stored in the journal
    :raises DeviceBusy: a device that would get a file system is in use
    :raises HostError: it cannot be mounted, or carries data that are no file system
    """
    if entry.mkfs is not None and entry.mountpoint is not None:
        # Before it is made.
        entry.mount_rules.check_type(filesystems.blkid_name(entry.mkfs), "The volume")
    with _usable_device(entry) as device:
        entry = _ensure_filesystem(journal, entry, device, progress)
        return _mount(journal, entry, device, progress, mode)


def _mount(journal: Journal, entry: Entry, device: str, progress: Progress, mode: str) -> Entry:
    if entry.mountpoint is not None:
        mountpoint = entry.mountpoint
        _check_links(journal, entry.id, mountpoint)
        made = dict.fromkeys(
            (*mounts.list_missing_directories(mountpoint), *entry.made_directories)
        )
        entry = _begin(journal, entry, Step.MOUNTING, made_directories=tuple(made))
        progress(f"Mounting {device} at {mountpoint}")
        same_volume = [
            other.device.path
            for other in journal.list_for_volume(entry.volume_id)
            if other.device is not None and (other.id != entry.id or _shared_folder(entry))
        ]
        mounts.mount(
            device, mountpoint, mode=mode, rules=entry.mount_rules, same_volume=same_volume
        )
    return entry


def _begin(journal: Journal, entry: Entry, step: Step, **changes: Any) -> Entry:
    """Record a step; that of an agent's entry stays, since it is about the device."""
    steps = {} if entry.owner is Owner.AGENT else {"step": step}
    return journal.write(entry, **steps, **changes)


def _check_links(journal: Journal, entry_id: str, mountpoint: str) -> None:
    """Check that no symbolic link in the content of a mounted volume is part of a mountpoint.

    Each host that wrote to that volume could lead the mount to any directory of this host.

    :raises HostError: one is
    """
    volumes = [
        Path(os.path.realpath(other.mountpoint))
        for other in journal.list_entries()
        if other.mountpoint is not None and other.id != entry_id
    ]
    for link in _list_links(Path(mountpoint)):
        if any(volume in link.parents for volume in volumes):
            raise exception.HostError(
                reason=f"The mountpoint {mountpoint} leads over {link}, a symbolic link in the "
                "content of another volume, which does not decide where something is mounted. "
                f"Choose {os.path.realpath(mountpoint)} itself if you trust the link."
            )


def _list_links(path: Path) -> Iterator[Path]:
    """Yield the symbolic links of an absolute path, and of what these lead to, by real paths.

    :raises HostError: it has more of them than the kernel follows
    """
    names, folder, count = list(reversed(path.parts[1:])), Path("/"), 0
    while names:
        name = names.pop()
        if name == "..":
            folder = folder.parent
            continue
        try:
            target = (folder / name).readlink()
        except OSError:  # not a link, or nothing
            folder /= name
            continue
        count += 1
        if count > _MAX_LINKS:
            raise exception.HostError(reason=f"The mountpoint {path} has too many links in it.")
        yield folder / name
        if target.is_absolute():
            folder = Path("/")
        names.extend(reversed([part for part in target.parts if part != "/"]))


def flush_volume(entry: Entry, timeout: float = mounts.FLUSH_TIMEOUT) -> None:
    """Write all data of the mount of an entry to its device, if it is mounted.

    :raises HostError: not all is written; the mount stays
    """
    if entry.device is None or entry.mountpoint is None:
        return
    try:
        mounts.flush(entry.mountpoint, entry.device.path, timeout)
    except exception.HostError as error:
        raise exception.HostError(
            reason=f"Not all that was written to {entry.mountpoint} is on the volume: {error} "
            "Repeat the command when the backend is back, or detach it with --force, which loses "
            "what was not written."
        ) from error


def unmount_volume(
    journal: Journal, entry: Entry, progress: Progress = lambda _text: None, *, present: bool
) -> Entry:
    """Unmount the device of an entry; other devices at the mountpoint stay.

    The remnant of an incomplete file system is removed: no other process could recognize it.

    :param present: whether the device is there, as Host.is_present() returns it.  If it is not,
        its path may be another disk by now, which is not touched.
    :returns: the entry as stored in the journal, without a mountpoint
    :raises DeviceBusy: the mount is in use, and stays
    :raises HostError: it is still mounted
    """
    device, mountpoint = entry.device, entry.mountpoint
    if mountpoint is not None:
        entry = _begin(journal, entry, Step.UNMOUNTING)
        if device is not None:
            mounts.unmount(mountpoint, device=device.path)
        entry = forget_mountpoint(journal, entry)
    if entry.formatting is not None and device is not None and present:
        open_handles.check_unused(device.path)
        with _usable_device(entry) as path:
            if filesystems.is_own_remnant(path, entry.formatting, filesystem_uuid(entry)):
                _wipe(entry, path, progress)
    if device is not None and _shared_folder(entry):
        # Of a process that was killed.
        for loop in loops.list_made_for(Path(device.path)):
            _release(loop)
    return journal.write(entry, formatting=None)


def forget_mountpoint(journal: Journal, entry: Entry) -> Entry:
    """Remove the directories that were made for a mountpoint, as far as they are empty.

    :returns: the entry as stored in the journal, without a mountpoint
    """
    for directory in entry.made_directories:
        with contextlib.suppress(OSError):
            Path(directory).rmdir()
    return journal.write(entry, mountpoint=None, made_directories=())


def filesystem_uuid(entry: Entry) -> str:
    """Return the UUID of the file systems that are made for an entry."""
    return f"{uuid.uuid5(_NAMESPACE, entry.id)}"


@contextlib.contextmanager
def _usable_device(entry: Entry) -> Iterator[str]:
    """Return the device of an entry, whose path leads to it until the end of the block.

    A plain file in a directory to which other hosts may write gets a loop device, which goes away
    with its mount: its name could be a link to another file by the time when a command uses it.

    :raises HostError: what has the name of the file is no file, or there is no loop device
    """
    assert entry.device is not None
    path, folder = entry.device.path, _shared_folder(entry)
    if not folder or entry.mkfs == entry.mountpoint == entry.formatting is None:
        yield path
        return
    if entry.mountpoint is not None and mounts.is_mounted(path, entry.mountpoint):
        mount = mountinfo.find_at(entry.mountpoint)
        assert mount is not None
        yield mount.source
        return
    try:
        file = ConfinedDirectory(Path(folder)).open(Path(path), os.O_RDWR)
        try:
            device = loops.configure(file, Path(path))
        finally:
            os.close(file)
    except (OSError, ValueError) as error:
        raise exception.HostError(
            reason=f"The file of the volume cannot be used: {error}. Each host that reaches "
            f"{folder} can replace it: let the administrator of the storage check what is there."
        ) from error
    try:
        yield device
    finally:
        _release(device)


def _shared_folder(entry: Entry) -> str | None:
    """Return the directory of a plain file to which other hosts may write; None: it is none."""
    folder: str | None = (entry.connection_info or {}).get("folder")
    return folder


def _release(loop: str) -> None:
    with contextlib.suppress(OSError):
        loops.release(loop)


def _ensure_filesystem(journal: Journal, entry: Entry, device: str, progress: Progress) -> Entry:
    fs_type = entry.mkfs
    if entry.formatting is not None:
        if fs_type is None:
            raise exception.HostError(
                reason=f"{device} has only part of a file system: mkfs.{entry.formatting} was "
                f"ended before it was whole. Repeat the command with --mkfs {entry.formatting}, "
                "or detach the volume."
            )
        progress(f"Making {fs_type} on {device} once more")
        return _create_filesystem(journal, entry, device, progress)
    found = None if fs_type is None else filesystems.get_type(device)
    if fs_type is None or (found is not None and filesystems.is_type(found, fs_type)):
        return entry
    # Also where the device carries other data, which are refused by name.
    filesystems.check_can_create(device, fs_type)
    if entry.assume_empty:
        probe.check_no_signature(device)
    else:
        probe.check_empty(device, progress)
    entry = journal.write(entry, formatting=fs_type)
    return _create_filesystem(journal, entry, device, progress)


def _create_filesystem(journal: Journal, entry: Entry, device: str, progress: Progress) -> Entry:
    """Make a file system on a device that was empty when ``entry.formatting`` was set."""
    assert entry.formatting is not None
    assert entry.mkfs is not None
    fs_type, uuid_ = entry.mkfs, filesystem_uuid(entry)
    filesystems.check_can_create(device, fs_type)
    if not filesystems.is_own_remnant(device, entry.formatting, uuid_):
        journal.write(entry, formatting=None)
        raise exception.HostError(
            reason=f"{device} was empty when mkfs.{entry.formatting} was begun on it, and has "
            "other contents since: no file system is made on it. Repeat the command to mount "
            "what is there."
        )
    # Before another type is begun: afterwards the remnant could not be recognized.
    filesystems.wipe_signatures(device)
    entry = journal.write(entry, formatting=fs_type)
    try:
        filesystems.create(device, fs_type, progress, uuid_)
    except (Exception, KeyboardInterrupt):
        # Each later attempt would refuse the remnant as data.
        with contextlib.suppress(exception.HostError):
            _wipe(entry, device, progress)
            journal.write(entry, formatting=None)
        raise
    return journal.write(entry, formatting=None)


def _wipe(entry: Entry, device: str, progress: Progress) -> None:
    """Remove an incomplete file system, as far as the next attempt would refuse it."""
    if entry.assume_empty:
        filesystems.wipe_signatures(device)
    else:
        filesystems.wipe(device, progress)
