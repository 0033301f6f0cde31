# SPDX-License-Identifier: Apache-2.0
"""Real agents on real services: an API, a manager with tgtd, RabbitMQ, and hosts on this machine.

Each host is a folder and an iSCSI name of its own.  Its devices are made in user space, so that
any machine with FUSE and loop devices will do.
"""

from collections.abc import Callable, Iterator
import contextlib
import os
from pathlib import Path
import re
import select
import signal
import subprocess
import sys
from typing import Any
import unittest
import uuid

import requests

from attachd.agent.journal import Entry, Journal
from attachd.tests import machine, wait
from attachd.tests.crashing.points import Plan
from attachd.tests.functional import processes
from attachd.tests.functional.tgtd import Tgtd
from attachd.tests.lasting import Lasting

HEADERS = {"OpenStack-API-Version": "volume 3.71, attachd 1.0"}

_SERVICE = """\
[agent]
work_timeout = 240
down_time = 600

[tgt]
driver = tgt
tgt_volumes_dir = {tgt_volumes_dir}
tgt_portal = {tgt_portal}
tgt_control_socket = {tgt_control_socket}
"""

_HOST = """\
[DEFAULT]
transport_url = {broker}

[agent]
host = {name}
folder = {folder}
connector_type = user-space
initiator = iqn.2026-01.org.example:{name}
report_interval = 1

[oslo_messaging_rabbit]
rabbit_interval_max = 1
"""


def need(test: unittest.TestCase) -> None:
    """Go on only where devices can be made in user space."""
    machine.need_root(test)
    machine.share_mounts(test)
    for tool in ("qemu-storage-daemon", "losetup", "tgtd"):
        machine.need_tool(test, tool)
    for device in ("/dev/fuse", "/dev/loop-control"):
        machine.need_device(test, device)


class Agent:
    """A process that is the agent of a host.

    :ivar pid: its id
    """

    def __init__(self, pid: int, log: Path) -> None:
        self.pid = pid
        self._log = log
        self._handle = os.pidfd_open(pid)

    @property
    def output(self) -> str:
        """All that it has written so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def wait_until_dead(self) -> None:
        """Wait until it has ended, by itself or by a plan."""
        ready, _, _ = select.select([self._handle], [], [], wait.TIMEOUT)
        assert ready, f"it did not end:\n{self.output}"

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it is still there."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        """Kill it, whatever it does."""
        self.send(signal.SIGKILL)
        self.wait_until_dead()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let it do nothing for a while."""
        self.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self.send(signal.SIGCONT)


