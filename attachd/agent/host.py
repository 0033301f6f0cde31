# SPDX-License-Identifier: Apache-2.0
"""One host: its name, its journal and its connector; used by client/ and by the agent."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import os
from pathlib import Path
import socket
from typing import Any, TypeVar

from attachd import exception
from attachd.agent import device_links
from attachd.agent.connectors.base import IDENTITY, ConnectorProperties, HostConnector, Options
from attachd.agent.connectors.brick import BrickConnector
from attachd.agent.connectors.qemu.connector import QemuConnector, missing_tools
from attachd.agent.journal import DEFAULT_STATE_PATH, Entry, Journal, Step
from attachd.agent.mount import binds, mounts, open_handles
from attachd.linux import block_device, commands

T = TypeVar("T")

AUTO = "auto"
"""The connector type "kernel", unless the kernel has no SCSI and QEMU's tools are installed."""

CONNECTORS: Mapping[str, Callable[[Path, str | None], HostConnector]] = {
    connector.TYPE: connector for connector in (BrickConnector, QemuConnector)
}
"""Constructors by connector type: they take the state path and the iSCSI name, or None."""

_SCSI = Path("/sys/class/scsi_host")


def make_connector(
    connector_type: str, state_path: Path, initiator: str | None = None
) -> HostConnector:
    """Return a connector of a type.

    :param connector_type: one of :data:`CONNECTORS`, or :data:`AUTO`
    :param state_path: the directory where the host keeps its state
    :param initiator: the iSCSI name of the host; None: the connector finds one
    :raises HostError: the type is unknown
    """
    if connector_type == AUTO:
        connector_type = _detect_type()
    if connector_type not in CONNECTORS:
        choices = ", ".join([AUTO, *CONNECTORS])
        raise exception.HostError(
            reason=f"There is no connector type '{connector_type}'. Choose one of: {choices}."
        )
    return CONNECTORS[connector_type](state_path, initiator)


def _detect_type() -> str:
    kernel = _SCSI.is_dir() and not commands.list_missing({"iscsiadm": "open-iscsi"})
    return BrickConnector.TYPE if kernel or missing_tools() else QemuConnector.TYPE


@dataclasses.dataclass(frozen=True)
class Identity:
    """The names by which others know a host.

    :ivar name: as attachments name it
    :ivar initiator: its iSCSI name; None: that of the machine, or one made for the journal
    """

    name: str = dataclasses.field(default_factory=socket.gethostname)
    initiator: str | None = None


