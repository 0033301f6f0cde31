# SPDX-License-Identifier: Apache-2.0
"""Strays of this host: devices whose target attachd exports, and that no attachment wants.

The devices are listed before the journal and the service are read: a device that is made
meanwhile is not listed, and one that is listed has its attachment.
"""

from collections.abc import Iterable, Sequence
import contextlib
import dataclasses
import enum
from pathlib import Path
from typing import Final

from openstack import exceptions

from attachd import exception
from attachd.agent import stray_removal, strays
from attachd.agent.host import Host
from attachd.agent.journal import Entry
from attachd.agent.strays import ExportedDevice, Kind, TargetNames
from attachd.client.service import FAILURES, Service

_LOCK_TIMEOUT: Final = 30.0
_CLEAN: Final = "attachd host-strays --clean"


class State(enum.StrEnum):
    """What is known of a stray, or was done with it."""

    UNUSED = "unused"
    IN_USE = "in use"
    UNKNOWN = "unknown"
    """The journal has no attachment of it, and the service could not be asked."""
    REMOVED = "removed"
    GONE = "gone"
    """Another process removed it meanwhile, or an attachment wants it by now."""
    FAILED = "failed"


CLEANED: Final = frozenset({State.REMOVED, State.GONE})
"""States of strays that are no longer there."""


