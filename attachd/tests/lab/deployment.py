# SPDX-License-Identifier: Apache-2.0
"""attachd-agent in guests, and the service that they belong to; for the tests of this folder.

The service is on this machine: the API under gunicorn, a manager with the tgt or the nfs driver,
MariaDB.  Other drivers are in a guest, where the manager calls them.  Agents reach RabbitMQ, and
volumes of tgtd, through proxies of the test, which can fail.
"""

from collections.abc import Callable
import concurrent.futures
import functools
import http.client
from pathlib import Path
from typing import Any
import unittest

import testtools
from testtools import content

from attachd.tests.fixtures import (
    deployments,
    http_client,
    lifetime,
    rabbitmq,
    tcp_proxy,
    tgtd,
)
from attachd.tests.lab import guests, installation, nfs_server, remote_driver, storage_node
from attachd.tests.wait import wait_until

VERSION = "volume 3.71, attachd 1.0"
ATTACHD_1_1 = {"OpenStack-API-Version": "volume 3.71, attachd 1.1"}
TIMEOUT = 600.0
WORK_SECONDS = 300
"""How long the API waits for a host."""

_INTERVAL = 0.2
_SHOWN = 20_000
_CONFIGURATION = "/etc/attachd/attachd.conf"
_JOURNAL = "/var/lib/attachd/host"
_LOG = "/var/log/attachd-agent.log"
_PID = "/run/attachd-agent.pid"

_AGENT = """\
[DEFAULT]
transport_url = {broker}
state_path = /var/lib/attachd
[agent]
state_path = {folder}
connector_type = kernel
report_interval = 3
{more}
"""

_MANAGER = """\
[agent]
enabled = true
transport_url = {broker}
allow_new = true
work_timeout = {seconds}
{agent}
[{backend}]
driver = {backend}
"""

# What the unit of a host with systemd would do; what it says goes where a test can look.
_START = f"""\
setsid {installation.FOLDER}/bin/attachd-agent --config-file {_CONFIGURATION} \
    >> {_LOG} 2>&1 < /dev/null & echo $! > {_PID}
"""

_STOP = f"""\
kill -TERM $(cat {_PID})
while kill -0 $(cat {_PID}) 2> /dev/null; do sleep 0.1; done
"""

# The loop runs in the guest, where a step of a moment is not over before it has been seen.
_KILL_WHEN = f"""\
touch /run/ready
until {{condition}}; do :; done
kill -KILL $(cat {_PID})
"""

_UNMOUNT_SHARES = "losetup --detach-all; umount --lazy --types nfs4 --all; true"

_FORGET = f"""\
test -e {_PID} && kill -KILL $(cat {_PID}) 2> /dev/null
grep -o '/mnt/[^ ]*' /proc/mounts | xargs -r umount --lazy
multipath -F; multipath -W
iscsiadm --mode node --logoutall=all; iscsiadm --mode node --op delete; nvme disconnect-all
rm -rf {_JOURNAL} {_LOG} {_PID}
true
"""


class Host:
    """A guest with attachd installed, and its agent.

    :ivar name: as the API knows it: the guest's
    """

    def __init__(self, guest: guests.Guest) -> None:
        self.guest = guest
        self.name = guest.name

    def configure(self, broker: str, more: str = "") -> None:
        """Write the agent's configuration.

        :param more: lines of [agent]
        """
        text = _AGENT.format(broker=broker, folder=_JOURNAL, more=more)
        self.guest.run(f"mkdir -p /etc/attachd && cat > {_CONFIGURATION}", text.encode())

    def start(self) -> None:
        """Start the agent; it may take a while until it reports."""
        self.guest.run(_START)

    def stop(self) -> None:
        """End the agent as systemd would, and wait until it has ended."""
        self.guest.run(
            f"kill -TERM $(cat {_PID}); while kill -0 $(cat {_PID}); do sleep 0.1; done"
        )

    def kill(self) -> None:
        """Kill the agent."""
        self.guest.run(f"kill -KILL $(cat {_PID})")

    def kill_when(self, condition: str) -> guests.Program:
        """Kill the agent when a condition is met; returns the running program.

        :param condition: for bash, which asks it all the time
        """
        self.guest.run("rm -f /run/ready")
        line = _KILL_WHEN.format(condition=condition)
        program = guests.Program(self.guest.lab, self.name, "bash", "-c", line)
        wait_for(lambda: self._is_there("/run/ready"))
        return program

    def _is_there(self, path: str) -> bool:
        return self.guest.run(f"test -e {path} && echo yes || true") != b""

    def log(self) -> str:
        """Return the end of the log of the agent."""
        said = self.guest.run(f"tail --bytes={_SHOWN} {_LOG} || true")
        return said.decode(errors="replace")

    def messages(self) -> str:
        """Return what the agent has logged, without os-brick and other libraries."""
        return self.guest.run(f"grep --text --fixed-strings ' attachd.' {_LOG} || true").decode()

    def reboot(self) -> None:
        """Shut it down and start it again; without unmounting or detaching."""
        self.stop()
        self.guest.leave()
        self.guest.shut_down()
        self.guest.boot()
        self.start()

    def crash(self) -> None:
        """Cut the power, and start it again."""
        self.guest.crash()
        self.guest.boot()
        self.start()

    def forget(self) -> None:
        """Remove everything that a test left."""
        self.guest.leave()
        self.guest.run(_FORGET)


