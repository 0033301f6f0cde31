# SPDX-License-Identifier: Apache-2.0
"""The reports of an agent: the connector properties of its host, and its devices."""

import contextlib
import dataclasses
import math
import threading
from time import monotonic
from typing import TypedDict

from attachd import exception
from attachd.agent import device_links
from attachd.agent.connectors.base import ConnectorProperties, Options
from attachd.agent.device_condition import DeviceCondition, DeviceObserver
from attachd.agent.host import Host
from attachd.agent.journal import Entry, Owner
from attachd.agent.other_devices import OtherDevices
from attachd.agent.worker_pool import CallTimeout, TimeboxedCall
from attachd.linux import block_device, boot, mountinfo
from attachd.rpc.agent_manager_api import (
    MAX_ASKED,
    MAX_LINE,
    MAX_OBSERVED,
    DeviceReport,
    HostReport,
    Observed,
)
from attachd.service import version

_MAX_TYPE = 32
_ATTEMPTS = 3

CONNECTOR_TTL = 60.0
"""Seconds that connector properties are cached: to find them takes several commands."""


class Filesystem(TypedDict):
    """The part of a DeviceReport that is about a file system."""

    filesystem: str | None
    filesystem_bytes: int | None
    growth: str | None


class HostReporter:
    """Builds the reports; used by one thread only.

    :param options: how the host connects
    :param others: finds the devices that the agent has not made; None: they are not reported
    """

    def __init__(self, host: Host, options: Options, others: OtherDevices | None = None) -> None:
        self._host = host
        self._options = options
        self._connector: ConnectorProperties | None = None
        self._connector_read_at = -math.inf
        self._call: TimeboxedCall[HostReport] = TimeboxedCall()
        self._last: HostReport | None = None
        self._asked_at: float | None = None
        self._observers: dict[str, DeviceObserver] = {}
        self._boot_id = boot.read_id()
        self._others = others
        self._asked: tuple[str, ...] = ()
        self._asking = threading.Lock()

    def note_request(self, request_id: str) -> None:
        """Let the reports that are built from now on say that they answer a request.

        Any thread may call it.
        """
        with self._asking:
            self._asked = (*self._asked, request_id)[-MAX_ASKED:]

    def report(self, timeout: float | None = None) -> HostReport:
        """Return a report; a problem of the host is a part of it.

        If a command of the host hangs, the report has an error and the devices of the last one.
        Until that is sure, after the usual timeout, the last report is repeated.

        :param timeout: seconds to wait for the host, if that is less than usual
        """
        if self._asked_at is None:
            self._asked_at = monotonic()
        try:
            self._last = self._call.run(self._build, timeout)
        except CallTimeout as error:
            if self._last is not None and monotonic() - self._asked_at < self._call.timeout:
                return self._last
            last = self._last or self._empty()
            return {**last, "connector": None, "error": f"{error}", "observed": None}
        self._asked_at = None
        return self._last

    def _empty(self) -> HostReport:
        return {
            "connector": None,
            "devices": [],
            "connector_type": self._host.connector.TYPE,
            "version": version(),
            "error": None,
            "boot_id": self._boot_id,
            "stops_writers": True,
            "observed": None,
        }

    def _build(self) -> HostReport:
        connector, devices, message, observed = None, [], None, None
        try:
            observed = self._observe()
            device_links.remove_stale()
            self._host.check()
            known = self._host.journal.list_entries()
            entries = [entry for entry in known if entry.owner is Owner.AGENT]
            self._observers = {
                entry.id: self._observers.get(entry.id) or DeviceObserver() for entry in entries
            }
            devices = [self._device(entry) for entry in entries]
            connector = self._current_connector()
        except exception.HostError as error:
            message = f"{error}"
        report = self._empty()
        report.update({"connector": connector, "devices": devices, "error": message})
        report["observed"] = observed
        return report

    def _observe(self) -> Observed | None:
        """Return what others have made; None: it cannot be told at present.

        :raises HostError: the journal cannot be read
        """
        asked = [*self._asked]  # Before the host is read.
        for _ in range(_ATTEMPTS if self._others else 0):
            assert self._others is not None
            # Others connect and disconnect meanwhile: files of the kernel vanish while read.
            with contextlib.suppress(OSError, ValueError):
                devices = self._others.find()
                # A part of them would look as if the others were gone.
                is_all = len(devices) <= MAX_OBSERVED
                return {"devices": devices, "asked": asked} if is_all else None
        return None

    def _current_connector(self) -> ConnectorProperties:
        if self._connector is None or monotonic() - self._connector_read_at > CONNECTOR_TTL:
            self._connector = None
            self._connector = self._host.get_connector_properties(self._options)
            self._connector_read_at = monotonic()
        return self._connector

    def _device(self, entry: Entry) -> DeviceReport:
        path, size = None, None
        condition = DeviceCondition([], None)
        try:
            if entry.device is not None and self._host.is_present(entry):
                size = block_device.size(entry.device.path)
                path = entry.device.path
                condition = self._observers[entry.id].read(path)
        except exception.HostError:
            pass  # The device is gone, or not complete yet.
        return {
            "attachment_id": entry.attachment_id or "",
            "volume_id": entry.volume_id,
            "path": path,
            "size_bytes": size,
            "mountpoint": path and mountinfo.find_mountpoint(path),
            "paths": condition.paths,
            "last_io_error": condition.last_io_error,
            **_filesystem(entry, size),
        }


def _filesystem(entry: Entry, size: int | None) -> Filesystem:
    """Return what is known of the file system on a device.

    :param size: of the device now, which may have grown since; None: there is no device
    """
    state = entry.filesystem
    if size is None or state is None or not state.type:
        return {"filesystem": None, "filesystem_bytes": None, "growth": None}
    text = dataclasses.replace(state, device_size=size).describe()
    return {
        "filesystem": state.type[:_MAX_TYPE],
        "filesystem_bytes": state.size or None,
        # It may have what a command printed.
        "growth": text and "".join(filter(str.isprintable, text))[:MAX_LINE],
    }
