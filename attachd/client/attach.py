# SPDX-License-Identifier: Apache-2.0
"""Attach a volume to this host, from the step at which an earlier attempt ended; for client.py.

Each step is recorded in the journal before it is done, and each can be repeated.
"""

from collections.abc import Callable
import dataclasses
import os
from pathlib import Path
from typing import Any

from attachd import exception, host_identity
from attachd.agent.connectors.base import Options
from attachd.agent.host import Host
from attachd.agent.journal import TEARDOWN_STEPS, Entry, Owner, Step
from attachd.agent.mount import filesystems, format_and_mount, mount_rules, mounts
from attachd.agent.mount.mount_rules import MountRules
from attachd.client.detach import Detacher, command
from attachd.client.growth import VolumeGrowth
from attachd.client.service import RemoteAttachment, ReservationRefused, Service, Volume


@dataclasses.dataclass(frozen=True)
class AttachRequest:
    """Parameters of an attach, as in Client.attach()."""

    mode: str = "rw"
    mountpoint: str | None = None
    mkfs: str | None = None
    options: Options = dataclasses.field(default_factory=Options)
    assume_empty: bool = False
    mount_rules: MountRules = mount_rules.DEFAULTS
    grow_fs: bool = False

    @classmethod
    def from_entry(cls, entry: Entry) -> "AttachRequest":
        """Return the parameters that an entry was created with."""
        return cls(
            *(entry.mode, entry.mountpoint, entry.mkfs, entry.options, entry.assume_empty),
            entry.mount_rules,
            entry.grow_fs,
        )

    def tools(self) -> list[str]:
        """Return the required commands."""
        making = [filesystems.mkfs_command(self.mkfs)] if self.mkfs else []
        return making + (list(mounts.TOOLS) if self.mountpoint or self.mkfs else [])

    def matches(self, entry: Entry) -> bool:
        """Return whether an entry was created with the same parameters.

        The file system is not compared: it is made only if the volume is empty.  Whether it
        grows may be changed.
        """
        same = (self.mode, self.mountpoint, self.options, self.mount_rules)
        return same == (entry.mode, entry.mountpoint, entry.options, entry.mount_rules)


