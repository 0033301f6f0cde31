# SPDX-License-Identifier: Apache-2.0
"""The compute host with libvirt, its guests, and the agent that defines secrets there."""

from collections.abc import Iterator
import contextlib
import os
from pathlib import Path
import re
import signal
import socket
import subprocess
from typing import Any, Final

from keystoneauth1 import exceptions as keystone_exceptions

from attachd.tests.fixtures import lifetime, rabbitmq
from attachd.tests.nova.case import NovaCase
from attachd.tests.wait import wait_until

HOST: Final = socket.gethostname()
COMPUTE: Final = "compute3"
"""The process of nova-compute on the host."""

_SERVICE: Final = """
[agent]
enabled = true
allow_new = true
transport_url = {broker}
"""
_AGENT: Final = """\
[DEFAULT]
transport_url = {broker}
[agent]
host = {host}
state_path = {folder}
connector_type = user-space
report_interval = 1
libvirt_uri = {uri}
"""
_prepared: set[str] = set()


class LibvirtCase(NovaCase):
    """A test with guests, whose disks are reported on their consoles.

    ``guest-init`` of the scripts describes the lines.
    """

    def setUp(self) -> None:
        super().setUp()
        self._vcpus(fake=False)
        self.addCleanup(self._vcpus, fake=True)
        self.addCleanup(self.cloud.clean)
        if not _prepared:
            self._prepare_agent()
            _prepared.add(HOST)
        self.start_again()
        wait_until(self._has_agent, interval=0.5)

    def _has_agent(self) -> bool:
        rows = self.cloud.sql("attachd", "SELECT libvirt_secrets FROM agents")
        return rows == ((1,),)

    def _vcpus(self, *, fake: bool) -> None:
        """Have new servers fit the host with libvirt, or the others."""
        self.cloud.prepare(fake)

    def _prepare_agent(self) -> None:
        owner = lifetime.ProcessScope(self)
        broker = rabbitmq.create_agents_vhost(owner)
        service = Path(self.cloud.ETC) / "attachd" / "attachd.conf"
        text = service.read_text(encoding="utf-8").replace("enabled = false\n", "")
        service.write_text(text + _SERVICE.format(broker=broker), encoding="utf-8")
        folder = lifetime.temp_dir(owner)
        values = {"broker": broker, "host": HOST, "folder": folder, "uri": self.libvirt_uri}
        self._agent_conf.write_text(_AGENT.format(**values), encoding="utf-8")
        for name in ("attachd-manager", "attachd-api"):
            self.kill(name)
        self.cloud.start_manager()
        self.wait_for_manager()
        owner.addCleanup(self.kill, "agent")

    @property
    def _agent_conf(self) -> Path:
        return Path(self.cloud.ETC) / "attachd" / "agent.conf"

    @property
    def libvirt_uri(self) -> str:
        """The URI of the libvirt of the host."""
        return f"qemu:///system?socket={self.cloud.HOME}/libvirt/run/libvirt-sock"

    def start_again(self) -> None:
        """Start what was killed of nova-compute, agent, manager and API."""
        if not self._is_running("attachd-manager"):
            self.cloud.start_manager()
        if not self._is_running("attachd-api"):
            self.cloud.start_attachd_api()
        if not self._runs("agent"):
            program = f"{os.environ['ACCEPT_VENV']}/attachd/bin/attachd-agent"
            self.cloud.start("agent", program, "--config-file", f"{self._agent_conf}")
        if not self._is_running(COMPUTE):
            self.cloud.start_compute(COMPUTE, wait_for=None)

    def wait_for_manager(self) -> None:
        """Wait until a manager serves the backend."""
        wait_until(self._serves, interval=0.5)

    def _serves(self) -> bool:
        """Return whether API and manager serve; a former API may have its port for a moment."""
        if not self._is_running("attachd-api"):
            self.cloud.start_attachd_api()
        try:
            return self._backend_state("ceph") == "up"
        except keystone_exceptions.ConnectFailure:
            return False

    def _runs(self, name: str) -> bool:
        return Path(f"{self.cloud.RUN}/{name}.pid").exists() and self._is_running(name)

    def kill(self, name: str) -> None:
        """Kill a process and its children, if it runs."""
        if self._runs(name):
            self.cloud.kill(name)
            wait_until(lambda: not self._is_running(name))

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Let nova-compute, agent and libvirt do nothing for the block; guests go on."""
        names = (COMPUTE, "agent", "libvirtd")
        for name in names:
            self.cloud.kill(name, signal.SIGSTOP)
        try:
            yield
        finally:
            for name in names:
                self.cloud.kill(name, signal.SIGCONT)

    def guest(self) -> str:
        """Return a new server on the host, once its guest reports disks."""
        server: str = self.admin.server(host=HOST)
        self.wait_for_line(server, f"ACCEPT up {server}")
        return server

    def console(self, server: str) -> str:
        """Return what the guest of a server has written."""
        return str(self.admin.act(server, "os-getConsoleOutput", {"length": None})["output"])

    def boot_volume(self) -> str:
        """Return a new volume on Ceph from which guests boot."""
        volume: str = self.admin.volume("ceph", bootable=True)
        target = f"rbd:volumes/attachd-{volume}:conf={self.ceph_conf}"
        line = ("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw")
        self._run(*line, f"{self.cloud.HOME}/guest.img", target)
        return volume

    def console_file(self, server: str) -> Path:
        """Return the file with what the guest of a server has written, for a host that hangs."""
        folder = Path(f"{self.cloud.HOME}/state/{COMPUTE}/instances/{server}")
        return folder / "console.log"

    def wait_for_line(self, server: str, pattern: str, timeout: float = 120.0) -> str:
        """Wait until the guest has written a line, and return the match."""

        def find() -> str:
            found = re.findall(pattern, self.console(server))
            return str(found[-1]) if found else ""

        return wait_until(find, lambda: self.console(server), timeout=timeout, interval=0.2)

    def secrets(self) -> set[str]:
        """Return the attachments that have a secret of libvirt."""
        line = ("virsh", "--quiet", "--connect", self.libvirt_uri, "secret-list")
        return set(re.findall(r"ceph attachd-(\S+)", self._run(*line)))

    def users(self) -> set[str]:
        """Return the attachments that have a cephx user."""
        text = self._run("ceph", "--conf", self.ceph_conf, "auth", "ls")
        return set(re.findall(r"^client\.attachd-(\S{36})$", text, re.MULTILINE))

    def watchers(self, volume: str) -> list[str]:
        """Return the clients that have the image of a volume open."""
        image = f"volumes/attachd-{volume}"
        text = self._run("rbd", "--conf", self.ceph_conf, "status", image)
        return re.findall(r"watcher=(\S+)", text)

    @property
    def ceph_conf(self) -> str:
        """The configuration of an administrator of Ceph."""
        return f"{self.cloud.HOME}/ceph/ceph.conf"

    @staticmethod
    def _run(*line: str) -> str:
        done: Any = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)
        return str(done.stdout)
