# SPDX-License-Identifier: Apache-2.0
"""What the agent says of its host: how it connects, which devices it has; for service.py."""

import math
from time import monotonic

from attachd import exception
from attachd.agent import block_device
from attachd.agent.connectors.base import ConnectorProperties, Options
from attachd.agent.host import Host
from attachd.agent.journal import Entry, Owner
from attachd.agent.mount import device_nodes, mountinfo
from attachd.agent.patience import Patience, StillBusy
from attachd.rpc.agent_manager_api import DeviceReport, Report
from attachd.service import version

CONNECTOR_AGE = 60.0
"""Seconds that a connector is told again: to find it out takes a few commands."""


class Reporter:
    """Finds out how this host is; only one thread asks.

    :param options: how it connects
    """

    def __init__(self, host: Host, options: Options) -> None:
        self._host = host
        self._options = options
        self._connector: ConnectorProperties | None = None
        self._asked_at = -math.inf
        self._patience: Patience[Report] = Patience()
        self._last: Report | None = None

    def report(self) -> Report:
        """Return what is to be said; whatever this host cannot do is a part of it.

        A command of the host may hang.  Then that is said, with the devices that were found last.
        """
        try:
            self._last = self._patience.run(self._look)
        except StillBusy as error:
            return {**(self._last or self._nothing()), "connector": None, "error": f"{error}"}
        return self._last

    def _nothing(self) -> Report:
        return {
            "connector": None,
            "devices": [],
            "connector_type": self._host.connector.TYPE,
            "version": version(),
            "error": None,
        }

    def _look(self) -> Report:
        connector, devices, error = None, [], None
        try:
            self._host.check()
            entries = self._host.journal.entries()
            devices = [self._device(each) for each in entries if each.owner is Owner.AGENT]
            connector = self._current_connector()
        except exception.HostError as problem:
            error = f"{problem}"
        found = self._nothing()
        found.update({"connector": connector, "devices": devices, "error": error})
        return found

    def _current_connector(self) -> ConnectorProperties:
        if self._connector is None or monotonic() - self._asked_at > CONNECTOR_AGE:
            self._connector = None
            self._connector = self._host.get_connector_properties(self._options)
            self._asked_at = monotonic()
        return self._connector

    def _device(self, entry: Entry) -> DeviceReport:
        path, size = None, None
        try:
            if entry.device is not None and self._host.is_present(entry):
                size = block_device.size(entry.device.path)
                path = entry.device.path
        except exception.HostError:
            pass  # gone, or on its way
        return {
            "attachment_id": entry.attachment_id or "",
            "volume_id": entry.volume_id,
            "path": path,
            "size_bytes": size,
            "mountpoint": path and _mountpoint(path),
        }


def _mountpoint(path: str) -> str | None:
    """Return where a device is mounted, first of all."""
    try:
        numbers = device_nodes.stat_device(path).device_numbers()
    except OSError:
        return None
    found = (each for each in mountinfo.list_mounts() if any(map(each.is_of_device, numbers)))
    return next((each.mountpoint for each in found), None)
