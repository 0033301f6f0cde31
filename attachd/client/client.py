# SPDX-License-Identifier: Apache-2.0
"""Client for attaching volumes to this host; see :class:`Client`."""

from collections.abc import Callable, Mapping
import dataclasses
import itertools
import logging
import os
import time
from types import MappingProxyType
from typing import Any, Final, Literal, NoReturn

from openstack import connection as sdk

from attachd import exception
from attachd.agent import device_links
from attachd.agent.connectors.base import ConnectorProperties, Options
from attachd.agent.host import Host
from attachd.agent.journal import Entry, Owner, Step
from attachd.agent.mount import mount_rules, trim
from attachd.agent.mount.mount_rules import MountRules
from attachd.agent.restore import Finding, GetConnection, Verdict, check_host, restore_host
from attachd.client.attach import Attacher, AttachRequest, current_info, mode_of
from attachd.client.detach import Detacher
from attachd.client.growth import VolumeGrowth, advice
from attachd.client.select import AttachmentSelector, DetachRequest
from attachd.client.service import FAILURES, Service
from attachd.linux import block_device

LOG = logging.getLogger(__name__)

SUPERVISION_INTERVAL: Final = 5.0
"""Seconds between two checks of the devices in Client.supervise()."""
GROWTH_ROUNDS: Final = 6
"""After how many such checks the service is asked for the sizes of the volumes."""
GONE: Final = "gone"
UNKNOWN: Final = "unknown"


@dataclasses.dataclass(frozen=True)
class LocalAttachment:
    """A volume that is attached to this host.

    :ivar name: of the volume when it was attached; None: unknown, as of volumes of the agent
    :ivar attachment_id: None: unknown, because a reservation was interrupted
    :ivar path: of its device; None: it has none, or that is not present
    :ivar owner: "local" or "agent": the program that manages it
    :ivar step: the last step that was started, as journal.Step
    :ivar present: whether the device exists and belongs to this volume
    :ivar status: of the attachment in the service; "gone": deleted there; "unknown": the service
        does not answer
    :ivar error: why the last step failed; None: it did not fail
    :ivar size_bytes: of the device
    :ivar filesystem: its type; None: none whose size is known
    :ivar filesystem_bytes: its size, as it was read last
    :ivar growth: how the file system is smaller than the device, and why; None: it is not
    :ivar published: the paths where containers have it, separated by commas, and how many uses by
        Docker are at one; None: none has it
    :ivar link: the stable name of the device; None: a plain file has none
    """

    name: str | None
    volume_id: str
    attachment_id: str | None
    path: str | None
    mountpoint: str | None
    mode: str
    owner: str
    step: str
    present: bool
    status: str
    error: str | None
    size_bytes: int | None = None
    filesystem: str | None = None
    filesystem_bytes: int | None = None
    growth: str | None = None
    published: str | None = None
    link: str | None = None


@dataclasses.dataclass(frozen=True)
class Restored:
    """Result of a restore.

    :ivar gone: entries that were removed because the service has deleted the attachment
    :ivar errors: why entries are not restored, by their ids
    """

    gone: list[Entry]
    errors: Mapping[str, str]


DEFAULTS: Final = Options()
"""Default connect options."""


@dataclasses.dataclass(frozen=True)
class Attached:
    """A volume that is attached to this host.

    :ivar path: of its block device
    :ivar device: as os-brick's connect_volume() returns it, with ``path``
    :ivar mountpoint: None: it is not mounted
    :ivar mode: "rw" or "ro"
    :ivar size_bytes: of the device
    :ivar filesystem: its type; None: none whose size is known
    :ivar filesystem_bytes: its size; None: not known
    :ivar link: the stable name of the device; None: a plain file has none
    """

    volume_id: str
    attachment_id: str
    path: str
    device: dict[str, Any]
    mountpoint: str | None
    mode: str
    size_bytes: int | None = None
    filesystem: str | None = None
    filesystem_bytes: int | None = None
    link: str | None = None


