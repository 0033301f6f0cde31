# SPDX-License-Identifier: Apache-2.0
"""Compare the journal of a host with its devices, and attach again after a reboot.

Used by client/, which asks the service about each attachment.  Nothing is connected by the journal
alone: the service may have given the volume to another host meanwhile.
"""

from collections.abc import Callable, Iterator
import dataclasses
import enum
import shlex
from typing import Any

from attachd import exception
from attachd.agent.connectors.qemu import loop_devices, state_dir, storage_daemon
from attachd.agent.host import Host
from attachd.agent.journal import TEARDOWN_STEPS, Entry, Owner, Step
from attachd.agent.mount import format_and_mount, mounts
from attachd.agent.mount.probe import Progress

GetConnection = Callable[[Entry], dict[str, Any] | None]
"""Asks the service for the present connection_info of an attachment; None: it was deleted.  Any
exception means that the service cannot be asked."""

_RESTORE = "attachd local-restore"
_FLUSH_TIMEOUT = 10.0
"""Seconds without a write of a flush to a backend that may refuse this host, as the attachment was
deleted.
"""


class Verdict(enum.StrEnum):
    """The state of an attachment or device of this host."""

    OK = "ok"
    """It is attached, and mounted if it should be."""
    MISSING = "missing"
    """It was attached, and its device or mount is not there: restore_host() attaches it again."""
    ATTACH_INTERRUPTED = "attach interrupted"
    """An attach was interrupted; the same command finishes it."""
    DETACH_INTERRUPTED = "detach interrupted"
    """A detach was interrupted; the same command finishes it."""
    AGENT_MANAGED = "managed by the agent"
    """The agent maintains it."""
    UNKNOWN = "unknown"
    """A device that a connector has made, and that is not in the journal."""
    DELETED = "deleted"
    """The service had deleted the attachment; it was detached from this host."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One volume of this host, or one device without an entry.

    :ivar path: of the device, or its directory; None: there is none
    :ivar advice: the command that removes a device without an entry
    :ivar error: what is wrong, as far as that is known
    """

    verdict: Verdict
    entry: Entry | None = None
    path: str | None = None
    present: bool = False
    advice: str = ""
    error: str | None = None


def check_host(host: Host) -> list[Finding]:
    """Compare the journal with the devices; nothing is changed, and the service is not asked.

    :raises HostError: the journal cannot be read
    """
    entries = host.journal.list_entries()
    return [_check_entry(host, entry) for entry in entries] + list(_find_unknown(host, entries))


def restore_host(host: Host, get_connection: GetConnection, progress: Progress) -> list[Finding]:
    """Connect and mount again what was attached by commands; what is there already stays.

    Attachments of the agent, and interrupted attaches and detaches, are only reported.  It can be
    repeated: after a crash, and when the service answers again.

    :returns: as check_host() afterwards, with the errors of what failed
    :raises HostError: the journal cannot be read
    """
    deleted, errors = [], {}
    # A mountpoint may be on another volume, whose mount comes first.
    by_mountpoint = sorted(host.journal.list_entries(), key=lambda entry: entry.mountpoint or "")
    for listed in by_mountpoint:
        try:
            with host.journal.volume_lock(listed.volume_id):
                entry = host.journal.get(listed.id)
                if entry is not None and _was_attached(entry):
                    deleted += _restore(host, entry, get_connection, progress)
        except exception.HostError as error:
            errors[listed.id] = f"{error}"
    findings = [
        dataclasses.replace(finding, error=errors.get(finding.entry.id, finding.error))
        if finding.entry
        else finding
        for finding in check_host(host)
    ]
    return deleted + findings


def _was_attached(entry: Entry) -> bool:
    attached = entry.step is Step.ATTACHED
    attached = attached or (entry.restoring and entry.step not in TEARDOWN_STEPS)
    return attached and entry.owner is Owner.LOCAL


def _check_entry(host: Host, entry: Entry) -> Finding:
    message = entry.error
    try:
        present = host.is_present(entry)
        mounted = present and _is_mounted(entry)
    except exception.HostError as error:
        present = mounted = False
        message = f"{error}"
    verdict = _verdict(entry, present=present, mounted=mounted)
    path = entry.device.path if entry.device else None
    return Finding(verdict, entry, path, present=present, error=message)