class Attacher:
    """Attaches volumes to this host; the caller holds the volume's lock."""

    def __init__(
        self,
        host: Host,
        service: Service,
        detaching: Detacher,
        report_progress: Callable[[str], None],
    ) -> None:
        self._host = host
        self._journal = host.journal
        self._service = service
        self._detaching = detaching
        self._report_progress = report_progress
        self._growth = VolumeGrowth(host, service, report_progress)

    def attach(self, volume: Volume, request: AttachRequest) -> Entry:
        """Attach a volume, or continue an earlier attempt, and read the size of its file system.

        :raises LocalConflict: it is attached on this host with other parameters
        :raises AttachFailed: the attempt could not be undone completely; after any other error it
            was
        """
        entry = self._attach(volume, request)
        return self._growth.update(entry, volume)

    def _attach(self, volume: Volume, request: AttachRequest) -> Entry:
        entry = self._find_earlier(volume, request)
        if entry is None:
            self._check_not_attached(volume)
            check_mountpoint(request.mountpoint)
            entry = self._reserve(self._new(volume, request))
        elif _was_attached(entry):
            return self._reattach(entry)
        try:
            return self._continue(entry, volume)
        except (Exception, KeyboardInterrupt) as error:
            self._undo(entry, error)
            raise

    def _new(self, volume: Volume, request: AttachRequest) -> Entry:
        return Entry(
            volume.id,
            mode=request.mode,
            options=request.options,
            mountpoint=request.mountpoint,
            mkfs=request.mkfs,
            assume_empty=request.assume_empty,
            mount_rules=request.mount_rules,
            grow_fs=request.grow_fs,
            volume_name=volume.name,
            cloud=self._service.cloud,
        )

    def _find_earlier(self, volume: Volume, request: AttachRequest) -> Entry | None:
        """Return the entry to continue; an entry that cannot be continued is undone first."""
        for entry in self._journal.list_for_volume(volume.id):
            if entry.owner is not Owner.LOCAL:
                raise _conflict(entry, "the agent of this host has attached it")
            if entry.step in TEARDOWN_STEPS:
                self._report_progress("Finishing an earlier detach")
                self._detaching.resume(entry)
            elif not request.matches(entry):
                raise _conflict(entry, "it was attached here with other options")
            elif found := self._entry_to_continue(entry, request):
                return found
        return None

    def _entry_to_continue(self, entry: Entry, request: AttachRequest) -> Entry | None:
        """Return an entry whose attachment exists; undo one without."""
        if entry.attachment_id is None:
            try:
                return self._reserved(self._journal.write(_with_mkfs(entry, request)))
            except ReservationRefused:
                self._journal.remove(entry)
                return None
        remote = self._service.attachment(entry.attachment_id)
        if remote is None:
            self._report_progress("The service has deleted the attachment since: starting over")
            self._detaching.resume(entry)
            return None
        if _was_attached(entry):
            entry = dataclasses.replace(entry, grow_fs=entry.grow_fs or request.grow_fs)
            return _refreshed(entry, remote)
        return _with_mkfs(entry, request)

    def _check_not_attached(self, volume: Volume) -> None:
        """Check that no other program has attached the volume to this host."""
        name = self._host.identity.name
        for attachment in self._service.attachments(volume):
            if attachment.host and host_identity.is_same_name(attachment.host, name):
                raise exception.LocalConflict(
                    reason=f"Volume {volume.id} is attached to this host, {name}, already, by "
                    f"attachment {attachment.id} of another program. Detach it there, or with "
                    f"attachd local-detach --attachment-id {attachment.id} {volume.id}"
                )

    def _reserve(self, entry: Entry) -> Entry:
        self._report_progress(f"Reserving volume {entry.volume_id}")
        entry = self._journal.write(entry, step=Step.RESERVING)
        try:
            return self._reserved(entry)
        except ReservationRefused as error:
            self._journal.remove(entry)
            raise error.cause from None
        except (Exception, KeyboardInterrupt) as error:
            self._undo(entry, error)
            raise

    def _reserved(self, entry: Entry) -> Entry:
        made = self._service.reserve(entry.volume_id, entry.mode, entry.id)
        return self._journal.write(entry, attachment_id=made)

    def _continue(self, entry: Entry, volume: Volume) -> Entry:
        """Execute the steps that are not known to be done."""
        entry = self._connect(self._connect_backend(entry, volume))
        if entry.step in {Step.CONNECTING, Step.COMPLETING}:
            entry = self._journal.write(entry, step=Step.COMPLETING)
            self._service.complete(_attachment_id(entry))
        entry = format_and_mount.mount_volume(
            self._journal, entry, self._report_progress, mode=mode_of(entry)
        )
        return self._attached(entry)

    def _connect_backend(self, entry: Entry, volume: Volume) -> Entry:
        """Have the backend grant this host access."""
        if entry.connection_info is not None:
            return entry
        connector = self._host.get_connector_properties(entry.options)
        if entry.mountpoint is not None:
            connector["mountpoint"] = entry.mountpoint
        self._report_progress(
            f"Connecting volume {entry.volume_id} to host {self._host.identity.name}"
        )
        entry = self._journal.write(entry, step=Step.CONNECTING)
        info = self._service.connect(_attachment_id(entry), connector)
        return self._journal.write(entry, connection_info={**info, **volume.guard})

    def _connect(self, entry: Entry) -> Entry:
        """Connect the device."""
        if self._host.is_present(entry):
            return entry
        assert entry.connection_info is not None
        self._host.check(entry.connection_info["driver_volume_type"])
        self._report_progress("Waiting for the device")
        return self._host.connect(entry)

    def finish(self, entry: Entry) -> None:
        """Finish an interrupted attach or detach; raises as attach()."""
        if entry.step in TEARDOWN_STEPS:
            self._detaching.resume(entry)
        else:
            self.attach(self._service.find(entry.volume_id), AttachRequest.from_entry(entry))

    def _reattach(self, entry: Entry) -> Entry:
        """Attach again what was attached before; its device may be missing, as after a reboot.

        A failure is not undone: the volume was attached, and may be in use.
        """
        present = self._host.is_present(entry)
        if present and entry.step is Step.ATTACHED and _is_placed(entry):
            return entry
        try:
            if not present:
                # Also because the old path may belong to another disk.
                entry = self._host.clear_dead_device(entry)
            entry = self._journal.write(entry, restoring=True)
            entry = format_and_mount.mount_volume(
                self._journal, self._connect(entry), self._report_progress, mode=mode_of(entry)
            )
        except Exception as error:
            latest = self._journal.get(entry.id) or entry
            self._journal.write(latest, step=Step.ATTACHED, restoring=False, error=f"{error}")
            raise
        return self._attached(entry)

    def _attached(self, entry: Entry) -> Entry:
        # From now on it may contain data.
        return self._journal.write(
            entry, step=Step.ATTACHED, mkfs=None, restoring=False, error=None
        )

    def _undo(self, entry: Entry, error: BaseException) -> None:
        cause = "interrupted" if isinstance(error, KeyboardInterrupt) else error
        self._report_progress(f"It failed, and is being undone: {cause}")
        left = self._detaching.undo(entry)
        if left:
            raise exception.AttachFailed(
                volume_id=entry.volume_id,
                cause=cause,
                left="; ".join(left),
                finish=command(self._journal.get(entry.id) or entry),
            ) from error