class Service:
    """attachd on this machine, for hosts in guests.

    :ivar api: asks it, in attachd's own version
    :ivar queue: the proxy between the guests and RabbitMQ
    :ivar url: of the API, as guests reach it, ending in /v3
    """

    def __init__(
        self,
        test: testtools.TestCase,
        backend: str,
        options: dict[str, Any],
        *,
        agent: str = "",
        work: int = WORK_SECONDS,
    ) -> None:
        """Start it.

        :param backend: the name of the driver
        :param options: of the driver
        :param agent: lines of [agent], for API and manager
        :param work: seconds that the API waits for a host
        """
        deployment = deployments.Deployment(test, "mariadb", backend=backend, workers=1)
        agent_broker = rabbitmq.create_agents_vhost(test)
        text = _MANAGER.format(seconds=work, agent=agent, broker=agent_broker, backend=backend)
        deployment.configure(text + "".join(f"{key} = {options[key]}\n" for key in options))
        self._start_manager(test, deployment)
        deployment.start_gunicorn().show_in_failures(test)
        deployment.wait_until_served()
        self.api = http_client.Client(f"{deployment.url}/v3", VERSION, TIMEOUT)
        port = deployment.url.rpartition(":")[2]
        self.url = f"http://{guests.MACHINE}:{port}/v3"
        self.queue, broker = tcp_proxy.in_front_of(test, agent_broker)
        self._broker = broker.replace("127.0.0.1:", f"{guests.MACHINE}:")

    def _start_manager(self, test: testtools.TestCase, deployment: deployments.Deployment) -> None:
        deployment.start_manager().show_in_failures(test)

    def run_attachd(self, host: Host, command: str) -> str:
        """Run the command ``attachd`` on a host, as root, and return what it printed.

        :param command: its arguments, for the shell
        :raises guests.Failed: it did not exit with 0
        """
        settings = f"OS_AUTH_TYPE=none OS_ENDPOINT={self.url} PYTHONWARNINGS=ignore"
        return host.guest.run(f"{settings} {installation.FOLDER}/bin/attachd {command}").decode()

    def start(self, host: Host, more: str = "") -> None:
        """Start the agent of a host, and wait until the service knows it and can call it.

        :param more: lines of [agent]
        """
        host.configure(self._broker, more)
        host.start()
        self.wait_until_alive(host)
        wait_for(lambda: "the agent serves requests" in host.messages())

    def extend(self, volume: str, size_gib: int) -> None:
        """Extend a volume, and wait until it has the size."""
        body = {"os-extend": {"new_size": size_gib}}
        self.api.request_json("POST", f"/volumes/{volume}/action", body)
        self.api.wait_for_size(volume, size_gib)

    def wait_until_alive(self, host: Host) -> None:
        """Wait until an agent has reported."""
        wait_for(lambda: self.is_alive(host))

    def is_alive(self, host: Host) -> bool:
        """Whether an agent reports."""
        found = self.agent(host)
        return found is not None and found["state"] == "up"

    def agent(self, host: Host) -> Any:
        """Return the record of an agent; None: there is none."""
        agents = self.api.request_json("GET", "/agents")["agents"]
        return next((item for item in agents if item["host"] == host.name), None)

    def wait_for_device(self, attachment: Any, host: Host) -> None:
        """Wait until a host reports the device of an attachment; then it is the guest's path.

        Only a new report counts.
        """
        before = self.agent(host)["last_seen"]

        def path() -> str | None:
            agent = self.agent(host)
            devices = agent["devices"] if agent["last_seen"] != before else []
            own = (device for device in devices if device["attachment_id"] == attachment["id"])
            return next((item["path"] for item in own), None)

        host.guest.path = wait_for(path)
        # The agent sends the path after it has stored it, and a report may come between.
        wait_for(lambda: self.attachment(attachment)["device"] == host.guest.path)

    def attach(self, volume: str, host: Host, **wanted: Any) -> Any:
        """Attach a volume to a host, and return the attachment; its device is the guest's path.

        A busy guest may have been too slow for its agent's check of the host: that is no hang.
        """
        wait_for(lambda: not self.agent(host)["error"])
        made = self.ask_to_attach(volume, host, **wanted)
        assert made.status == http.client.OK, made
        attachment = made.body["attachment"]
        host.guest.path = attachment["device"]
        return attachment

    def ask_to_attach(self, volume: str, host: Host, **wanted: Any) -> http_client.Response:
        """Request an attachment to a host."""
        body = {"volume_uuid": volume, "host": host.name, **wanted}
        return self.api.request("POST", "/attachments", {"attachment": body})

    def ask_to_detach(self, attachment: Any) -> http_client.Response:
        """Request the deletion of an attachment."""
        return self.api.request("DELETE", f"/attachments/{attachment['id']}")

    def detach(self, attachment: Any) -> None:
        """Delete an attachment."""
        answer = self.ask_to_detach(attachment)
        assert answer.status == http.client.OK, answer

    def attachment(self, attachment: Any) -> Any:
        """Return the current state of an attachment."""
        return self.api.request_json("GET", f"/attachments/{attachment['id']}")["attachment"]

    def attachments_of(self, volume: str) -> list[Any]:
        """Return the attachments of a volume."""
        listed = self.api.request_json("GET", f"/attachments/detail?volume_id={volume}")
        found: list[Any] = listed["attachments"]
        return found

    def fence(self, host: Host) -> list[Any]:
        """Fence a host, and return the results of its attachments; none of them is pending."""
        body = {"fence": {"reason": "test", "lift": "auto"}}

        def results() -> list[Any] | None:
            answer = self.api.request("POST", f"/hosts/{host.name}/fence", body, ATTACHD_1_1)
            assert answer.status == http.client.OK, answer
            found: list[Any] = answer.body["fence"]["attachments"]
            return None if any(item["result"] == "pending" for item in found) else found

        return wait_until_not_none(results)

    def unfence(self, host: Host) -> None:
        """Lift the fence of a host."""
        body = {"unfence": None}
        answer = self.api.request("POST", f"/hosts/{host.name}/unfence", body, ATTACHD_1_1)
        assert answer.status == http.client.OK, answer

    def is_fenced(self, host: Host) -> bool:
        """Whether a host is fenced."""
        answer = self.api.request("GET", f"/hosts/{host.name}", headers=ATTACHD_1_1)
        assert answer.status == http.client.OK, answer
        return bool(answer.body["host"]["fenced"])

    def proof(self, attachment: Any) -> Any:
        """Return the proof of the last fence of an attachment, which may be deleted by now."""
        path = f"/attachments/{attachment['id']}/timeline"
        events = self.api.request("GET", path, headers=ATTACHD_1_1).body["timeline"]
        return [event for event in events if event["type"] == "fenced"][-1]["proof"]


