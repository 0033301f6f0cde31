# SPDX-License-Identifier: Apache-2.0
"""Tests of agents over RabbitMQ, with tgtd and devices in user space.

Crashes of agents are in test_agent_crashes.py.
"""

import contextlib
import os
from pathlib import Path
import signal
import threading

import testtools

from attachd.tests.fixtures import (
    agent_deployment,
    agent_fork_server,
    processes,
    requirements,
    tcp_proxy,
)
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

GIB = 2**30
BYTES = os.urandom(4096)
LATER = {"Prefer": "respond-async"}
SHORT_WORK_TIMEOUT = "work_timeout = 2"  # for agents that are stopped, and never answer
SHORT_DOWN_TIME = "down_time = 3"  # for agents that are cut off until they count as away
UNIT = processes.ROOT / "etc" / "systemd" / "attachd-agent.service"


class AgentCase(testtools.TestCase):
    """A shared deployment, and a host and a volume per test."""

    def setUp(self):
        super().setUp()
        self.deployment = self.deploy()
        self.host = agent_deployment.AgentHost(self.deployment, self)
        self.addOnException(self._show)
        self.volume = self.deployment.create_volume()

    def deploy(self):
        """Return the deployment of the test."""
        return agent_deployment.shared(self)

    def _show(self, _error):
        for name, text in (("agent", self.host.log), ("manager", self.deployment.manager.output)):
            self.addDetail(name, testtools.content.text_content(text[-20_000:]))

    def attach(self):
        """Attach the volume, and return the attachment's id."""
        answer = self.deployment.attach(self.volume, self.host.name)
        self.assertEqual(200, answer.status_code, answer.text)
        self.asked = answer.headers["x-openstack-request-id"]
        return answer.json()["attachment"]["id"]

    def begin(self):
        """Have the volume attached by and by, and return the attachment's id."""
        answer = self.deployment.attach(self.volume, self.host.name, **LATER)
        self.assertEqual(202, answer.status_code, answer.text)
        return answer.json()["attachment"]["id"]

    def detach(self, attachment_id):
        answer = self.deployment.detach(attachment_id)
        self.assertEqual(200, answer.status_code, answer.text)
        self.assert_nothing_is_left()

    def write(self, attachment_id):
        with self.host.device(attachment_id).open("r+b") as device:
            device.write(BYTES)
            os.fsync(device.fileno())

    def read(self, attachment_id):
        with self.host.device(attachment_id).open("rb") as device:
            return device.read(len(BYTES))

    def stored(self):
        """Return what is on the backend."""
        with self.backing_file().open("rb") as file:
            return file.read(len(BYTES))

    def backing_file(self):
        (found,) = Path(self.deployment.tgtd.options["tgt_volumes_dir"]).rglob(f"*{self.volume}*")
        return found

    def exported(self):
        """Return whether the backend exports the volume."""
        return self.deployment.exports(self.volume)

    def status(self, attachment_id):
        return self.deployment.attachment(attachment_id).get("status")

    def wait_for(self, attachment_id, status):
        """Wait until an attachment has a status; None: until it is deleted."""
        wait_until(
            lambda: self.status(attachment_id) == status,
            lambda: self.deployment.attachment(attachment_id),
        )

    def assert_nothing_is_left(self):
        self.deployment.wait_for_volume(self.volume, "available")
        self.assertFalse(self.exported())
        wait_until(lambda: not self.host.entries(), self.host.entries)
        self.assertEqual(([], []), (self.host.loops(), self.host.daemons()))


