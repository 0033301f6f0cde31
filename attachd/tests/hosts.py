# SPDX-License-Identifier: Apache-2.0
"""A host of a test's own whose devices are files, and the managers' registry that it talks to."""

from collections.abc import Sequence
import os
from pathlib import Path
import tempfile
from typing import Any
import unittest
from unittest import mock
import uuid

import oslo_messaging as messaging

from attachd import exception
from attachd.agent.connectors.base import (
    ConnectionInfo,
    ConnectorProperties,
    Device,
    HostConnector,
    Options,
)
from attachd.agent.host import Host, Identity
from attachd.agent.mount import filesystems, open_handles, probe
from attachd.conf import CONF
from attachd.db.agents import store as agents
from attachd.manager.agents.rpc_server import AgentRpcServer
from attachd.rpc import agent_manager_api, transport
from attachd.tests import databases, rows
from attachd.tests.backends import override
from attachd.tests.wait import TIMEOUT

NAME = "compute-1"
CREDENTIALS = agent_manager_api.AgentCredentials(NAME, "k" * 43)
GIB = 2**30
INFO: dict[str, Any] = {
    "driver_volume_type": "memory",
    "data": {"target": "t1", "auth_password": "hidden-from-logs"},
}


class FileConnector(HostConnector):
    """Makes sparse files in a folder, each called as the connection's target.

    :ivar calls: the verbs in order
    :ivar failing: verbs that fail at present, with whatever is left of them
    :ivar lacking: what the host has not
    :ivar size_gib: of all volumes
    :ivar tears: whether a device can be taken away while it is used
    """

    TYPE = "file"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[str] = []
        self.failing: set[str] = set()
        self.lacking: list[str] = []
        self.size_gib = 1
        self.tears = False

    def missing_requirements(self, protocol: str | None = None) -> Sequence[str]:
        return list(self.lacking)

    def get_connector_properties(self, host: str, options: Options) -> ConnectorProperties:
        self._do("connector")
        return {"host": host, "multipath": options.multipath}

    def connect(self, info: ConnectionInfo, options: Options) -> Device:
        self._do("connect")
        path = self.path(info["target"])
        with path.open("ab") as file:
            file.truncate(self.size_gib * GIB)
        return Device(f"{path}", {"target": info["target"]})

    def disconnect(
        self, info: ConnectionInfo, options: Options, device: Device | None, *, force: bool = False
    ) -> None:
        self._do("disconnect by force" if force else "disconnect")
        self.path(info["target"]).unlink(missing_ok=True)

    def extend(self, info: ConnectionInfo, options: Options, device: Device) -> int:
        self._do("extend")
        with Path(device.path).open("ab") as file:
            return file.truncate(self.size_gib * GIB)

    def is_present(self, info: ConnectionInfo, device: Device) -> bool:
        return Path(device.path) == self.path(info["target"]) and Path(device.path).exists()

    def find_device_paths(self, info: ConnectionInfo) -> Sequence[str]:
        there = self.path(info["target"])
        return [f"{there}"] if there.exists() and self.tears else []

    def path(self, target: str) -> Path:
        """Return where the device of a target is."""
        return self.folder / target

    def devices(self) -> list[str]:
        """Return the targets of which there are devices."""
        return sorted(path.name for path in self.folder.iterdir())

    def reboot(self) -> None:
        """Lose all devices."""
        for path in self.folder.iterdir():
            path.unlink()

    def _do(self, verb: str) -> None:
        self.calls.append(verb)
        if verb in self.failing:
            raise exception.HostError(reason=f"It could not {verb}.")


def hide_other_processes(test: unittest.TestCase) -> None:
    """Let devices be used by this process alone: those of the machine cost a lot to ask."""
    folder = tempfile.TemporaryDirectory(prefix="attachd-test-")
    test.addCleanup(folder.cleanup)
    for name in (f"{os.getpid()}", "swaps"):
        (Path(folder.name) / name).symlink_to(Path("/proc") / name)
    test.enterContext(mock.patch.object(open_handles, "_PROC", Path(folder.name)))
    test.enterContext(mock.patch.object(open_handles, "_BUSY_TIMEOUT", 0))


class HostCase(unittest.TestCase):
    """A host whose agent is known to a registry with a database; rows are its attachments.

    :ivar connector: of the host
    """

    def setUp(self) -> None:
        super().setUp()
        databases.use(self)
        messaging.TransportURL(CONF)
        override(self, "transport_url", f"inprocess://{uuid.uuid4().hex}")
        transport.reset_after_fork()
        self.addCleanup(transport.reset_after_fork)
        self._agent_server = AgentRpcServer()
        self._agent_server.start()
        self.addCleanup(self._agent_server.stop)
        self._agent_server._thread.join(TIMEOUT)
        agents.create(*CREDENTIALS)
        patched = mock.patch("os.geteuid", return_value=0)
        patched.start()
        self.addCleanup(patched.stop)
        hide_other_processes(self)
        self.top = self.folder()
        self.connector = FileConnector(self.folder())
        self.host = self.make_host()
        self.volume_id = rows.add_volume()["id"]

    def folder(self) -> Path:
        """Make a folder that goes with the test."""
        made = tempfile.TemporaryDirectory(prefix="attachd-test-")
        self.addCleanup(made.cleanup)
        return Path(made.name)

    def make_host(self) -> Host:
        """Return the host as a process sees it that has just started."""
        with mock.patch("attachd.agent.host.make_connector", return_value=self.connector):
            return Host(Identity(NAME), self.top)

    def add(self, state: str = "connected", **values: Any) -> str:
        """Add an attachment of the host, and return its id."""
        values = {"agent": NAME, "generation": 1, "connection_info": INFO, **values}
        return str(rows.add_attachment(self.volume_id, state, **values)["id"])


def make_filesystem(device, fs_type, progress, *, uuid=None):
    """Make a file system on a device without data, as format_and_mount.py does."""
    filesystems.check_can_create(device, fs_type)
    probe.check_empty(device, progress)
    filesystems.create(device, fs_type, progress, uuid)