class Host:
    """One host, whose agent is started by :meth:`start`.

    :ivar name: as callers name it
    :ivar folder: with its journal and all that its devices are made of
    """

    def __init__(self, site: "Site", test: unittest.TestCase, broker: str | None = None) -> None:
        self._site = site
        self.name = f"host-{uuid.uuid4().hex[:8]}"
        self.top = processes.folder(test)
        self.folder = self.top / "host"
        self._configuration = self.top / "agent.conf"
        self._configuration.write_text(
            _HOST.format(broker=broker or site.broker, name=self.name, folder=self.folder)
        )
        self.agents: list[Agent] = []
        test.addCleanup(self._clear)

    def start(self) -> Agent:
        """Start the agent; it is at work when this returns."""
        made = self.spawn()
        wait.wait_until(lambda: "is at work" in made.output, lambda: made.output)
        return made

    def report_every(self, seconds: int) -> None:
        """Have agents that are started from now on report, and look what is due, so often."""
        text = self._configuration.read_text()
        self._configuration.write_text(f"{text}\n[agent]\nreport_interval = {seconds}\n")

    def spawn(self) -> Agent:
        """Start the agent, and wait for nothing."""
        log = self.top / f"log.{len(self.agents)}"
        made = self._site.fork(self._configuration, log)
        self.agents.append(made)
        return made

    @property
    def log(self) -> str:
        """What all its agents have written."""
        return "\n".join(each.output for each in self.agents)

    def entries(self) -> list[Entry]:
        """Read the journal."""
        return Journal(self.folder).entries()

    def device(self, attachment_id: str) -> Path:
        """Return the path of a device, by the journal."""
        found = [each for each in self.entries() if each.attachment_id == attachment_id]
        assert found, self.entries()
        assert found[0].device, found
        return Path(found[0].device.path)

    def loops(self) -> list[str]:
        """Return the loop devices over files of this host."""
        return [
            f"/dev/{path.parents[1].name}"
            for path in Path("/sys/block").glob("loop*/loop/backing_file")
            if _line(path).startswith(f"{self.folder}/")
        ]

    def daemons(self) -> list[int]:
        """Return the storage daemons of this host."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            line = _line(path)
            if "qemu-storage-daemon" in line and f"{self.folder}/" in line:
                found.append(int(path.parent.name))
        return found

    def reboot(self) -> None:
        """Lose all that does not survive a reboot: the agent, daemons, mounts and devices."""
        for each in self.agents:
            each.kill()
        for pid in self.daemons():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait.wait_until(lambda: not self.daemons(), self.daemons)
        for device in self.loops():
            subprocess.run(["losetup", "--detach", device], check=False, capture_output=True)
        for line in Path("/proc/self/mounts").read_text().splitlines():
            if line.split()[1].startswith(f"{self.folder}/"):
                subprocess.run(["umount", "--lazy", line.split()[1]], check=False)
        wait.wait_until(lambda: not self.loops(), self.loops)

    def _clear(self) -> None:
        self.reboot()


def _line(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


class Site:
    """API, manager, tgtd, and a nursery of agents.

    :ivar broker: the URL of their virtual host
    :ivar plans: the folder with the plan that agents follow
    :ivar manager: the process
    """

    def __init__(self, test: unittest.TestCase) -> None:
        need(test)
        self.tgtd = Tgtd(test)
        test.addCleanup(self.tgtd.cleanUp)
        self.tgtd.setUp()
        self.deployment = processes.Deployment(test, "mariadb", backend="tgt", workers=1)
        self.deployment.configure(_SERVICE.format(**self.tgtd.options))
        text = (self.deployment.folder / "attachd.conf").read_text()
        found = re.search(r"^transport_url = (.+)$", text, re.MULTILINE)
        assert found
        self.broker = found[1]
        self.plans = processes.folder(test)
        Plan().write(self.plans)
        self._serial = 0
        self._nursery = self._start_nursery(test)
        self.manager = self.deployment.start_manager()
        self.deployment.start_gunicorn()
        self._url = self.deployment.url
        self.deployment.wait_until_served()

    def _start_nursery(self, test: unittest.TestCase) -> subprocess.Popen[str]:
        started = subprocess.Popen(
            [sys.executable, "-m", "attachd.tests.functional.agent_nursery", f"{self.plans}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=processes.environment(),
            text=True,
        )
        test.addCleanup(started.wait)
        test.addCleanup(started.kill)
        return started

    def fork(self, configuration: Path, log: Path) -> Agent:
        """Start an agent."""
        assert self._nursery.stdin
        assert self._nursery.stdout
        self._nursery.stdin.write(f"{configuration} {log}\n")
        self._nursery.stdin.flush()
        return Agent(int(self._nursery.stdout.readline()), log)

    @contextlib.contextmanager
    def another_api(self, test: unittest.TestCase, settings: str) -> Iterator[None]:
        """Send requests to an API with other settings in its group ``agent`` for a while."""
        own = processes.folder(test) / "attachd.conf"
        text = (self.deployment.folder / "attachd.conf").read_text()
        own.write_text(f"{text}\n[agent]\n{settings}\n")
        server = processes.Process(
            test,
            processes.script("gunicorn"),
            f"--config={processes.ROOT / 'etc/attachd/gunicorn.conf.py'}",
            "--bind=127.0.0.1:0",
            env=processes.environment(ATTACHD_CONFIG_FILES=f"{own}", HOME=f"{own.parent}"),
            cwd=own.parent,
        )
        self._url = server.wait_for(r"Listening at: (http://127.0.0.1:\d+)")[1]
        try:
            yield
        finally:
            self._url = self.deployment.url
            server.kill()

    def follow(self, plan: Callable[[int], Plan]) -> int:
        """Have agents follow another plan from now on, and return its number."""
        self._serial += 1
        plan(self._serial).write(self.plans)
        return self._serial

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> requests.Response:
        """Send a request."""
        return requests.request(
            method,
            f"{self._url}/v3{path}",
            json=body,
            headers={**HEADERS, **headers},
            timeout=wait.TIMEOUT,
        )

    def make_volume(self) -> str:
        """Make a volume of 1 GiB."""
        answer = self.ask("POST", "/volumes", {"volume": {"size": 1}})
        assert answer.status_code == 202, answer.text
        volume: str = answer.json()["volume"]["id"]
        self.wait_for_volume(volume, "available")
        return volume

    def volume(self, volume: str) -> dict[str, Any]:
        """Read a volume."""
        found: dict[str, Any] = self.ask("GET", f"/volumes/{volume}").json()["volume"]
        return found

    def wait_for_volume(self, volume: str, status: str) -> None:
        """Wait until a volume has a status."""
        wait.wait_until(
            lambda: self.volume(volume)["status"] == status, lambda: self.volume(volume)
        )

    def attach(self, volume: str, host: str, **headers: str) -> requests.Response:
        """Attach a volume to a host."""
        wanted = {"volume_uuid": volume, "host": host}
        return self.ask("POST", "/attachments", {"attachment": wanted}, **headers)

    def attachment(self, attachment_id: str) -> dict[str, Any]:
        """Read an attachment; {} if it is gone."""
        answer = self.ask("GET", f"/attachments/{attachment_id}")
        found: dict[str, Any] = {} if answer.status_code == 404 else answer.json()["attachment"]
        return found

    def detach(self, attachment_id: str, **headers: str) -> requests.Response:
        """Delete an attachment."""
        return self.ask("DELETE", f"/attachments/{attachment_id}", **headers)

    def agent(self, host: str) -> dict[str, Any]:
        """Read what is known of an agent; {} if nothing is."""
        answer = self.ask("GET", f"/agents/{host}")
        found: dict[str, Any] = {} if answer.status_code == 404 else answer.json()["agent"]
        return found


_shared: list[Site] = []


def shared(test: unittest.TestCase) -> Site:
    """Return the site of this process's tests, which ends with the process."""
    if not _shared:
        _shared.append(Site(Lasting(test)))
    return _shared[0]