class LabDeployment(Service):
    """A service with the tgt driver.

    :ivar tgtd: where the volumes are
    :ivar portals: the proxies between the guests and tgtd
    """

    def __init__(self, test: testtools.TestCase, *, portals: int = 1, **settings: Any) -> None:
        """Start it.

        :param portals: how many addresses of tgtd hosts get
        :param settings: as Service takes them
        """
        self.tgtd = test.useFixture(tgtd.Tgtd(test))
        address, _, port = self.tgtd.portal.rpartition(":")
        self.portals = [tcp_proxy.Proxy(test, address, int(port)) for _ in range(portals)]
        first, *others = (f"{guests.MACHINE}:{portal.port}" for portal in self.portals)
        options = {**self.tgtd.options, "tgt_portal": first, "tgt_more_portals": ",".join(others)}
        super().__init__(test, "tgt", options, **settings)

    def file(self, volume: str) -> Path:
        """Return the file that has the blocks of a volume."""
        return Path(self.tgtd.options["tgt_volumes_dir"]) / volume


class RemoteDeployment(Service):
    """A service whose driver is in a guest with attachd, beside the storage."""

    def __init__(
        self,
        test: testtools.TestCase,
        guest: guests.Guest,
        driver: str,
        options: dict[str, Any],
    ) -> None:
        """Start it.

        :param guest: with the storage
        :param driver: its name
        :param options: of the driver, as values
        """
        self._folder = lifetime.temp_dir(test)
        program = remote_driver.install(self._folder, guest, driver, options)
        super().__init__(test, remote_driver.NAME, {"remote_program": program})

    def _start_manager(self, test: testtools.TestCase, deployment: deployments.Deployment) -> None:
        deployment.environment["PYTHONPATH"] = f"{self._folder}"
        super()._start_manager(test, deployment)


