# SPDX-License-Identifier: Apache-2.0
"""A host that has been taken over sends as many messages as it can; others keep their leases."""

import json
import os
from pathlib import Path
import re
import signal
import sys
import threading
import time
from typing import Any
from urllib import parse

import testtools

from attachd import exception, service
from attachd.conf import CONF
from attachd.rpc import agent_manager_api, host_queues, transport
from attachd.tests.fixtures import conf_fixture, deployments, fake_agent, processes, rabbitmq
from attachd.tests.fixtures.lifetime import temp_dir
from attachd.tests.functional import message_flood
from attachd.tests.functional.test_agent_accounts import (
    CALLS,
    HOST,
    OTHER_HOST,
    OWN,
    add_account,
    with_account,
)
from attachd.tests.functional.test_agent_attacks import MALFORMED, envelope
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

LEASE = 12.0
"""Seconds without a report after which a host would be fenced."""

SECONDS = LEASE + 3
"""How long each attack takes."""

MAX_GROWTH = 150 * 2**20
"""Bytes by which the memory of the manager may grow, in all attacks together."""

CONFIGURATION = """\
[shelf]
driver = fake

[agent]
enabled = true
transport_url = {broker}
"""

REPORT: Any = fake_agent.make_report(OTHER_HOST)


def call(key, **message):
    """Return a call of the attacker's host, whose answer goes to a missing queue."""
    args = {"host": HOST, "key": key, "process": fake_agent.PROCESS, "attachment_id": "a"}
    return envelope(
        **{
            "method": "desired_state",
            "version": agent_manager_api.VERSION,
            "args": args,
            "_msg_id": "%d",
            "_unique_id": "%d",
            "_reply_q": f"reply_{HOST}_0",
            **message,
        }
    )