def _verdict(entry: Entry, *, present: bool, mounted: bool) -> Verdict:
    if entry.owner is Owner.AGENT:
        return Verdict.AGENT_MANAGED
    if entry.step in TEARDOWN_STEPS:
        return Verdict.DETACH_INTERRUPTED
    if not _was_attached(entry):
        return Verdict.ATTACH_INTERRUPTED
    complete = present and (mounted or entry.mountpoint is None)
    return Verdict.OK if complete and entry.step is Step.ATTACHED else Verdict.MISSING


def _is_mounted(entry: Entry) -> bool:
    if entry.device is None or entry.mountpoint is None:
        return False
    return mounts.is_mounted(entry.device.path, entry.mountpoint)


def _find_unknown(host: Host, entries: list[Entry]) -> Iterator[Finding]:
    """Yield the devices of the QEMU connector that have no entry."""
    state_path = host.journal.state_path
    infos = (entry.connection_info for entry in entries)
    known = {state_dir.path_for(state_path, info) for info in infos if info is not None}
    for directory in sorted((state_path.resolve() / "devices").glob("*")):
        loops = loop_devices.list_over(storage_daemon.image_file(directory))
        daemons = storage_daemon.list_running(directory)
        if directory in known or not (loops or daemons):
            continue
        lines = [["losetup", "--detach", loop.path] for loop in loops]
        lines += [["kill", f"{daemon.id}"] for daemon in daemons]
        yield Finding(
            Verdict.UNKNOWN,
            path=loops[0].path if loops else f"{directory}",
            present=True,
            advice=" && ".join(shlex.join(line) for line in lines),
            error=f"The journal has no entry of it; its files are in {directory}",
        )


def _restore(
    host: Host, entry: Entry, get_connection: GetConnection, progress: Progress
) -> list[Finding]:
    """Attach one volume again, or detach it if the service has deleted the attachment.

    :returns: a finding if it was deleted
    """
    finding = _check_entry(host, entry)
    try:
        info = get_connection(entry)
    except Exception as error:
        if finding.verdict is Verdict.OK:
            return []  # Nothing has to be done, so the service is not needed.
        message = _not_asked(entry, error)
        host.journal.write(entry, error=message)
        raise exception.HostError(reason=message) from error
    if info is None:
        progress(f"The service has deleted the attachment of volume {entry.volume_id}")
        _detach(host, entry, finding)
        return [Finding(Verdict.DELETED, entry, finding.path)]
    if finding.verdict is not Verdict.OK:
        _reattach(host, entry, finding, info, progress)
    return []


def _not_asked(entry: Entry, error: Exception) -> str:
    return (
        f"Volume {entry.volume_id} was not connected: the service does not say whether attachment "
        f"{entry.attachment_id} still is this host's ({error}). When it answers again: {_RESTORE}"
    )


def _reattach(
    host: Host, entry: Entry, finding: Finding, info: dict[str, Any], progress: Progress
) -> None:
    """Connect and mount a volume; no file system is made."""
    journal = host.journal
    try:
        if not finding.present:
            host.check(str(info.get("driver_volume_type")))
            # Also because the former path may be that of another disk by now.
            entry = host.clear_dead_device(entry)
            progress(f"Connecting volume {entry.volume_id}")
            entry = journal.write(entry, connection_info=info, restoring=True)
            entry = host.connect(entry)
        mode = "ro" if info.get("access_mode") == "ro" else entry.mode
        entry = dataclasses.replace(entry, mkfs=None)
        entry = format_and_mount.mount_volume(journal, entry, progress, mode=mode)
    except exception.HostError as error:
        latest = journal.get(entry.id) or entry
        journal.write(latest, step=Step.ATTACHED, restoring=False, error=f"{error}")
        raise
    journal.write(entry, step=Step.ATTACHED, restoring=False, error=None)


def _detach(host: Host, entry: Entry, finding: Finding) -> None:
    """Detach a volume whose attachment the service has deleted.

    :raises DeviceBusy: it is in use
    :raises HostError: it is still there, such as because data cannot be saved
    """
    journal = host.journal
    try:
        if finding.present or host.is_dead(entry):
            format_and_mount.flush_volume(entry, _FLUSH_TIMEOUT)
            entry = format_and_mount.unmount_volume(journal, entry, present=finding.present)
        else:
            entry = journal.write(entry, device=None)
        entry = host.disconnect(entry)
    except exception.HostError as error:
        latest = journal.get(entry.id) or entry
        reason = f"The service has deleted attachment {entry.attachment_id}, but {error}"
        step = Step.ATTACHED if isinstance(error, exception.DeviceBusy) else latest.step
        journal.write(latest, step=step, error=reason)
        raise
    journal.remove(entry)