def _with_mkfs(entry: Entry, request: AttachRequest) -> Entry:
    """Return an entry with what an attempt requests to be made on the device."""
    return dataclasses.replace(
        entry, mkfs=request.mkfs, assume_empty=request.assume_empty, grow_fs=request.grow_fs
    )


def _was_attached(entry: Entry) -> bool:
    return entry.step is Step.ATTACHED or (entry.restoring and entry.step not in TEARDOWN_STEPS)


def _is_placed(entry: Entry) -> bool:
    if entry.mountpoint is None or entry.device is None:
        return entry.mountpoint is None
    return mounts.is_mounted(entry.device.path, entry.mountpoint)


def _refreshed(entry: Entry, remote: RemoteAttachment) -> Entry:
    return dataclasses.replace(entry, connection_info=current_info(entry, remote))


def current_info(entry: Entry, remote: RemoteAttachment) -> dict[str, Any]:
    """Return the connection info of an entry, updated from the service."""
    return {**(entry.connection_info or {}), **remote.connection_info}


def mode_of(entry: Entry) -> str:
    """Return the mode of a volume: the service may allow less than was requested."""
    access_mode = (entry.connection_info or {}).get("access_mode")
    return "ro" if access_mode == "ro" else entry.mode


def check_mountpoint(folder: str | None) -> None:
    """Check that a directory can be a mountpoint; a missing one can be created.

    :raises HostError: it cannot
    """
    if folder is None:
        return
    path = Path(folder)
    nearest = next(ancestor for ancestor in (path, *path.parents) if os.path.lexists(ancestor))
    try:
        free = not any(nearest.iterdir()) or nearest != path
    except OSError as error:
        raise exception.HostError(
            reason=f"{folder} cannot be a mountpoint: {error.strerror}."
        ) from error
    if not free or (nearest == path and path.is_mount()):
        raise exception.HostError(
            reason=f"{folder} is not empty, or something is mounted there. Choose another "
            "directory."
        )


def _attachment_id(entry: Entry) -> str:
    """Return the id of a reserved attachment."""
    assert entry.attachment_id is not None
    return entry.attachment_id


def _conflict(entry: Entry, why: str) -> exception.LocalConflict:
    place = entry.mountpoint or "no mountpoint"
    return exception.LocalConflict(
        reason=f"Volume {entry.volume_id} is in the journal of this host: {why} (attachment "
        f"{entry.attachment_id}, {entry.step}, {entry.mode}, {place}). Detach it first"
        f"{f': {command(entry)}' if entry.owner is Owner.LOCAL else ', by the service.'}"
    )
