# SPDX-License-Identifier: Apache-2.0
"""Tests of leases with agents as processes, tgtd, and hosts that are killed, frozen or cut off.

Each type of volumes has a lease of ten seconds, the shortest.
"""

import contextlib
import datetime
import os
import signal
import sys
import time
import uuid

from attachd.tests.fixtures import agent_deployment, tcp_proxy
from attachd.tests.functional.test_agents import BYTES, AgentCase
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

LEASE = 10
GOAL = 2.0
"""Seconds after the lease within which another host has to have written."""
HEADERS = {"OpenStack-API-Version": "volume 3.71, attachd 1.1"}


def show(text):
    """Print a figure."""
    sys.stdout.write(f"{text}\n")


class LeaseCase(AgentCase):
    def setUp(self):
        super().setUp()
        self.volume = self.create_volume()

    def create_volume(self):
        """Create a volume whose host is fenced when its agent is lost."""
        specs = {"on_lost_agent": "fence", "lost_agent_timeout": f"{LEASE}"}
        body = {"volume_type": {"name": f"leased-{uuid.uuid4()}", "extra_specs": specs}}
        answer = self.deployment.request("POST", "/types", body)
        assert answer.status_code == 200, answer.text
        type_id = answer.json()["volume_type"]["id"]
        body = {"volume": {"size": 1, "volume_type": type_id}}
        answer = self.deployment.request("POST", "/volumes", body)
        assert answer.status_code == 202, answer.text
        volume = answer.json()["volume"]["id"]
        self.deployment.wait_for_volume(volume, "available")
        return volume

    def fenced(self):
        """Return the host as the API shows it if it is fenced."""
        answer = self.deployment.request("GET", f"/hosts/{self.host.name}", **HEADERS)
        host = answer.json()["host"]
        return host if host["fenced"] else None

    def wait_until_leased(self):
        """Wait until the agent knows its lease, and the managers know that."""
        wait_until(lambda: self.stored_lease() == LEASE)

    def stored_lease(self):
        rows = self.deployment.read_rows()["agents"]
        return next(row["lease"] for row in rows if row["host"] == self.host.name)

    def give_to_another_host(self, began):
        """Attach the volume to another host as soon as possible; return the seconds until then.

        That host has written by then.
        """
        lost, self.host = self.host, self.other
        try:
            answer = wait_until(self.try_to_attach, interval=0.1)
            self.write(answer.json()["attachment"]["id"])
            seconds = time.monotonic() - began
            self.assertEqual(BYTES, self.stored())
            return seconds
        finally:
            self.host = lost

    def try_to_attach(self):
        answer = self.deployment.attach(self.volume, self.other.name)
        return answer if answer.status_code == 200 else None

    def start_both(self):
        """Attach the volume to a host, and start another one."""
        self.other = agent_deployment.AgentHost(self.deployment, self)
        self.other.start()
        agent = self.host.start()
        attachment = self.attach()
        self.wait_until_leased()
        return agent, attachment

    def signal_host(self, number):
        """Send a signal to the agent and all daemons of the host."""
        for pid in (self.host.agents[-1].pid, *self.host.daemons()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def last_seen(self):
        return datetime.datetime.fromisoformat(self.deployment.agent(self.host.name)["last_seen"])


@full_only("agents")
class LostAgentHostsTest(LeaseCase):
    def test_volume_of_killed_host_is_written_elsewhere_within_lease_and_two_seconds(self):
        _agent, _attachment = self.start_both()
        self.signal_host(signal.SIGKILL)
        seconds = self.give_to_another_host(time.monotonic())
        show(f"fail-over after {seconds:.2f} s, with a lease of {LEASE} s")
        self.assertLess(seconds, LEASE + GOAL)
        self.assertRegex(self.fenced()["reason"], "^agent lost since ")

    def test_frozen_host_writes_nothing_after_another_has_the_volume(self):
        agent, attachment = self.start_both()
        device = self.host.device(attachment)
        with device.open("r+b", buffering=0) as file:
            self.signal_host(signal.SIGSTOP)
            try:
                file.write(bytes(4096))  # In the cache of the host: it is written later.
                self.give_to_another_host(time.monotonic())
            finally:
                self.signal_host(signal.SIGCONT)
            with contextlib.suppress(OSError):
                os.fsync(file.fileno())
        self.assertEqual(BYTES, self.stored())
        wait_until(lambda: "all writers are stopped" in agent.output, lambda: agent.output)
        wait_until(lambda: not self.host.daemons())
        wait_until(lambda: not self.host.entries(), lambda: agent.output)

    def test_agent_that_is_cut_off_stops_writers_before_its_host_is_fenced(self):
        proxy, broker = tcp_proxy.in_front_of(self, self.deployment.agent_broker)
        self.host = agent_deployment.AgentHost(self.deployment, self, broker)
        agent, attachment = self.start_both()
        self.write(attachment)
        proxy.refuse()
        wait_until(lambda: not self.host.daemons(), lambda: agent.output)
        stopped = time.monotonic()
        self.assertIsNone(self.fenced())
        wait_until(self.fenced)
        show(f"writers were stopped {time.monotonic() - stopped:.2f} s before the fence")
        self.give_to_another_host(stopped)
        proxy.pass_on()
        wait_until(lambda: not self.host.entries(), lambda: agent.output)
        self.assertIn("is fenced since", agent.output)

    def test_agent_that_is_cut_off_for_a_moment_keeps_its_devices(self):
        proxy, broker = tcp_proxy.in_front_of(self, self.deployment.agent_broker)
        self.host = agent_deployment.AgentHost(self.deployment, self, broker)
        agent, attachment = self.start_both()
        daemons = self.host.daemons()
        proxy.cut()
        end = self.last_seen() + datetime.timedelta(seconds=LEASE)
        wait_until(lambda: self.last_seen() > end, lambda: agent.output)
        self.assertEqual(daemons, self.host.daemons())
        self.assertIsNone(self.fenced())
        self.write(attachment)
        self.assertNotIn("writers are stopped", agent.output)
