# SPDX-License-Identifier: Apache-2.0
"""Compares the journal of a host with its devices, and connects again what a reboot took away.

For client/, which knows whom to ask about an attachment.  Nothing is connected on the journal's
word alone: the service may have given the volume to somebody else meanwhile.
"""

from collections.abc import Callable, Iterator
import dataclasses
import enum
import shlex
from typing import Any

from attachd import exception
from attachd.agent.connectors.qemu import loop_devices, state_dir, storage_daemon
from attachd.agent.host import Host
from attachd.agent.journal import GOING, Entry, Owner, Step
from attachd.agent.mount import format_and_mount, mounts
from attachd.agent.mount.probe import Progress

Current = Callable[[Entry], dict[str, Any] | None]
"""Asks the service for the present connection_info of an attachment; None: it is gone.  Whatever
it raises means that the service cannot be asked."""

_RESTORE = "attachd local-restore"


class Verdict(enum.StrEnum):
    """What is to be done about something that is attached, or was."""

    WHOLE = "whole"
    """Nothing."""
    MISSING = "missing"
    """It was attached, and its device or its mount is not there: restore_host() brings it back."""
    HALF_WAY = "half-way"
    """Somebody was killed on the way there; whoever repeats it goes on."""
    LEAVING = "leaving"
    """Somebody was killed on the way back."""
    OF_AGENT = "of the agent"
    """The agent looks after it."""
    UNKNOWN = "unknown"
    """There is a device of ours that the journal does not know."""
    GONE = "gone"
    """The service had deleted the attachment, and so it was taken away here."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One volume of this host, or one device that is nobody's.

    :ivar path: of the device, or its folder; None: there is none
    :ivar mountpoint: where it should be mounted; None: nowhere
    :ivar advice: the command that brings it in order; "" if nothing has to be done
    :ivar error: why it is not in order, as far as that is known
    """

    verdict: Verdict
    entry: Entry | None = None
    path: str | None = None
    mountpoint: str | None = None
    present: bool = False
    mounted: bool = False
    advice: str = ""
    error: str | None = None


def check_host(host: Host) -> list[Finding]:
    """Compare the journal with the devices; nothing is changed, and nobody is asked.

    :raises HostError: the journal cannot be read
    """
    entries = host.journal.entries()
    return [_find(host, each) for each in entries] + list(_unknown(host, entries))


def restore_host(host: Host, current: Current, progress: Progress) -> list[Finding]:
    """Connect and mount again what was attached by commands; what is there already stays.

    Attachments of the agent, and those on their way there or back, are only told of.  It can be
    repeated: after a crash, and when the service answers again.

    :returns: as check_host(), when all is done, with what failed
    :raises HostError: the journal cannot be read
    """
    gone, errors = [], {}
    # A mountpoint may be on another volume: its mount comes first.
    for each in sorted(host.journal.entries(), key=lambda each: each.mountpoint or ""):
        try:
            with host.journal.held(each.volume_id):
                entry = host.journal.get(each.id)
                if entry is not None and _is_to_restore(entry):
                    gone += _restore(host, entry, current, progress)
        except exception.HostError as error:
            errors[each.id] = f"{error}"
    found = [
        dataclasses.replace(each, error=errors.get(each.entry.id, each.error))
        if each.entry
        else each
        for each in check_host(host)
    ]
    return gone + found


def _is_to_restore(entry: Entry) -> bool:
    whole = entry.step is Step.ATTACHED or (entry.restoring and entry.step not in GOING)
    return whole and entry.owner is Owner.LOCAL


def _find(host: Host, entry: Entry) -> Finding:
    error = entry.error
    try:
        present = host.is_present(entry)
        mounted = present and _is_mounted(entry)
    except exception.HostError as problem:
        present = mounted = False
        error = f"{problem}"
    found = Finding(
        Verdict.WHOLE,
        entry,
        path=entry.device.path if entry.device else None,
        mountpoint=entry.mountpoint,
        present=present,
        mounted=mounted,
        error=error,
    )
    verdict = _verdict(entry, found)
    return dataclasses.replace(found, verdict=verdict, advice=_advice(entry, verdict))


def _verdict(entry: Entry, found: Finding) -> Verdict:
    if entry.owner is Owner.AGENT:
        return Verdict.OF_AGENT
    if entry.step in GOING:
        return Verdict.LEAVING
    if not _is_to_restore(entry):
        return Verdict.HALF_WAY
    whole = found.present and (found.mounted or entry.mountpoint is None)
    return Verdict.WHOLE if whole and entry.step is Step.ATTACHED else Verdict.MISSING