class NfsDeployment(Service):
    """A service with the nfs driver, and a server that guests mount.

    :ivar folder: what the server exports
    """

    def __init__(self, test: testtools.TestCase) -> None:
        guests.need_lab(test)
        self._test = test
        self._server = nfs_server.Server(test)
        self.folder = self._server.folder
        super().__init__(test, "nfs", self._server.options(guests.MACHINE))

    def unmount_at_end(self, host: Host) -> None:
        """Have a host unmount the share before the server ends: without it the command hangs."""
        self._test.addCleanup(host.guest.run, _UNMOUNT_SHARES)

    def restart_server(self) -> None:
        """Kill the server of the share, and start another one, which has no open files."""
        self._server.restart()


def wait_for(read: Any, timeout: float = TIMEOUT) -> Any:
    """Wait until a value is true, and return it.

    :param read: returns it, and something false until then
    """
    return wait_until(read, timeout=timeout, interval=_INTERVAL)


def wait_for_lease(service: Service, host: Host, seconds: int) -> None:
    """Wait until the agent of a host has a lease, and the managers know that it uses it."""
    stored, line = f'"length": {seconds}', f"cat {_JOURNAL}/agent.lease || true"
    wait_for(lambda: stored in host.guest.run(line).decode())
    # The next report has the length that the agent uses.
    seen = service.agent(host)["last_seen"]
    wait_for(lambda: service.agent(host)["last_seen"] != seen)


def wait_until_not_none(read: Callable[[], Any]) -> Any:
    """Wait until a value is not None, and return it; it may be false."""
    seen: list[Any] = []

    def is_there() -> bool:
        seen.append(read())
        return seen[-1] is not None

    wait_for(is_there)
    return seen[-1]


class AgentCase(testtools.TestCase):
    """Guests with attachd, for all tests of a class.

    :cvar HOSTS: how many
    :cvar a: the first one
    :cvar b: the last one
    """

    HOSTS = 2
    hosts: list[Host]
    a: Host
    b: Host

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        lab = guests.Lab(guests.need_lab(unittest.TestCase()))
        cls.addClassCleanup(lab.down)
        parcel = installation.Parcel(cls.addClassCleanup)
        booted = cls.boot_guests(lab)
        for guest in booted:
            cls.addClassCleanup(guest.leave)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(parcel.install, booted))
        cls.hosts = [Host(item) for item in booted[: cls.HOSTS]]
        cls.a, cls.b = cls.hosts[0], cls.hosts[-1]

    @classmethod
    def boot_guests(cls, lab: guests.Lab) -> list[guests.Guest]:
        """Boot the hosts, and other guests that get attachd after them."""
        return lab.up(hosts=cls.HOSTS)

    def setUp(self) -> None:
        super().setUp()
        for host in self.hosts:
            self.addCleanup(host.forget)
            self.addOnException(functools.partial(self._show, host))

    def _show(self, host: Host, _error: object) -> None:
        try:
            said = host.log()
        except guests.Failed as error:
            said = f"{error}"
        self.addDetail(f"agent of {host.name}", content.text_content(said))

    def assert_nothing_is_left(self, service: Service, *volumes: str) -> None:
        """Check that detached volumes can be deleted, without remaining objects."""
        for volume in volumes:
            self.assertEqual([], service.attachments_of(volume))
            service.api.request_json("DELETE", f"/volumes/{volume}")
            service.api.wait_for(volume, "gone")
        if isinstance(service, LabDeployment):
            self.assertEqual([], service.tgtd.orphans())
        for host in self.hosts:
            self.assert_has_nothing(host)

    def assert_has_nothing(self, host: Host) -> None:
        """Check that a host has no session, no device and no journal entry."""
        line = f"ls --ignore=report.token {_JOURNAL}/attachments || true"
        journal = host.guest.run(line).decode().split()
        found = (host.guest.sessions(), host.guest.devices(), journal)
        self.assertEqual(([], [], []), found, host.name)


class StorageNodeCase(AgentCase):
    """One host, and a storage node whose exports the service does not know.

    :cvar node: has a group of volumes
    """

    HOSTS = 1
    node: storage_node.StorageNode

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.addClassCleanup(cls.node.stop)
        cls.node.make_group()

    @classmethod
    def boot_guests(cls, lab: guests.Lab) -> list[guests.Guest]:
        booted = lab.up(hosts=cls.HOSTS, storage=1, disk_mib=storage_node.DISK_MIB)
        cls.node = storage_node.StorageNode(booted[-1])
        return booted
