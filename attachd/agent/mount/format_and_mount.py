# SPDX-License-Identifier: Apache-2.0
"""Puts the device of an entry where people want it, and takes it away; for client/ and agent.

A device without data may get a file system first.  While that is made the entry says so: whoever
is killed meanwhile leaves something that is no file system yet, and only the same entry may make
it again, or take it away.
"""

import contextlib
import uuid

from attachd import exception
from attachd.agent.journal import Entry, Journal, Step
from attachd.agent.mount import filesystems, mounts, probe
from attachd.agent.mount.probe import Progress

_OURS = uuid.UUID("6f1d1a6e-3c57-4c0e-9f0e-0d3f2f4b9a51")


def place(journal: Journal, entry: Entry, progress: Progress, *, mode: str) -> Entry:
    """Mount the device of an entry where the entry says, with a file system if it says so.

    It can be repeated after a crash, however far it had come.

    :param entry: its device is there
    :param mode: how the device can be used, rw or ro
    :returns: the entry as it is in the journal
    :raises DeviceBusy: somebody uses a device that would get a file system
    :raises HostError: it cannot be mounted, or carries other data than a file system
    """
    entry = _with_filesystem(journal, entry, progress)
    assert entry.device is not None
    if entry.mountpoint is not None:
        device, folder = entry.device.path, entry.mountpoint
        entry = journal.write(entry, step=Step.MOUNTING)
        progress(f"Mounting {device} at {folder}")
        mounts.mount(device, folder, mode=mode)
    return entry


def displace(journal: Journal, entry: Entry, *, present: bool) -> Entry:
    """Take the device of an entry from where it is mounted; what else is there stays.

    What is left of a file system that was never whole goes: nobody else could tell that it is not.

    :param present: whether the device is there, as Host.is_present() tells.  If it is not, its
        path may be another disk's by now, to which nothing is done.
    :returns: the entry as it is in the journal, without a mountpoint
    :raises DeviceBusy: somebody uses what is mounted; it stays mounted
    :raises HostError: it is still mounted
    """
    device, folder = entry.device, entry.mountpoint
    if folder is not None:
        entry = journal.write(entry, step=Step.UNMOUNTING)
        if device is not None:
            mounts.unmount(folder, device=device.path)
        entry = journal.write(entry, mountpoint=None)
    if entry.formatting is not None and device is not None and present:
        mounts.check_unused(device.path)
        if filesystems.is_left(device.path, entry.formatting, uuid_of(entry)):
            filesystems.unmake(device.path)
    return journal.write(entry, formatting=None)


def uuid_of(entry: Entry) -> str:
    """Return the UUID of the file systems that are made for an entry."""
    return f"{uuid.uuid5(_OURS, entry.id)}"


def _with_filesystem(journal: Journal, entry: Entry, progress: Progress) -> Entry:
    assert entry.device is not None
    device, kind = entry.device.path, entry.mkfs
    if entry.formatting is not None:
        if kind is None:
            raise exception.HostError(
                reason=f"{device} has only part of a file system: mkfs.{entry.formatting} was "
                f"ended before it was whole. Repeat the command with --mkfs {entry.formatting}, "
                "or detach the volume."
            )
        progress(f"Making {kind} on {device} once more")
        return _make(journal, entry, kind, progress)
    found = None if kind is None else mounts.filesystem(device)
    if kind is None or (found is not None and filesystems.is_kind(found, kind)):
        return entry
    # Also of something else that is there, which is refused by name.
    filesystems.check_makeable(device, kind)
    probe.check_empty(device, progress)
    return _make(journal, journal.write(entry, formatting=kind), kind, progress)


def _make(journal: Journal, entry: Entry, kind: str, progress: Progress) -> Entry:
    """Make a file system on a device that was empty when this was begun."""
    assert entry.device is not None
    assert entry.formatting is not None
    device, named = entry.device.path, uuid_of(entry)
    filesystems.check_makeable(device, kind)
    if not filesystems.is_left(device, entry.formatting, named):
        journal.write(entry, formatting=None)
        raise exception.HostError(
            reason=f"{device} was empty when mkfs.{entry.formatting} was begun on it, and "
            "somebody else has used it since: no file system is made on it. Repeat the command "
            "to mount what is there."
        )
    # Before another kind may be begun: afterwards nobody could tell whose this is.
    filesystems.forget(device)
    entry = journal.write(entry, formatting=kind)
    try:
        filesystems.make(device, kind, progress, named)
    except (Exception, KeyboardInterrupt):
        # What is left would be refused as data by everybody who comes later.
        with contextlib.suppress(exception.HostError):
            filesystems.unmake(device)
            journal.write(entry, formatting=None)
        raise
    return journal.write(entry, formatting=None)