@dataclasses.dataclass(frozen=True)
class Stray:
    """A device that no attachment wants.

    :ivar reason: why it is a stray
    :ivar error: what uses it, or why it could not be removed; None: nothing
    :ivar is_foreign: it may be of another service, or of other software: it is removed only by
        its name
    """

    device: ExportedDevice
    reason: str
    state: State = State.UNUSED
    error: str | None = None
    is_foreign: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which it can be selected."""
        return (*self.device.devices, self.device.target)

    @property
    def lock(self) -> str:
        """The name of the lock: that of the volume, which agents and commands lock as well.

        Devices in user space do not name their volume; their directory has a lock of its own.
        """
        return self.device.volume_id or Path(self.device.target).name


class StrayFinder:
    """Finds the strays of a host, and removes them.

    :param prefixes: what the names of further targets of attachd begin with
    :param is_named: the name of the host is given by the caller: a service that does not know it
        has no attachments of it
    """

    def __init__(
        self,
        host: Host,
        service: Service,
        prefixes: Iterable[str] = (),
        *,
        is_named: bool = False,
    ) -> None:
        self._host = host
        self._is_named = is_named
        self._service = service
        self._prefixes = tuple(prefixes)
        # An attachment is of one volume for ever; None: it cannot be read.
        self._volumes: dict[str, str | None] = {}

    def find(self) -> list[Stray]:
        """List the strays; nothing is changed.

        :raises HostError: the journal cannot be read
        """
        return self._find(self._list_devices())

    def _list_devices(self) -> list[ExportedDevice]:
        entries = self._host.journal.list_entries()
        infos = [entry.connection_info for entry in entries if entry.connection_info]
        names = TargetNames(infos, self._prefixes)
        return strays.list_exported(names, self._host.journal.state_path)

    def _find(self, devices: Sequence[ExportedDevice]) -> list[Stray]:
        """Return those that no attachment wants; they were listed before."""
        if not devices:
            return []
        entries = self._host.journal.list_entries()
        problem = self._read_attachments()
        judged = [self._judge(device, entries, problem) for device in devices]
        return [_with_users(stray) for stray in judged if stray]

    def clean(self, names: Sequence[str] = (), *, force: bool = False) -> list[Stray]:
        """Remove the strays that are not in use.

        :param names: of devices or targets; empty: all strays of volumes of this service
        :param force: also those in use, and those whose data cannot be saved
        :returns: the named ones, or all, each with what was done
        :raises HostError: the journal cannot be read, or a name is of no stray; nothing was done
        """
        found = self.find()
        known = {name for stray in found for name in stray.names}
        if unknown := [name for name in names if name not in known]:
            raise exception.HostError(
                reason=f"{', '.join(unknown)}: no stray of this host. Nothing was removed; "
                "attachd host-strays lists what can be."
            )
        if names:
            found = [stray for stray in found if set(names) & set(stray.names)]
        return [
            self._clean(stray, force=force) if names or not stray.is_foreign else stray
            for stray in found
        ]

    def _clean(self, stray: Stray, *, force: bool) -> Stray:
        if stray.state is State.UNKNOWN or (stray.state is State.IN_USE and not force):
            return stray
        try:
            return self._remove(stray, force=force)
        except exception.HostError as error:
            return dataclasses.replace(stray, state=State.FAILED, error=f"{error}")

    def _remove(self, stray: Stray, *, force: bool) -> Stray:
        """Remove a stray if it still is one."""
        journal, target = self._host.journal, stray.device.target
        with journal.volume_lock(stray.lock, timeout=_LOCK_TIMEOUT):
            current = self._find(self._list_of(target))
            if not current:
                return dataclasses.replace(stray, state=State.GONE, error=None)
            if current[0].state is State.UNKNOWN:
                return current[0]
            stray_removal.remove(journal, current[0].device, force=force)
        if self._list_of(target):
            raise exception.HostError(reason=f"{target} is still connected. Repeat: {_CLEAN}")
        return dataclasses.replace(stray, state=State.REMOVED, error=None)

    def _list_of(self, target: str) -> list[ExportedDevice]:
        return [device for device in self._list_devices() if device.target == target]

    def _read_attachments(self) -> str | None:
        """Read which volumes the attachments of this host have; returns why that failed."""
        try:
            ids = self._list_attachments()
            self._volumes = {id_: self._volumes.get(id_) or self._volume_of(id_) for id_ in ids}
        except FAILURES as error:
            return f"{error}"
        return None

    def _list_attachments(self) -> set[str]:
        """List the ids of the attachments of this host, by its name and that of its agent.

        :raises NotFoundException: the service knows no host of these names, which may be wrong
        """
        agent = self._host.journal.state_path / "agent.host"
        names = {self._host.identity.name}
        with contextlib.suppress(OSError):
            names.add(agent.read_text(encoding="utf-8").strip())
        ids: set[str] = set()
        unknown: list[exceptions.NotFoundException] = []
        for name in sorted(names):
            try:
                ids.update(self._service.host_attachments(name))
            except exceptions.NotFoundException as error:
                unknown.append(error)
        if len(unknown) == len(names):
            if not self._is_named:
                raise unknown[0]
            self._service.check_hosts()
        return ids

    def _volume_of(self, attachment_id: str) -> str | None:
        found = self._service.attachment(attachment_id)
        return found.volume_id if found else None

    def _judge(
        self, device: ExportedDevice, entries: Sequence[Entry], problem: str | None
    ) -> Stray | None:
        """Return a device as a stray; None: an attachment wants it, or may want it."""
        path = self._host.journal.state_path
        noted = [entry for entry in entries if device.is_of_entry(entry, path)]
        if noted and (problem or any(map(self._is_elsewhere, noted))):
            return None
        if problem:
            return Stray(
                device,
                "not in the journal",
                State.UNKNOWN,
                f"The service does not say which attachments this host has: {problem}",
            )
        try:
            if self._has_attachment(device, noted):
                return None
            return self._as_stray(device, is_noted=bool(noted))
        except FAILURES as error:
            return self._judge(device, entries, f"{error}")

    def _as_stray(self, device: ExportedDevice, *, is_noted: bool) -> Stray:
        """Return a device as a stray, as far as that is sure.

        :param is_noted: the journal has its volume
        """
        reason = f"no attachment, {'left' if is_noted else 'not'} in the journal"
        unreadable = [id_ for id_, volume in self._volumes.items() if volume is None]
        if unreadable and device.attachment_id is None:
            message = (
                f"Attachment {unreadable[0]} of this host cannot be read, and may be of this "
                "volume: it was just deleted, or made by os-initialize_connection."
            )
            return Stray(device, reason, State.UNKNOWN, message)
        volume_id = device.volume_id
        if volume_id is not None and not self._service.has_volume(volume_id):
            message = (
                f"The service has no volume {volume_id}: it was deleted, or is of another "
                f"service. To remove the device, name it: {_CLEAN} {device.target}"
            )
            return Stray(device, reason, error=message, is_foreign=True)
        if device.kind is Kind.MULTIPATH and not is_noted:
            message = (
                "It has no paths, and its WWID says no volume: other targets have such WWIDs "
                f"as well. To remove the device, name it: {_CLEAN} {device.devices[0]}"
            )
            return Stray(device, reason, error=message, is_foreign=True)
        return Stray(device, reason)

    def _has_attachment(self, device: ExportedDevice, noted: Sequence[Entry]) -> bool:
        """Ask the service whether an attachment of this host wants a device.

        :param noted: the entries of the journal that may have it; one without an attachment has
            been interrupted
        """
        volumes = filter(None, self._volumes.values())
        if device.attachment_id is None and any(map(device.is_of_volume, volumes)):
            return True
        # These may be of another name of this host.
        ids = [entry.attachment_id for entry in noted]
        if device.attachment_id is not None:
            ids.append(device.attachment_id)
        return any(
            id_ is None or id_ in self._volumes or self._service.attachment(id_) is not None
            for id_ in ids
        )

    def _is_elsewhere(self, entry: Entry) -> bool:
        """Return whether an entry belongs to another service, which is not asked."""
        return entry.cloud not in {None, self._service.cloud}


def _with_users(stray: Stray) -> Stray:
    users = stray_removal.find_users(stray.device)
    if stray.state is State.UNUSED and users:
        return dataclasses.replace(stray, state=State.IN_USE, error=f"In use: {users}.")
    return stray