class Host:
    """A host and what is attached to it.

    :param state_path: the directory of its journal
    :param connector_type: as :func:`make_connector` takes it
    :ivar connector: connects what is attached from now on
    :ivar call_in_child: as Forker.call(), for threads that hold the lock of a volume; None: all
        calls are made in this process
    """

    call_in_child: Callable[[Callable[[], Any], int], Any] | None = None

    def __init__(
        self,
        identity: Identity | None = None,
        state_path: Path = DEFAULT_STATE_PATH,
        connector_type: str = AUTO,
    ) -> None:
        self.identity = identity or Identity()
        self.journal = Journal(state_path)
        self.connector = make_connector(connector_type, state_path, self.identity.initiator)

    def check(self, protocol: str | None = None, *, tools: Sequence[str] = ()) -> None:
        """Check that this host can attach.

        :param protocol: of the volume; None: it is not known yet
        :param tools: further commands that are needed, such as mkfs.ext4
        :raises MissingRequirements: something is missing; the message names it and its package
        """
        missing = [] if os.geteuid() == 0 else ["the rights of root (run it with sudo)"]
        missing += self.connector.missing_requirements(protocol)
        missing += mounts.missing_tools(tools)
        if missing:
            what = ", ".join(dict.fromkeys(missing))
            raise exception.MissingRequirements(host=self.identity.name, what=what)

    def get_connector_properties(self, options: Options) -> ConnectorProperties:
        """Return what a backend needs to know of this host; raises HostError."""
        return self.connector.get_connector_properties(self.identity.name, options)

    def connect(self, entry: Entry) -> Entry:
        """Make a device of the connection of an entry.

        :returns: the entry with the device, as stored in the journal
        :raises HostError: there is no device; the reason is stored in the entry
        """
        info = entry.connection_info
        assert info is not None
        connector_type = entry.connector_type or self.connector.TYPE
        entry = self.journal.write(entry, step=Step.CONNECTING, connector_type=connector_type)
        try:
            device = self._run(self._connector_of(entry).connect, info, entry.options)
        except exception.HostError as error:
            self.journal.write(entry, error=f"{error}")
            raise
        # Before the entry has the device: after a crash it is connected again.
        mode = f"{info.get('access_mode') or entry.mode}"
        device_links.make(entry.volume_id, mode, device.path)
        return self.journal.write(entry, device=device, error=None)

    def disconnect(self, entry: Entry, *, force: bool = False) -> Entry:
        """Remove the device of an entry.

        :param force: also if the device is in use, or data that was written cannot be saved
        :returns: the entry without the device, as stored in the journal
        :raises DeviceBusy: the device is in use, and nothing was done
        :raises HostError: the device is still there; the reason is stored in the entry
        """
        device = entry.device if self._may_be_present(entry) else None
        if not force:
            self.check_unused(entry)
        elif device is not None:
            numbers = self._run(open_handles.list_numbers, device.path)
            entry = dataclasses.replace(entry, device_numbers=numbers)
        entry = self.journal.write(entry, step=Step.DISCONNECTING)
        if entry.connection_info is not None:
            disconnect = functools.partial(self._connector_of(entry).disconnect, force=force)
            try:
                self._run(disconnect, entry.connection_info, entry.options, device)
            except exception.HostError as error:
                self.journal.write(entry, error=f"{error}")
                raise
            if force:
                # A "local" device stays on this host.
                self.check_unused(entry)
            if entry.device is not None and entry.device_numbers:
                check = open_handles.check_removed_unused
                self._run(check, entry.device.path, entry.device_numbers)
        device_links.remove(entry.volume_id, entry.device.path if entry.device else None)
        return self.journal.write(entry, device=None, device_numbers=(), error=None)

    def clear_dead_device(self, entry: Entry) -> Entry:
        """Remove a device that has lost its volume, before it is made again.

        A device in use stays: what its users wrote and did not sync may be lost.  One that is
        read-only has lost nothing, and is unmounted; a file system that was unmounted is as after
        a power failure.

        :param entry: its device is not present, as is_present() returns it
        :returns: the entry as stored in the journal; its device only if it is still there
        :raises HostError: it is in use, and nothing was done
        """
        if entry.device is None or entry.connection_info is None:
            return entry
        device, is_left = entry.device, self.is_dead(entry)
        users = self._users_of_dead(entry, device.path, is_left=is_left)
        if users:
            raise exception.HostError(
                reason=f"Device {device.path} has lost volume {entry.volume_id}, and is in use by "
                f"{users}: what was written and not synced may be lost. End that, then attachd "
                "local-restore connects it again; or detach it: attachd local-detach --force "
                f"{entry.volume_id}"
            )
        if is_left and entry.mountpoint is not None:
            connector = self._connector_of(entry)
            connector.disconnect(entry.connection_info, entry.options, device, force=True)
            is_left = False
        return self.journal.write(entry, device=device if is_left else None)

    @staticmethod
    def _users_of_dead(entry: Entry, device: str, *, is_left: bool) -> str:
        """Return the users of a device that has lost its volume, and unmount it if read-only."""
        mountpoint, info = entry.mountpoint, entry.connection_info or {}
        # If it is not left, its path may be another disk.
        is_other = not is_left and block_device.exists(device)
        if mountpoint is not None and not is_other and mounts.is_mounted(device, mountpoint):
            if "ro" not in {entry.mode, info.get("access_mode")}:
                return f"the mount at {mountpoint}"
            try:
                mounts.unmount(mountpoint, device=device)
            except exception.DeviceBusy as error:
                return f"{error.details['users']}"
        return open_handles.find_users(device) if is_left else ""

    def is_dead(self, entry: Entry) -> bool:
        """Return whether a device that is not present is left, without its volume."""
        if entry.device is None or entry.connection_info is None:
            return False
        paths = self._connector_of(entry).find_device_paths(entry.connection_info)
        return entry.device.path in paths

    def cut(self, entry: Entry) -> None:
        """Let users of a device get errors instead of waiting for its backend, if that is known.

        :raises HostError: it could not be done
        """
        if entry.connection_info is not None:
            self._connector_of(entry).cut(entry.connection_info)

    def stop_writers(self, entry: Entry) -> None:
        """Keep all that was not written yet to a device from reaching its backend.

        :raises HostError: something may still be written
        """
        if entry.connection_info is not None:
            stop = self._connector_of(entry).stop_writers
            stop(entry.connection_info, entry.options, entry.device)

    def extend(self, entry: Entry) -> int:
        """Let a device grow with its volume; returns its size in bytes; raises HostError."""
        assert entry.connection_info is not None
        assert entry.device is not None
        extend = self._connector_of(entry).extend
        return self._run(extend, entry.connection_info, entry.options, entry.device)

    def is_present(self, entry: Entry) -> bool:
        """Return whether the device of an entry is there."""
        if entry.device is None or entry.connection_info is None:
            return False
        is_present = self._connector_of(entry).is_present
        return self._run(is_present, entry.connection_info, entry.device)

    def check_unused(self, entry: Entry) -> None:
        """Check that the device of an entry is not in use, also if the entry does not know it.

        :raises DeviceBusy: it is in use; the message names the users
        :raises HostError: the host cannot determine it
        """
        if entry.device is not None and self._may_be_present(entry):
            binds.check_no_publication(entry)
            self._run(open_handles.check_unused, entry.device.path)
        elif entry.connection_info is not None:
            find_paths = self._connector_of(entry).find_device_paths
            paths = self._run(find_paths, entry.connection_info)
            for path in (*paths, *_find_moved_device(entry)):
                self._run(open_handles.check_unused, path)

    def is_shared(self, entry: Entry, other: Entry) -> bool:
        """Return whether two entries have the same device, and it is there.

        Paths are not enough: after a reboot the path of one entry may be the device of the other.

        :param entry: it may know no device, such as after a crash
        :param other: its device is compared with the connection of ``entry``
        :raises HostError: the host cannot determine it
        """
        if not self.is_present(other):
            return False
        return self.is_present(dataclasses.replace(entry, device=other.device))

    def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call what may hang: in a process of its own, if a volume is worked on."""
        lock = self.journal.held_lock()
        if self.call_in_child is None or lock is None:
            return function(*arguments)
        result: T = self.call_in_child(functools.partial(function, *arguments), lock)
        return result

    def _may_be_present(self, entry: Entry) -> bool:
        """Return whether the path in an entry is valid: after a reboot it may be another disk."""
        try:
            return self.is_present(entry)
        except exception.HostHangs:
            raise  # The lock of the volume stays with the process that hangs.
        except exception.HostError:
            return entry.device is not None

    def _connector_of(self, entry: Entry) -> HostConnector:
        """Return a connector of the type that an entry was attached by."""
        if not entry.connector_type or entry.connector_type == self.connector.TYPE:
            return self.connector
        return make_connector(
            entry.connector_type, self.journal.state_path, self.identity.initiator
        )


def _find_moved_device(entry: Entry) -> list[str]:
    """Return the path in an entry if the same disk is there, though the connector misses it.

    A connector may search the wrong place, such as below the address of a portal that has a name.
    """
    if entry.device is None:
        return []
    identity = entry.device.info.get(IDENTITY)
    if not identity or identity != block_device.identity(entry.device.path):
        return []
    return [entry.device.path]