def report(key, size):
    """Return a report of the attacker's host with so many bytes."""
    device = {"attachment_id": "a" * 36, "volume_id": "v" * 36, "path": "/dev/x", "size_bytes": 1}
    devices = [device] * (size // (len(json.dumps(device)) + 24))
    said = {**REPORT, "connector": {"host": HOST}, "devices": devices}
    return call(key, method="report", args={"host": HOST, "key": key, "report": said})


def attacks(key):
    """Return attacks by name: messages a second, and bodies.

    :param key: the right one of the attacker's host
    """
    wrong = "w" * 43
    return {
        "calls without a reply queue": (5000, [call(key, _reply_q=None)]),
        "unknown methods": (5000, [call(key, method="x")]),
        "wrong keys": (5000, [call(wrong)]),
        "right keys": (5000, [call(key)]),
        "names of other hosts": (
            5000,
            [call(wrong, args={"host": OTHER_HOST, "key": wrong, "attachment_id": "a"})],
        ),
        "reports of 1.9 MB": (5, [report(wrong, 1_900_000), report(key, 1_900_000)]),
        "reports of 250 KB": (50, [report(wrong, 250_000), report(key, 250_000)]),
        "nested JSON": (50, ["[" * 250_000, "[" * 1_000_000, "[[],[" * 50_000]),
        "malformed": (1000, [body for body in _texts() if len(body) < 1000]),
    }


def _texts():
    return [body if isinstance(body, str) else body.decode("latin-1") for body in MALFORMED]


class HealthyHost(threading.Thread):
    """Reports as an agent with a lease does, and records when a manager has accepted it."""

    def __init__(self, key):
        super().__init__(daemon=True)
        self._credentials = agent_manager_api.AgentCredentials(OTHER_HOST, key, fake_agent.PROCESS)
        self._ended = threading.Event()
        self.accepted = []
        self.errors = []

    def run(self):
        """Report until the end."""
        # Reports follow each other as a sixth of the lease asks for.
        while not self._ended.wait(LEASE / 12):
            try:
                agent_manager_api.report(self._credentials, REPORT, timeout=LEASE / 6)
            except exception.AttachdError as error:
                self.errors.append(error)
            else:
                self.accepted.append(time.monotonic())

    def end(self):
        """Report no more."""
        self._ended.set()
        self.join()

    def longest_pause(self, since):
        """Return the longest time between two reports that were accepted."""
        times = [moment for moment in self.accepted if moment >= since] + [time.monotonic()]
        return max(after - before for before, after in zip([since, *times], times, strict=False))


@full_only("agents")
class FloodTest(testtools.TestCase):
    target = OWN, CALLS

    def setUp(self):
        super().setUp()
        self.deployment = deployments.Deployment(self, "mariadb", "shelf", workers=1)
        self.broker = rabbitmq.create_agents_vhost(self)
        self.deployment.configure(CONFIGURATION.format(broker=self.broker))
        self.keys = {host: self.register(host) for host in (HOST, OTHER_HOST)}
        self.manager = self.deployment.start_manager()
        self.manager.show_in_failures(self)
        vhost = parse.urlsplit(self.broker).path[1:]
        self.attacker = with_account(self.broker, add_account(self, vhost))
        self.channel = rabbitmq.connect(self, self.attacker)()
        self.start_healthy_host(add_account(self, vhost, OTHER_HOST))
        self.bind()

    def register(self, host):
        """Register a host, and return its key."""
        manage = "attachd-manage", self.deployment.config_argument, "agent", "add", host
        return re.search(r"^[\w-]{43}$", self.deployment.run(*manage), re.MULTILINE)[0]

    def start_healthy_host(self, account):
        """Report as the other host from now on, with its account."""
        CONF([], project="attachd", default_config_files=[])
        service.messaging.set_transport_defaults(service.EXCHANGE)
        service.messaging.TransportURL(CONF)
        conf_fixture.override(self, "transport_url", with_account(self.broker, account), "agent")
        transport.reset_after_fork()
        self.addCleanup(transport.close)
        self.healthy = HealthyHost(self.keys[OTHER_HOST])
        self.healthy.start()
        self.addCleanup(self.healthy.end)
        wait_until(lambda: self.healthy.accepted, lambda: self.healthy.errors)

    def bind(self):
        """Bind the attacker's queue to its exchange, as its agent would."""
        self.channel.exchange_declare(OWN, "topic", durable=True, auto_delete=False)
        self.channel.queue_bind(CALLS, OWN, CALLS)

    def count_consumers(self):
        """Return how many managers read the queue of the other host."""
        channel = rabbitmq.connect(self, self.broker)()
        queue = host_queues.queue_name(OTHER_HOST)
        return channel.queue_declare(queue, passive=True).consumer_count

    def attack(self, rate, bodies):
        """Send messages for a while; return how many, and the longest pause of the other host."""
        path = temp_dir(self) / "bodies.json"
        path.write_text(json.dumps(bodies))
        script = Path(message_flood.__file__)
        begin = time.monotonic()
        flood = processes.Process(
            self, sys.executable, f"{script}", self.attacker, *self.target, f"{rate}", f"{path}"
        )
        time.sleep(SECONDS)  # the attack takes that long
        sent = int((flood.output.split() or ["0"])[-1])
        flood.kill()
        return sent, self.healthy.longest_pause(begin)

    def usage(self):
        """Return the peak memory of the manager in bytes, and its CPU time in seconds."""
        pids = [self.manager.pid, *processes.child_pids(self.manager.pid)]
        status = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
        peak = max(int(re.search(r"VmHWM:\s+(\d+)", text)[1]) for text in status) * 1024
        ticks = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
        return peak, sum(int(row[11]) + int(row[12]) for row in ticks) / 100

    def test_stopped_manager_takes_few_calls_of_a_host(self):
        """It has one message of each queue, so that the other manager gets all later ones."""
        second = self.deployment.start_manager()
        wait_until(lambda: self.count_consumers() == 2, self.count_consumers)
        pids = [second.pid, *processes.child_pids(second.pid)]
        for pid in pids:
            self.addCleanup(os.kill, pid, signal.SIGCONT)
        begin = time.monotonic()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(SECONDS)  # a lease would be over by then
        self.assertLess(self.healthy.longest_pause(begin), LEASE)
        self.assertLess(len(self.healthy.errors), 4)

    def test_flood_of_one_host_ends_no_lease_of_another(self):
        peak, _cpu = first = self.usage()
        for name, (rate, bodies) in attacks(self.keys[HOST]).items():
            before, written = self.usage(), len(self.manager.output)
            sent, pause = self.attack(rate, bodies)
            after, written = self.usage(), len(self.manager.output) - written
            figures = (
                f"{name}: {sent} messages, longest pause {pause:.1f} s, peak memory"
                f" {after[0] >> 20} MB, CPU {after[1] - before[1]:.1f} s, log {written} bytes"
            )
            sys.stderr.write(f"{figures}\n")
            with self.subTest(name):
                self.assertLess(pause, LEASE)
                self.assertGreater(sent, 0)
                self.assertLess(written, 100_000)
        self.assertLess(self.usage()[0] - peak, MAX_GROWTH)
        self.assertNotIn("Traceback", self.manager.output)
        self.assertRegex(
            self.manager.output, rf"Host {HOST}: \d+ messages to managers were dropped"
        )
        self.assertNotIn(f"Host {OTHER_HOST}", self.manager.output)
        self.assertGreater(self.usage()[1], first[1])
