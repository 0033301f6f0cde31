# SPDX-License-Identifier: Apache-2.0
"""A host with a recording connector and the API in the test process, for tests of the client.

All actions are recorded in one list, in order.  An action can be made to fail, or to kill
the process, before or after its effect.
"""

from collections.abc import Callable, Iterator
import contextlib
import json
from pathlib import Path
import sys
import threading
from typing import Any
import unittest
from unittest import mock
from wsgiref import simple_server

import openstack

from attachd import exception
from attachd.agent import journal
from attachd.agent.connectors import base
from attachd.agent.host import Host, Identity
from attachd.agent.journal import Step
from attachd.client import Client, attach
from attachd.client.service import Service
from attachd.tests.fixtures import db_rows, lifetime, wsgi_api

INFO = {"type": "block"}
OPTIONS = {"mountpoint": "/mnt/disk", "mkfs": "ext4"}


class ProcessKilled(BaseException):
    """Stands for SIGKILL: it is not caught, and no code runs after it."""


class ActionLog:
    """Records the actions and raises the planned failures."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._plans: dict[tuple[str, bool], BaseException] = {}
        self.end: int | None = None

    def fail(self, line: str, error: BaseException | None = None, *, late: bool = False) -> None:
        """Make actions whose line starts so fail, after their effect if ``late``."""
        self._plans[line, late] = error or exception.HostError(reason=f"{line} broke.")

    def heal(self) -> None:
        """Remove all planned failures."""
        self._plans.clear()
        self.end = None

    @contextlib.contextmanager
    def doing(self, line: str) -> Iterator[None]:
        """Record an action on the host; the process may be killed before and after it."""
        self.tick()
        with self.serving(line):
            yield
        self.tick()

    @contextlib.contextmanager
    def serving(self, line: str) -> Iterator[None]:
        """Record an action that may fail."""
        self.lines.append(line)
        self._raise(line, late=False)
        yield
        self._raise(line, late=True)

    def tick(self) -> None:
        """Kill the process here if the configured number of steps has passed."""
        if self.end is not None:
            self.end -= 1
            if self.end < 0:
                raise ProcessKilled

    def _raise(self, line: str, *, late: bool) -> None:
        for (start, when), error in self._plans.items():
            if when is late and line.startswith(start):
                raise error


class RecordingConnector(base.HostConnector):
    """A connector that records its calls instead of making devices."""

    TYPE = "recording"

    def __init__(self, log: ActionLog) -> None:
        self._log = log
        self.devices: set[str] = set()

    def missing_requirements(self, protocol: str | None = None) -> list[str]:
        return []

    def get_connector_properties(
        self, host: str, options: base.Options
    ) -> base.ConnectorProperties:
        return {"host": host, "initiator": f"iqn.2026-01.test:{host}"}

    def connect(self, info: base.ConnectionInfo, options: base.Options) -> base.Device:
        with self._log.doing("connector connect"):
            path = f"/dev/{info['attachment_id']}"
            self.devices.add(path)
        return base.Device(path, dict(INFO))

    def disconnect(
        self,
        info: base.ConnectionInfo,
        options: base.Options,
        device: base.Device | None,
        *,
        force: bool = False,
    ) -> None:
        with self._log.doing(f"connector disconnect{' by force' if force else ''}"):
            self.devices.discard(f"/dev/{info['attachment_id']}")

    def extend(self, info: base.ConnectionInfo, options: base.Options, device: base.Device) -> int:
        return 0

    def is_present(self, info: base.ConnectionInfo, device: base.Device) -> bool:
        return device.path in self.devices


class RecordingMounts:
    """Stands for agent/mount/mounts.py and agent/mount/format_and_mount.py.

    :ivar users: devices in use
    """

    def __init__(self, log: ActionLog) -> None:
        self._log = log
        self.mounted: dict[str, str] = {}
        self.systems: dict[str, str] = {}
        self.users: set[str] = set()

    def check_unused(self, device: str) -> None:
        if device in {*self.mounted.values(), *self.users}:
            raise exception.DeviceBusy(device=device, users="postgres (4711)")

    def list_numbers(self, device: str) -> tuple[int, ...]:
        return ()

    def is_mounted(self, device: str, folder: str) -> bool:
        return self.mounted.get(folder) == device

    def flush(self, folder: str, device: str, timeout: float) -> None:
        pass

    def cut(self, folder: str, device: str) -> None:
        with self._log.doing("cut"):
            self.mounted.pop(folder, None)

    def place(
        self, kept: journal.Journal, entry: journal.Entry, progress: Any, *, mode: str
    ) -> journal.Entry:
        assert entry.device is not None
        path = entry.device.path
        if entry.mkfs is not None and path not in self.systems:
            progress(f"Making {entry.mkfs}")
            with self._log.doing(f"mkfs {entry.mkfs}"):
                self.systems[path] = entry.mkfs
        if entry.mountpoint is None:
            return entry
        entry = kept.write(entry, step=journal.Step.MOUNTING)
        with self._log.doing(f"mount {mode}"):
            self.mounted[f"{entry.mountpoint}"] = path
        return entry

    def displace(
        self, kept: journal.Journal, entry: journal.Entry, _progress: Any, *, present: bool
    ) -> journal.Entry:
        entry = kept.write(entry, step=journal.Step.UNMOUNTING)
        with self._log.doing("unmount"):
            if entry.device and self.mounted.get(f"{entry.mountpoint}") == entry.device.path:
                del self.mounted[f"{entry.mountpoint}"]
        return kept.write(entry, mountpoint=None)


class RecordingJournal(journal.Journal):
    """A journal that records its writes."""

    def __init__(self, folder: Path, log: ActionLog) -> None:
        super().__init__(folder)
        self.log = log

    def write(self, entry: journal.Entry, **changes: Any) -> journal.Entry:
        with self.log.doing(f"journal {changes.get('step', '')}".strip()):
            return super().write(entry, **changes)

    def remove(self, entry: journal.Entry) -> None:
        with self.log.doing("journal remove"):
            super().remove(entry)


class RecordingHost(Host):
    """A host without tools."""

    journal: RecordingJournal

    def check(self, protocol: str | None = None, *, tools: Any = ()) -> None:
        with self.journal.log.doing(f"check {protocol or '-'} {' '.join(tools)}".strip()):
            pass


class FakeDeployment:
    """A served API and a host."""

    def __init__(self, test: unittest.TestCase) -> None:
        self._test = test
        self.log = ActionLog()
        self.api = wsgi_api.use(test)
        self.url = self._serve()
        self.mounts = RecordingMounts(self.log)
        self._patch("attachd.agent.host.open_handles", self.mounts)
        self._patch("attachd.agent.mount.mounts.is_mounted", self.mounts.is_mounted)
        self._patch("attachd.agent.mount.mounts.flush", self.mounts.flush)
        self._patch("attachd.agent.mount.mounts.cut", self.mounts.cut)
        self._patch("attachd.agent.mount.format_and_mount.mount_volume", self.mounts.place)
        self._patch("attachd.agent.mount.format_and_mount.unmount_volume", self.mounts.displace)
        # Its devices have no size.
        self._patch("attachd.agent.mount.growth.update", lambda _journal, entry, **_more: entry)
        self._patch("attachd.agent.mount.growth.is_read", lambda _entry: True)
        self._patch("attachd.linux.block_device.size", lambda _path: 2**30)
        self._patch("attachd.client.service.Service._ask", self._ticking(Service._ask))
        self.host = self.new_host("here", lifetime.temp_dir(test))
        self.said: list[str] = []
        self.client = Client(self.connection(), self.host, self.said.append)

    def _ticking(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        def ticking(*arguments: Any, **named: Any) -> Any:
            self.log.tick()
            answer = ask(*arguments, **named)
            self.log.tick()
            return answer

        return ticking

    def new_host(self, name: str, folder: Path) -> Host:
        connector = RecordingConnector(self.log)
        with mock.patch("attachd.agent.host.make_connector", lambda *_arguments: connector):
            host = RecordingHost(Identity(name), folder)
        host.journal = RecordingJournal(folder, self.log)
        return host

    def reboot(self) -> None:
        """Remove devices and mounts, and leave the journal."""
        connector: Any = self.host.connector
        connector.devices.clear()
        self.mounts.mounted.clear()

    def service(self) -> Service:
        return Service(self.connection())

    def connection(self, token: str = wsgi_api.MEMBER) -> Any:
        made = openstack.connect(
            auth_type="admin_token",
            auth={"endpoint": f"{self.url}/v3", "token": token},
            block_storage_endpoint_override=f"{self.url}/v3",
            load_envvars=False,
            load_yaml_config=False,
            app_name="attachd-tests",
        )
        self._test.addCleanup(made.close)
        return made

    def volume(self, **values: Any) -> str:
        """Create a volume and return its id."""
        return str(db_rows.add_volume(**values)["id"])

    def attachments(self, volume: str) -> list[Any]:
        """Return the attachments of the service, without a recorded request."""
        path = f"/attachments/detail?volume_id={volume}"
        own = "volume 3.71, attachd 1.0"
        return list(self.api.request("GET", path, version=own).body["attachments"])

    def entries(self) -> list[journal.Entry]:
        return self.host.journal.list_entries()

    def _patch(self, name: str, value: Any) -> None:
        self._test.enterContext(mock.patch(name, value))

    def _serve(self) -> str:
        server = simple_server.make_server(
            "127.0.0.1", 0, self._application, handler_class=_Silent
        )
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        for item in (server.server_close, thread.join, server.shutdown):
            self._test.addCleanup(item)
        return f"http://127.0.0.1:{server.server_port}"

    def _application(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Pass a request on, or answer with the failure that is planned for it."""
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        noun = path.removeprefix("/v3").split("/")
        line = f"{method} {noun[1] if len(noun) > 1 else '-'}" + " action" * (noun[-1] == "action")
        try:
            with self.log.serving(line):
                return list(self.api.application(environ, start_response))
        except exception.HostError as error:
            headers = [("Content-Type", "application/json")]
            start_response("500 Broken", headers, sys.exc_info())
            return [json.dumps({"computeFault": {"message": f"{error}"}}).encode()]