class Client:
    """Attaches volumes to this host, and detaches them.

    Each step is recorded in the host's journal before it is done: an interrupted call can be
    repeated, and continues.  Errors are those of :mod:`attachd.exception` for this host, and those
    of openstacksdk and keystoneauth for the service.

    :ivar connection: openstacksdk's connection, as passed by the caller
    :ivar host: this host
    """

    def __init__(
        self,
        connection: sdk.Connection,
        host: Host | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.connection = connection
        self.host = host or Host()
        self._report_progress = progress or _say_nothing

    def get_connector(self, options: Options = DEFAULTS) -> ConnectorProperties:
        """Return the connector properties of this host; raises HostError."""
        return self.host.get_connector_properties(options)

    def attach(
        self,
        volume: str,
        *,
        mode: Literal["rw", "ro"] = "rw",
        mountpoint: str | None = None,
        mkfs: str | None = None,
        assume_empty: bool = False,
        mount_rules: MountRules = mount_rules.DEFAULTS,
        grow_fs: bool = False,
        options: Options = DEFAULTS,
    ) -> Attached:
        """Attach a volume to this host; undo a failed attempt.

        A repeated call returns the same answer, also after an interrupted one.

        :param volume: name or id
        :param mountpoint: an empty directory to mount it at
        :param mkfs: the file system to make if the volume is empty, such as "ext4"; all that may
            be data is read first
        :param assume_empty: look only for signatures of data before mkfs, such as on a new volume
        :param mount_rules: what its mount permits beyond the defaults
        :param grow_fs: let its file system grow with the volume, as with mkfs
        :raises HostError: this host cannot, or has it already
        :raises AttachFailed: the attempt could not be undone completely; the message says what is
            left
        :raises SDKException, ClientException: from openstacksdk; the attempt is undone
        """
        if mode not in {"rw", "ro"} or (mode == "ro" and mkfs):
            raise exception.HostError(reason="The mode is rw or ro; ro goes without a new mkfs.")
        folder = None if mountpoint is None else os.path.realpath(mountpoint)
        grows = grow_fs or mkfs is not None
        request = AttachRequest(mode, folder, mkfs, options, assume_empty, mount_rules, grows)
        self.host.check(tools=request.tools())
        service = Service(self.connection)
        found = service.find(volume)
        with self.host.journal.volume_lock(found.id):
            steps = Attacher(self.host, service, self._detaching(service), self._report_progress)
            return _shown(steps.attach(found, request))

    def detach(
        self,
        volume: str,
        *,
        attachment_id: str | None = None,
        device_info: dict[str, Any] | None = None,
        options: Options | None = None,
        force: bool = False,
    ) -> None:
        """Detach a volume from this host.

        A repeated call continues a failed or interrupted one.

        :param volume: name or id
        :param attachment_id: needed if the volume has several attachments on this host
        :param device_info: the device of an attachment of another program, as os-brick's
            connect_volume() returned it
        :param options: the connect options of another program
        :param force: detach although the device is in use, and data may be lost
        :raises DeviceBusy: the device is in use; it stays attached
        :raises LocalConflict: it is not attached to this host, or several times
        :raises DetachFailed: it is gone from this host, but not from the service
        """
        service = Service(self.connection)
        choice = AttachmentSelector(self.host, service)
        found = choice.volume(volume)
        with self.host.journal.volume_lock(found.id):
            entry = choice.entry(found, DetachRequest(attachment_id, device_info, options))
            self.host.check()
            self._detaching(service).resume(entry, force=force)

    def grow(
        self, volume: str, *, attachment_id: str | None = None, grow_fs: bool = False
    ) -> Attached:
        """Let the device of an attached volume have its present size.

        The file system on it grows, too, if the attach said so; otherwise its size is read.

        :param volume: name or id
        :param attachment_id: needed if the volume has several attachments on this host
        :param grow_fs: let the file system grow also if the attach did not say so
        :raises LocalConflict: it is not attached to this host by a command, or several times
        :raises HostError: the device, or a file system that is to grow, has its former size
        """
        self.host.check()
        service = Service(self.connection)
        found = AttachmentSelector(self.host, service).volume(volume)
        with self.host.journal.volume_lock(found.id):
            entry = self._attached_entry(found.id, attachment_id)
            steps = VolumeGrowth(self.host, service, self._report_progress)
            return _shown(steps.grow(entry, service.find(found.id), grow_fs=grow_fs))

    def trim(self, volume: str) -> int:
        """Free the blocks that the mounted file system of an attached volume does not use.

        Also of a volume that the agent has attached.

        :param volume: name or id
        :returns: bytes that the file system has discarded
        :raises LocalConflict: it is not attached to this host
        :raises HostError: it is not mounted for writing, or its storage frees no blocks
        """
        self.host.check(tools=tuple(trim.TOOLS))
        found = AttachmentSelector(self.host, Service(self.connection)).volume(volume)
        journal = self.host.journal
        with journal.volume_lock(found.id):
            entries = [item for item in journal.list_for_volume(found.id) if self._is_there(item)]
            # One that only reads has a device of its own.
            entry = min(entries, key=lambda item: item.mode == "ro", default=None)
            if entry is None or entry.device is None:
                raise _not_attached(found.id)
            parts = trim.list_ranges(entry.device.path)
            return sum(trim.trim(part, journal.held_lock()) for part in parts)

    def _is_there(self, entry: Entry) -> bool:
        return entry.step is Step.ATTACHED and self.host.is_present(entry)

    def _attached_entry(self, volume_id: str, attachment_id: str | None) -> Entry:
        """Return the entry of an attached volume; raises LocalConflict."""
        entries = [
            entry
            for entry in self.host.journal.list_for_volume(volume_id)
            if attachment_id in {None, entry.attachment_id}
        ]
        if len(entries) > 1:
            ids = ", ".join(sorted(f"{entry.attachment_id}" for entry in entries))
            raise exception.LocalConflict(
                reason=f"Volume {volume_id} has several attachments on this host. Name one by "
                f"--attachment-id: {ids}"
            )
        for entry in entries:
            if entry.owner is not Owner.LOCAL:
                raise exception.LocalConflict(
                    reason=f"The agent of this host has attached volume {volume_id}, and lets it "
                    "grow; [agent] grow_filesystems decides on its file system."
                )
            if self._is_there(entry):
                return entry
        raise _not_attached(volume_id)

    def attached(self) -> list[LocalAttachment]:
        """Return the attachments on this host, with their status in the service.

        :raises HostError: the journal cannot be read
        """
        return list_local(self.host, Service(self.connection))

    def restore(self) -> list[LocalAttachment]:
        """Restore the attachments in the journal, as after a reboot; it can be repeated.

        Volumes are connected and mounted again if the service still has their attachments to this
        host. Interrupted operations are finished or undone; attachments that the service has
        deleted are removed.  Attachments of the agent are left to the agent.

        :returns: as attached(), with those that are gone; ``error`` says why one is not restored
        :raises HostError: this host cannot attach volumes
        """
        self.host.check()
        service = Service(self.connection)
        steps = Attacher(self.host, service, self._detaching(service), self._report_progress)
        done = restore(self.host, service, steps, self._report_progress)
        VolumeGrowth(self.host, service, self._report_progress).follow(ask=True)
        gone = [gone_attachment(attachment) for attachment in done.gone]
        return gone + list_local(self.host, service, done.errors)

    def supervise(self) -> NoReturn:
        """Restore what loses its device, such as by the end of its storage daemon, and let grow.

        A device that is in use is left until it is not: its users may have lost data.  Errors and
        their end are logged, and stored in the journal.

        :raises HostError: this host cannot attach volumes, or the journal cannot be read
        """
        self.host.check()
        service = Service(self.connection)
        failures: dict[str, str | None] = {}
        growing = VolumeGrowth(self.host, service, self._report_progress)
        for number in itertools.count():
            for finding in check_host(self.host):
                if finding.verdict is Verdict.MISSING and finding.entry:
                    failures.setdefault(finding.entry.id, None)
            if failures:
                found = restore_host(self.host, _connection_of(service), self._report_progress)
                failures = _log_changes(failures, found)
            growing.follow(ask=number % GROWTH_ROUNDS == 0)
            time.sleep(SUPERVISION_INTERVAL)
        raise AssertionError("it never ends")

    def _detaching(self, service: Service) -> Detacher:
        return Detacher(self.host, service, self._report_progress)


def _not_attached(volume_id: str) -> exception.LocalConflict:
    return exception.LocalConflict(
        reason=f"Volume {volume_id} is not attached to this host, or its device is missing. "
        "Attach it: attachd local-attach, or local-restore after a restart."
    )


def _shown(entry: Entry) -> Attached:
    assert entry.attachment_id is not None
    assert entry.device is not None
    return Attached(
        volume_id=entry.volume_id,
        attachment_id=entry.attachment_id,
        path=entry.device.path,
        device={**entry.device.info, "path": entry.device.path},
        mountpoint=entry.mountpoint,
        mode=mode_of(entry),
        **_sizes(entry),
        link=device_links.find(entry.volume_id, entry.device.path),
    )


def _sizes(entry: Entry) -> dict[str, Any]:
    """Return the fields on the sizes of a device and its file system."""
    assert entry.device is not None
    state = entry.filesystem
    try:
        size = block_device.size(entry.device.path)
    except exception.HostError:
        size = None
    return {
        "size_bytes": size,
        "filesystem": (state and state.type) or None,
        "filesystem_bytes": (state and state.size) or None,
    }


def _say_nothing(_text: str) -> None:
    pass


def list_local(
    host: Host, service: Service, errors: Mapping[str, str] = MappingProxyType({})
) -> list[LocalAttachment]:
    """Return the attachments in a host's journal, with their status in the service.

    :param errors: errors of the current operation, by the ids of entries
    """
    asker = _StatusReader(service)
    return [
        _to_local(
            dataclasses.replace(entry, error=errors.get(entry.id, entry.error)),
            present=_is_present(host, entry),
            status=asker.status(entry),
        )
        for entry in host.journal.list_entries()
    ]


def gone_attachment(entry: Entry) -> LocalAttachment:
    """Return an attachment that exists neither on this host nor in the service."""
    return _to_local(dataclasses.replace(entry, device=None), present=False, status=GONE)


def _to_local(entry: Entry, *, present: bool, status: str) -> LocalAttachment:
    error = entry.error
    if not present and entry.step is Step.ATTACHED and error is None and status != GONE:
        error = "The device is missing. Attach it again: attachd local-restore"
    sizes = _sizes(entry) if entry.device and present else {}
    path = entry.device.path if entry.device and present else None
    return LocalAttachment(
        name=entry.volume_name or None,
        volume_id=entry.volume_id,
        attachment_id=entry.attachment_id,
        path=path,
        mountpoint=entry.mountpoint,
        mode=mode_of(entry),
        owner=entry.owner.value,
        step=entry.step.value,
        present=present,
        status=status,
        error=error,
        **sizes,
        growth=_growth_of(entry, sizes.get("size_bytes")),
        published=_list_published(entry),
        link=path and device_links.find(entry.volume_id, path),
    )


def _list_published(entry: Entry) -> str | None:
    if entry.staging is None:
        return None
    paths = [publication.path for publication in entry.staging.publications]
    if uses := len(entry.staging.uses):
        paths.append(f"{entry.staging.path} ({uses} {'use' if uses == 1 else 'uses'})")
    return ", ".join(paths) or None


def _growth_of(entry: Entry, size: int | None) -> str | None:
    if entry.filesystem is None or size is None:
        return None
    # The device may have grown since.
    entry = dataclasses.replace(
        entry, filesystem=dataclasses.replace(entry.filesystem, device_size=size)
    )
    assert entry.filesystem is not None
    text = entry.filesystem.describe()
    return f"{text}{advice(entry)}" if text else None


class _StatusReader:
    """Reads statuses from the service until it fails; afterwards all are unknown."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._answers = True

    def status(self, entry: Entry) -> str:
        if entry.attachment_id is None or not self._answers:
            return UNKNOWN
        try:
            if entry.cloud not in {None, self._service.cloud}:
                return UNKNOWN  # Another service would not have it.
            found = self._service.attachment(entry.attachment_id)
        except FAILURES:
            self._answers = False
            return UNKNOWN
        return found.status if found else GONE


def _is_present(host: Host, entry: Entry) -> bool:
    try:
        return host.is_present(entry)
    except exception.HostError:
        return False


def restore(
    host: Host, service: Service, steps: Attacher, report_progress: Callable[[str], None]
) -> Restored:
    """Restore what was attached, then finish interrupted attaches and detaches.

    :raises HostError: the journal cannot be read
    """
    gone, errors = [], {}
    for found in restore_host(host, _connection_of(service), report_progress):
        entry, error = found.entry, found.error
        if entry is None:
            report_progress(f"{found.path}: {found.error} End it by: {found.advice}")
            continue
        if found.verdict is Verdict.DELETED:
            gone.append(entry)
        elif found.verdict in {Verdict.ATTACH_INTERRUPTED, Verdict.DETACH_INTERRUPTED}:
            error = _finish(host, steps, entry)
        if error is not None:
            report_progress(f"Volume {entry.volume_id} is not as it was: {error}")
            errors[entry.id] = error
    return Restored(gone, errors)


def _connection_of(service: Service) -> GetConnection:
    """Return the function that asks the service for the connection of an entry."""

    def current(entry: Entry) -> dict[str, Any] | None:
        assert entry.attachment_id is not None
        remote = service.attachment(entry.attachment_id)
        return None if remote is None else current_info(entry, remote)

    return current


def _log_changes(
    failures: Mapping[str, str | None], found: list[Finding]
) -> dict[str, str | None]:
    """Log what was restored, and new errors; return the errors of what is still missing."""
    left: dict[str, str | None] = {}
    for finding in found:
        entry, error = finding.entry, finding.error or "its device or mount is missing"
        if entry is None:
            continue
        if finding.verdict is Verdict.MISSING:
            left[entry.id] = error
            if failures.get(entry.id) != error:
                LOG.warning("Volume %s is not attached again: %s", entry.volume_id, error)
        elif finding.verdict is Verdict.DELETED:
            LOG.warning("Volume %s: the service has deleted its attachment", entry.volume_id)
        elif entry.id in failures:
            LOG.warning("Volume %s is attached again, as %s", entry.volume_id, finding.path)
    return left


def _finish(host: Host, steps: Attacher, entry: Entry) -> str | None:
    """Finish an interrupted operation; return the error, or None."""
    try:
        with host.journal.volume_lock(entry.volume_id):
            latest = host.journal.get(entry.id)
            if latest is not None:
                steps.finish(latest)
    except (exception.AttachdError, *FAILURES) as error:
        return f"{error}"
    return None