def _advice(entry: Entry, verdict: Verdict) -> str:
    if verdict is Verdict.MISSING:
        return _RESTORE
    if verdict is Verdict.LEAVING:
        named = ["--attachment-id", entry.attachment_id] if entry.attachment_id else []
        return shlex.join(["attachd", "local-detach", *named, entry.volume_id])
    if verdict is not Verdict.HALF_WAY:
        return ""
    words = ["attachd", "local-attach"]
    words += ["--mode", entry.mode] if entry.mode != "rw" else []
    words += ["--mountpoint", entry.mountpoint] if entry.mountpoint else []
    words += ["--mkfs", entry.mkfs] if entry.mkfs else []
    return shlex.join([*words, entry.volume_id])


def _is_mounted(entry: Entry) -> bool:
    if entry.device is None or entry.mountpoint is None:
        return False
    return mounts.is_mounted(entry.device.path, entry.mountpoint)


def _unknown(host: Host, entries: list[Entry]) -> Iterator[Finding]:
    """Tell of user-space devices that run, and are of no entry."""
    infos = (each.connection_info for each in entries)
    known = {state_dir.path_for(host.journal.folder, info) for info in infos if info is not None}
    for folder in sorted((host.journal.folder.resolve() / "devices").glob("*")):
        image = storage_daemon.image_file(folder)
        devices, running = loop_devices.list_over(image), storage_daemon.list_running(folder)
        if folder in known or not (devices or running):
            continue
        words = [["losetup", "--detach", each.path] for each in devices]
        words += [["kill", f"{each.id}"] for each in running]
        yield Finding(
            Verdict.UNKNOWN,
            path=devices[0].path if devices else f"{folder}",
            present=True,
            advice=" && ".join(shlex.join(each) for each in words),
            error=f"The journal knows nothing of it; what it is, its folder tells: {folder}",
        )


def _restore(host: Host, entry: Entry, current: Current, progress: Progress) -> list[Finding]:
    """Have one volume as it was, or no longer, as the service says.

    :returns: that it is gone, if it is
    """
    found = _find(host, entry)
    try:
        info = current(entry)
    except Exception as error:
        if found.verdict is Verdict.WHOLE:
            return []  # It has what it needs, so nothing has to be known.
        host.journal.write(entry, error=_unasked(entry, error))
        raise exception.HostError(reason=_unasked(entry, error)) from error
    if info is None:
        progress(f"The service has deleted the attachment of volume {entry.volume_id}")
        _take_away(host, entry, found)
        return [Finding(Verdict.GONE, entry, found.path, entry.mountpoint)]
    if found.verdict is not Verdict.WHOLE:
        _bring_back(host, entry, found, info, progress)
    return []


def _unasked(entry: Entry, error: Exception) -> str:
    return (
        f"Volume {entry.volume_id} was not connected: the service does not say whether attachment "
        f"{entry.attachment_id} still is this host's ({error}). When it answers again: {_RESTORE}"
    )


def _bring_back(
    host: Host, entry: Entry, found: Finding, info: dict[str, Any], progress: Progress
) -> None:
    journal = host.journal
    try:
        if not found.present:
            host.check(str(info.get("driver_volume_type")))
            progress(f"Connecting volume {entry.volume_id}")
            # The old path may be that of another disk by now.
            entry = journal.write(entry, connection_info=info, device=None, restoring=True)
            entry = host.connect(entry)
        mode = "ro" if info.get("access_mode") == "ro" else entry.mode
        # It had its file system when it was attached: none is made.
        entry = format_and_mount.mount_volume(
            journal, dataclasses.replace(entry, mkfs=None), progress, mode=mode
        )
    except exception.HostError as error:
        latest = journal.get(entry.id) or entry
        journal.write(latest, step=Step.ATTACHED, restoring=False, error=f"{error}")
        raise
    journal.write(entry, step=Step.ATTACHED, restoring=False, error=None)


def _take_away(host: Host, entry: Entry, found: Finding) -> None:
    """Leave nothing of an attachment that the service has deleted.

    :raises DeviceBusy: somebody uses it
    """
    journal = host.journal
    try:
        if found.present:
            entry = format_and_mount.unmount_volume(journal, entry, present=True)
        else:
            entry = journal.write(entry, device=None)
        entry = host.disconnect(entry)
    except exception.DeviceBusy as error:
        latest = journal.get(entry.id) or entry
        reason = f"The service has deleted attachment {entry.attachment_id}, but {error}"
        journal.write(latest, step=Step.ATTACHED, error=reason)
        raise
    journal.remove(entry)