@full_only("agents")
class AgentsTest(AgentCase):
    """Attach and detach, and agents that do not answer; they share one deployment."""

    def test_agent_attaches_and_detaches_a_volume(self):
        self.host.start()
        attachment_id = self.attach()
        shown = self.deployment.attachment(attachment_id)
        path = f"{self.host.device(attachment_id)}"
        expected = ("attached", self.host.name, path)
        self.assertEqual(expected, (shown["status"], shown["attached_host"], shown["device"]))
        self.assertEqual("in-use", self.deployment.volume(self.volume)["status"])
        # The agent's log is read by the id of the request.
        self.assertRegex(self.host.log, rf"{self.asked} .*Volume {self.volume}: device {path}")
        self.write(attachment_id)
        self.detach(attachment_id)
        self.assertEqual(BYTES, self.stored())

    def test_agent_reports_state_and_devices(self):
        self.host.start()
        attachment_id = self.attach()
        # The last report may be from the time when it was still connecting.
        wait_until(
            lambda: any(item["path"] and item["size_bytes"] for item in self.known()["devices"])
        )
        known = self.known()
        (device,) = known["devices"]
        self.assertEqual(
            ("up", "user-space", None), (known["state"], known["connector_type"], known["error"])
        )
        self.assertEqual((attachment_id, GIB), (device["attachment_id"], device["size_bytes"]))
        self.assertEqual(self.host.name, known["connector"]["host"])
        self.detach(attachment_id)

    def test_host_takes_as_many_attachments_as_its_agent_reports(self):
        self.host.set("max_attachments = 1")
        self.host.start()
        attachment_id = self.attach()
        self.assertEqual(1, self.known()["max_attachments"])
        other = self.deployment.create_volume()
        answer = self.deployment.attach(other, self.host.name)
        self.assertEqual(409, answer.status_code, answer.text)
        refusal = f"Host {self.host.name} has 1 attachments, and can take 1"
        self.assertIn(refusal, answer.text)
        self.assertIn("attachd.host_limit_exceeded", answer.text)
        self.deployment.wait_for_volume(other, "available")
        self.detach(attachment_id)
        attached = self.deployment.attach(other, self.host.name)
        self.assertEqual(200, attached.status_code, attached.text)
        detached = self.deployment.detach(attached.json()["attachment"]["id"])
        self.assertEqual(200, detached.status_code, detached.text)

    def known(self):
        return self.deployment.agent(self.host.name)

    def test_detach_with_busy_device_fails_and_names_the_users(self):
        self.host.start()
        attachment_id = self.attach()
        with self.host.device(attachment_id).open("rb"):
            answer = self.deployment.detach(attachment_id)
            self.assertEqual(409, answer.status_code, answer.text)
            self.assertIn(f"process {os.getpid()}", answer.text)
            self.assertTrue(self.exported())
            self.assertEqual("attached", self.status(attachment_id))
        self.detach(attachment_id)

    def test_extend_volume_resizes_the_agents_device(self):
        self.host.start()
        attachment_id = self.attach()
        answer = self.deployment.request(
            "POST", f"/volumes/{self.volume}/action", {"os-extend": {"new_size": 2}}
        )
        self.assertEqual(202, answer.status_code, answer.text)
        size = Path("/sys/block", self.host.device(attachment_id).name, "size")
        wait_until(lambda: int(size.read_text()) * 512 == 2 * GIB, size.read_text)
        self.deployment.wait_for_volume(self.volume, "in-use")
        self.detach(attachment_id)

    def test_attach_with_unreachable_target_leaves_nothing(self):
        self.host.start()
        real = self.host.folder / "devices"
        real.write_text("in the way")
        answer = self.deployment.attach(self.volume, self.host.name)
        self.assertEqual(500, answer.status_code, answer.text)
        real.unlink()
        self.assert_nothing_is_left()

    def test_connect_that_hangs_is_killed_and_other_volumes_are_attached(self):
        self.host.set("host_timeout = 8\nthreads = 1")
        self.host.start()
        fifo = self.host.folder / f"{agent_fork_server.HANGING}.{self.volume}"
        os.mkfifo(fifo)
        answer = self.deployment.attach(self.volume, self.host.name)
        self.assertEqual(500, answer.status_code, answer.text)
        self.assertIn("did not end within 8 s", answer.text)
        hanging = self.begin()
        other = self.deployment.create_volume()
        answer = self.deployment.attach(other, self.host.name)
        self.assertEqual(200, answer.status_code, answer.text)
        self.assertEqual("up", self.deployment.agent(self.host.name)["state"])
        fifo.unlink()
        self.wait_for(hanging, "attached")
        detached = self.deployment.detach(answer.json()["attachment"]["id"])
        self.assertEqual(200, detached.status_code, detached.text)
        self.detach(hanging)

    def test_attachment_of_restored_database_waits_for_orphan_device_elsewhere(self):
        other = agent_deployment.AgentHost(self.deployment, self)
        for host in (self.host, other):
            host.start()
        with self.host.agents[-1].paused():
            attachment = self.begin()
            wait_until(lambda: self.connection_of(attachment))
            backup = self.deployment.read_rows()
        self.wait_for(attachment, "attached")
        self.detach(attachment)
        self.host.agents[-1].kill()
        newer = self.deployment.attach(self.volume, other.name).json()["attachment"]["id"]
        device = other.device(newer)
        with device.open("rb"):
            self.deployment.restore_rows(backup)
            self.deployment.run(
                "attachd-manage", self.deployment.config_argument, "db", "restored"
            )
            wait_until(lambda: self.deployment.agent(other.name)["devices"])
            self.host.start()
            wait_until(lambda: other.name in (self.error(attachment) or ""))
            self.assertIn(f"{device}", self.error(attachment))
            self.assertEqual([], self.host.entries())
        wait_until(lambda: not other.entries(), other.entries)
        wait_until(self.host.entries)

    def connection_of(self, attachment_id):
        return self.deployment.attachment(attachment_id)["connection_info"]

    def error(self, attachment_id):
        return self.deployment.attachment(attachment_id)["error"]

    def test_agent_stop_keeps_devices(self):
        agent = self.host.start()
        attachment_id = self.attach()
        agent.send(signal.SIGTERM)
        agent.wait()
        self.write(attachment_id)
        self.host.start()
        self.assertEqual("attached", self.status(attachment_id))
        self.assertEqual(BYTES, self.read(attachment_id))
        self.detach(attachment_id)

    def test_agent_after_reboot_reconnects_volumes(self):
        self.host.start()
        attachment_id = self.attach()
        self.write(attachment_id)
        self.host.reboot()
        self.assertEqual([], self.host.loops())
        self.host.start()
        wait_until(lambda: self.is_readable(attachment_id) == BYTES)
        self.assertEqual("attached", self.status(attachment_id))
        self.detach(attachment_id)

    def test_agent_reconnects_a_device_that_vanished(self):
        agent = self.host.start()
        attachment_id = self.attach()
        for pid in self.host.daemons():
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: "made again" in agent.output, lambda: agent.output)
        wait_until(lambda: self.is_readable(attachment_id))
        self.detach(attachment_id)

    def is_readable(self, attachment_id):
        with contextlib.suppress(OSError, AssertionError):
            return self.read(attachment_id)
        return None

    def test_second_agent_of_a_host_exits(self):
        self.host.start()
        second = self.host.spawn()
        second.wait()
        self.assertIn("Another agent uses", second.output)

    def test_agent_with_the_name_of_another_and_a_wrong_key_is_refused(self):
        self.host.start()
        forger = agent_deployment.AgentHost(self.deployment, self)
        configuration = forger.top / "agent.conf"
        text = configuration.read_text().replace(
            f"host = {forger.name}", f"host = {self.host.name}"
        )
        configuration.write_text(text)
        agent = forger.spawn()
        wait_until(lambda: "is registered with another key" in agent.output, lambda: agent.output)
        attachment_id = self.attach()
        self.assertEqual(([], 1), (forger.loops(), len(self.host.loops())))
        self.detach(attachment_id)
        self.assertNotIn("Traceback", agent.output)
        self.assertEqual(1, agent.output.count("report failed"))

    def test_attach_on_host_with_initiator_of_another_is_refused(self):
        self.host.start()
        other = agent_deployment.AgentHost(self.deployment, self)
        other.set(f"initiator = iqn.2026-01.org.example:{self.host.name}")
        other.start()
        answer = self.deployment.attach(self.volume, other.name)
        self.assertEqual(409, answer.status_code, answer.text)
        self.assertIn(f"belongs to host {self.host.name}", answer.text)
        self.detach(self.attach())

    def test_agent_key_file_is_readable_by_its_owner_only(self):
        self.host.start()
        self.assertEqual(0o600, (self.host.folder / "agent.key").stat().st_mode & 0o777)
        self.assertEqual(0o700, self.host.folder.stat().st_mode & 0o777)

    def settings(self):
        """Return the settings of the unit."""
        lines = UNIT.read_text().splitlines()
        return [line.split("=", 1) for line in lines if "=" in line and line[0] != "#"]

    def test_agent_unit_passes_systemd_analyze(self):
        analyze = requirements.require_tool(self, "systemd-analyze")
        program = dict(self.settings())["ExecStart"]
        existing = self.host.top / UNIT.name
        text = UNIT.read_text().replace(program, processes.script("attachd-agent"))
        existing.write_text(text)
        done = processes.run([analyze, "verify", existing])
        self.assertEqual((0, ""), (done.returncode, done.stdout + done.stderr))
        self.assertEqual("attachd-agent", Path(program).name)

    def test_agent_unit_mounts_are_visible_outside(self):
        alone = ("Private", "Protect", "ReadOnly", "ReadWrite", "Inaccessible", "MountFlags")
        self.assertEqual([], [name for name, _value in self.settings() if name.startswith(alone)])

    def test_agent_with_capabilities_of_the_unit_attaches_and_detaches(self):
        rights = [
            right.removeprefix("CAP_").lower()
            for name, value in self.settings()
            if name == "CapabilityBoundingSet"
            for right in value.split()
        ]
        self.assertLess(5, len(rights))
        only = ",".join(["-all", *(f"+{right}" for right in rights)])
        agent = processes.Process(
            self,
            requirements.require_tool(self, "setpriv"),
            f"--bounding-set={only}",
            "--no-new-privs",
            processes.script("attachd-agent"),
            f"--config-file={self.host.top / 'agent.conf'}",
        )
        agent.wait_for("agent serves requests")
        attachment_id = self.attach()
        self.write(attachment_id)
        with self.host.device(attachment_id).open("rb"):
            self.assertEqual(409, self.deployment.detach(attachment_id).status_code)
        self.detach(attachment_id)
        self.assertEqual(BYTES, self.stored())
        self.assertEqual(0, agent.end())

    def test_paused_agent_attaches_after_it_continues(self):
        agent = self.host.start()
        with agent.paused():
            with self.deployment.another_api(self, SHORT_WORK_TIMEOUT):
                answer = self.deployment.attach(self.volume, self.host.name)
            self.assertEqual(504, answer.status_code, answer.text)
            (attachment,) = self.attachments()
            self.assertEqual("attaching", self.status(attachment))
        self.wait_for(attachment, "attached")
        self.write(attachment)
        self.detach(attachment)

    def attachments(self):
        listed = self.deployment.request("GET", "/attachments").json()["attachments"]
        return [item["id"] for item in listed if item["volume_id"] == self.volume]

    def test_detach_with_paused_agent_keeps_the_grant_until_the_host_disconnects(self):
        agent = self.host.start()
        attachment_id = self.attach()
        with agent.paused():
            with self.deployment.another_api(self, SHORT_WORK_TIMEOUT):
                answer = self.deployment.detach(attachment_id)
            self.assertEqual(504, answer.status_code, answer.text)
            self.assertEqual("detaching", self.status(attachment_id))
            self.assertTrue(self.exported())
            self.write(attachment_id)
        self.wait_for(attachment_id, None)
        self.assert_nothing_is_left()
        self.assertEqual(BYTES, self.stored())

    def test_agent_without_message_queue_is_down_and_up_again(self):
        proxy, broker = tcp_proxy.in_front_of(self, self.deployment.agent_broker)
        self.host = agent_deployment.AgentHost(self.deployment, self, broker)
        agent = self.host.start()
        attachment_id = self.attach()
        with self.deployment.another_api(self, SHORT_DOWN_TIME):
            proxy.refuse()
            wait_until(lambda: self.deployment.agent(self.host.name)["state"] == "down")
            answer = self.deployment.detach(attachment_id)
            self.assertEqual(409, answer.status_code, answer.text)
            self.assertIn(f"agent of host {self.host.name} has not reported", answer.text)
            self.assertEqual("attached", self.status(attachment_id))
            other = self.deployment.attach(self.deployment.create_volume(), self.host.name)
            self.assertEqual(409, other.status_code, other.text)
            wait_until(lambda: "report failed" in agent.output, lambda: agent.output)
            proxy.pass_on()
            wait_until(lambda: self.deployment.agent(self.host.name)["state"] == "up")
        self.detach(attachment_id)
        self.assertEqual(1, agent.output.count("report failed"), agent.output)
        self.assertNotIn("Traceback", agent.output)

    def test_agent_waits_for_a_manager_that_was_killed(self):
        agent = self.host.start()
        with agent.paused():
            attachment_id = self.begin()
            wait_until(self.exported)
            self.deployment.manager.kill()
        # Enough for an agent to fail before; on a slow machine less is tested.
        manager = threading.Timer(1.0, self.restart)
        manager.start()
        self.addCleanup(manager.join)
        self.wait_for(attachment_id, "attached")
        self.detach(attachment_id)

    def restart(self):
        self.deployment.manager = self.deployment.start_manager()

    def test_agent_with_unreadable_configuration_exits_with_one_line(self):
        words = ["attachd-agent", "--config-file", f"{self.host.top / 'none.conf'}"]
        said = processes.check_output(words, code=1, env=processes.environment())
        self.assertEqual(1, said.count("\n"), said)
        self.assertIn("none.conf", said)
