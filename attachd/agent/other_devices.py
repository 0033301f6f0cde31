# SPDX-License-Identifier: Apache-2.0
"""Devices of this host that its agent has not made: those of Compute, and those made by hand.

They are found as strays are, in the kernel's sysfs: no command is run, and no device is opened.
Nothing is done with them but to report them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attachd.agent import strays
from attachd.agent.connectors import local
from attachd.agent.device_condition import DeviceCondition, DeviceObserver
from attachd.agent.journal import Entry, Journal, Owner
from attachd.agent.strays import ExportedDevice, Kind
from attachd.linux import mountinfo
from attachd.linux.device_nodes import read_line
from attachd.rpc.agent_manager_api import MAX_LINE, MAX_PATHS, ObservedDevice

_NAMES: Final = strays.AnyNames()
_SECTOR: Final = 512
"""The kernel's unit, independent of the device's own."""


class OtherDevices:
    """Finds the devices of a host that its agent has not made; used by one thread only.

    :param root: the directory that has ``sys``
    """

    def __init__(self, journal: Journal, root: Path = Path("/")) -> None:
        self._journal = journal
        self._root = root
        self._sys = root / "sys"
        self._observers: dict[str, DeviceObserver] = {}

    def find(self) -> list[ObservedDevice]:
        """Return them, as far as the names of their targets, or the journal, say the volume.

        :raises HostError: the journal cannot be read
        """
        # In this order: a device that the agent makes meanwhile has its entry by then.
        state_path = self._journal.state_path
        devices = strays.list_exported(_NAMES, state_path, self._root)
        entries = self._journal.list_entries()
        found: list[ObservedDevice] = []
        for device in devices:
            noted = [entry for entry in entries if device.is_of_entry(entry, state_path)]
            by_agent = any(entry.owner is Owner.AGENT for entry in noted)
            volume_id = device.volume_id or next((entry.volume_id for entry in noted), None)
            if not by_agent and volume_id is not None and not _is_of_backend(device, noted):
                found.append(self._report(device, volume_id, noted))
        self._observers = {
            path: observer
            for path, observer in self._observers.items()
            if any(path in device.devices for device in devices)
        }
        return found

    def _report(
        self, device: ExportedDevice, volume_id: str, noted: Sequence[Entry]
    ) -> ObservedDevice:
        attachment_id = device.attachment_id or _NAMES.attachment_id(device.target)
        if device.kind is Kind.USER_SPACE:
            attachment_id = next((entry.attachment_id for entry in noted), attachment_id)
        path = next(iter(device.devices), None)
        size = self._read_size(path) if path else None
        path = path if size is not None else None  # It is gone meanwhile.
        condition = self._read_condition(device.devices if path else ())
        return {
            "volume_id": volume_id,
            "attachment_id": attachment_id,
            "target": "".join(filter(str.isprintable, device.target))[:MAX_LINE],
            "path": path,
            "size_bytes": size,
            "mountpoint": path and mountinfo.find_mountpoint(path),
            "paths": condition.paths,
            "last_io_error": condition.last_io_error,
        }

    def _read_size(self, path: str) -> int | None:
        """Return the bytes of a device; None: it is gone."""
        sectors = read_line(self._sys / "class/block" / Path(path).name / "size")
        return int(sectors) * _SECTOR if sectors else None

    def _read_condition(self, paths: Sequence[str]) -> DeviceCondition:
        """Return the condition of all disks of a target, which may have several without a name."""
        known = [
            self._observers.setdefault(path, DeviceObserver(self._sys)).read(path)
            for path in paths
        ]
        errors = [item.last_io_error for item in known if item.last_io_error]
        return DeviceCondition(
            [path for item in known for path in item.paths][:MAX_PATHS],
            "; ".join(errors)[:MAX_LINE] or None,
        )


def _is_of_backend(device: ExportedDevice, noted: Sequence[Entry]) -> bool:
    """Return whether a device may exist without use by this host: its backend may have made it.

    That is so for the loop devices of a backend "file", whose hosts are its own machine.
    """
    if device.kind is not Kind.LOOP:
        return False
    infos = [entry.connection_info for entry in noted]
    return not any(info and not local.is_local(info) for info in infos)