class _Silent(simple_server.WSGIRequestHandler):
    def log_message(self, *_arguments: Any) -> None:
        pass


class AttachCase(unittest.TestCase):
    """Base of tests that attach a volume."""

    maxDiff = None

    def setUp(self):
        super().setUp()
        self.deployment = FakeDeployment(self)
        self.log = self.deployment.log
        self.volume = self.deployment.volume(name="disk")
        self.check = self.enterContext(mock.patch.object(attach, "check_mountpoint"))

    def attach(self, **options):
        return self.deployment.client.attach(self.volume, **{**OPTIONS, **options})

    def changes(self):
        """Return the recorded actions, without reads and checks."""
        return [line for line in self.log.lines if not line.startswith(("GET", "check"))]

    def entry(self):
        (entry,) = self.deployment.entries()
        return entry

    def assert_nothing_is_left(self):
        self.assertEqual([], self.deployment.entries())
        self.assertEqual([], self.deployment.attachments(self.volume))
        self.assertEqual(set(), self.deployment.host.connector.devices)
        self.assertEqual({}, self.deployment.mounts.mounted)

    def assert_attached(self, found):
        (remote,) = self.deployment.attachments(self.volume)
        self.assertEqual("attached", remote["status"])
        self.assertEqual(remote["id"], found.attachment_id)
        self.assertEqual({found.path}, self.deployment.host.connector.devices)
        self.assertEqual({"/mnt/disk": found.path}, self.deployment.mounts.mounted)
        self.assertEqual("ext4", self.deployment.mounts.systems[found.path])
        self.assertEqual(
            (Step.ATTACHED, None, found.attachment_id),
            (self.entry().step, self.entry().error, self.entry().attachment_id),
        )
