# SPDX-License-Identifier: Apache-2.0
"""Tests that faults of managers, servers and networks fence no healthy host, and end no fence.

Two managers serve eight hosts, of which four have leases of 12 and four of 30 seconds.  While a
fault lasts, no host is fenced.  If it is one of one manager, no agent ends its lease.  After the
fault, two agents are killed, and their hosts are fenced within the time that the guide promises.
"""

from collections.abc import Callable, Iterator
import contextlib
import signal
import sys
import time
from typing import Any, NamedTuple
from urllib import parse

import testtools

from attachd.rpc import received
from attachd.tests.fixtures import faulty_manager, processes, rabbitmq, requirements
from attachd.tests.fixtures.lease_deployment import RIGHTS, LeaseDeployment
from attachd.tests.fixtures.lifetime import ProcessScope
from attachd.tests.selection import full_only

LENGTHS = (12, 30)
LONG = 34.0
"""Seconds of a fault that outlasts the longest lease."""
SHORT = 5.0
MARGIN = 15.0
"""Seconds that a fence may be later than the end of its lease on a slow machine."""
TAKEOVER = 30.0
"""[manager]member_timeout, after which a manager that hangs counts as dead."""
DROPPED = 60.0
"""Seconds after which the message queue has closed a connection that was silent."""

Fault = Callable[[LeaseDeployment], Any]


class Kind(NamedTuple):
    """A kind of faults.

    :ivar fault: returns a context manager, which begins and ends it
    :ivar seconds: how long it lasts
    :ivar is_of_service: whether no manager can store reports, so that agents may stop writers
    :ivar delay: how many seconds later hosts are fenced after its end
    """

    fault: Fault
    seconds: float = LONG
    is_of_service: bool = False
    delay: float = 0.0


@contextlib.contextmanager
def stopped(deployment: LeaseDeployment) -> Iterator[None]:
    """Stop a manager by a signal."""
    deployment.managers[1].send(signal.SIGSTOP)
    try:
        yield
    finally:
        deployment.managers[1].send(signal.SIGCONT)


@contextlib.contextmanager
def flapping(deployment: LeaseDeployment) -> Iterator[None]:
    """Stop a manager and have it go on, again and again."""
    for _ in range(4):
        deployment.managers[1].send(signal.SIGSTOP)
        time.sleep(3)  # the fault itself
        deployment.managers[1].send(signal.SIGCONT)
        time.sleep(1)  # the fault itself
    yield


@contextlib.contextmanager
def killed(deployment: LeaseDeployment) -> Iterator[None]:
    """Kill a manager, and start it at the end."""
    deployment.managers[1].kill()
    try:
        yield
    finally:
        deployment.managers[1].start()


@contextlib.contextmanager
def ended(deployment: LeaseDeployment) -> Iterator[None]:
    """Have a manager end, and start it at the end."""
    deployment.managers[1].end()
    try:
        yield
    finally:
        deployment.managers[1].start()


@contextlib.contextmanager
def third_started(deployment: LeaseDeployment) -> Iterator[None]:
    """Start a third manager, and have it end."""
    third = deployment.make_manager()
    third.start()
    try:
        yield
    finally:
        third.end()


def with_proxies(
    choose: Callable[[LeaseDeployment], list[Any]], name: str, *arguments: Any
) -> Fault:
    """Return a fault of TCP proxies.

    :param choose: returns the proxies
    :param name: of the method that begins the fault
    """

    @contextlib.contextmanager
    def fault(deployment: LeaseDeployment) -> Iterator[None]:
        proxies = choose(deployment)
        for proxy in proxies:
            getattr(proxy, name)(*arguments)
        try:
            yield
        finally:
            for proxy in proxies:
                proxy.pass_on()

    return fault


def database_of_one(deployment: LeaseDeployment) -> list[Any]:
    """Return the proxies between one manager and the database."""
    return [deployment.managers[1].database]


def database_of_both(deployment: LeaseDeployment) -> list[Any]:
    """Return the proxies between both managers and the database."""
    return [manager.database for manager in deployment.managers]


def broker_of_one(deployment: LeaseDeployment) -> list[Any]:
    """Return the proxies between one manager and the message queue."""
    return [deployment.managers[1].broker]


def broker_of_both(deployment: LeaseDeployment) -> list[Any]:
    """Return the proxies between both managers and the message queue."""
    return [manager.broker for manager in deployment.managers]


def broker_of_agents(deployment: LeaseDeployment) -> list[Any]:
    """Return the proxies between agents and the message queue."""
    return [proxy for proxy, _url in deployment.agent_proxies]


def broker_of_all(deployment: LeaseDeployment) -> list[Any]:
    """Return all proxies in front of the message queue."""
    return [*broker_of_both(deployment), *broker_of_agents(deployment)]


def partition(deployment: LeaseDeployment) -> list[Any]:
    """Return the proxies of one manager and half of the agents."""
    manager = deployment.managers[1]
    return [manager.broker, manager.database, deployment.agent_proxies[1][0]]


@contextlib.contextmanager
def writes_refused(deployment: LeaseDeployment) -> Iterator[None]:
    """Have the database refuse the writes of managers."""
    deployment.grant("SELECT")
    try:
        yield
    finally:
        deployment.grant(RIGHTS)


def inside(number: int | None, name: str, value: object = "") -> Fault:
    """Return a fault of faulty_manager.py.

    :param number: of the manager; None: of both
    """

    @contextlib.contextmanager
    def fault(deployment: LeaseDeployment) -> Iterator[None]:
        managers = [m for i, m in enumerate(deployment.managers) if number in (None, i)]
        for manager in managers:
            manager.set_fault(name, value)
        try:
            yield
        finally:
            for manager in managers:
                manager.end_faults()

    return fault


@contextlib.contextmanager
def failed_over(deployment: LeaseDeployment) -> Iterator[None]:
    """Have the database fail over to a server whose clock is an hour ahead, and back."""
    for manager in deployment.managers:
        manager.database.refuse()
        manager.set_fault(faulty_manager.DATABASE_OFFSET, 3600)
    time.sleep(3)  # the fault itself
    for manager in deployment.managers:
        manager.database.pass_on()
    yield
    for manager in deployment.managers:
        manager.end_faults()


def in_broker(change: Callable[[Any, LeaseDeployment], object]) -> Fault:
    """Return a fault that another account of the virtual host makes.

    :param change: takes a function that opens a channel
    """

    @contextlib.contextmanager
    def fault(deployment: LeaseDeployment) -> Iterator[None]:
        change(rabbitmq.connect(deployment.test, deployment.agent_broker), deployment)
        yield

    return fault


def list_queues(deployment: LeaseDeployment) -> list[str]:
    """Return the queues of managers in the virtual host of the agents."""
    vhost = parse.urlsplit(deployment.agent_broker).path[1:]
    listed = processes.check_output(
        ["rabbitmqctl", "-q", "--no-table-headers", "list_queues", "-p", vhost, "name"]
    )
    return [name for name in listed.split() if name.startswith(received.REGISTRY_TOPIC)]


def delete_queues(channel: Any, deployment: LeaseDeployment) -> None:
    """Delete the queues of managers."""
    for name in list_queues(deployment):
        channel().queue_delete(name)


def delete_bindings(channel: Any, deployment: LeaseDeployment) -> None:
    """Delete the binding of the common queue."""
    channel().queue_unbind(
        received.REGISTRY_TOPIC, received.REGISTRY_EXCHANGE, received.REGISTRY_TOPIC
    )


def delete_exchange(channel: Any, deployment: LeaseDeployment) -> None:
    """Delete the exchange to all managers; that of calls cannot be deleted."""
    channel().exchange_delete(f"{received.REGISTRY_TOPIC}_fanout")


@contextlib.contextmanager
def broker_restarted(deployment: LeaseDeployment) -> Iterator[None]:
    """Restart the virtual host of the agents; nobody can connect for some seconds."""
    vhost = parse.urlsplit(deployment.agent_broker).path[1:]
    proxies = broker_of_all(deployment)
    for proxy in proxies:
        proxy.refuse()
    processes.check_output(["rabbitmqctl", "-q", "restart_vhost", "-p", vhost])
    time.sleep(2)  # the fault itself
    for proxy in proxies:
        proxy.pass_on()
    yield


_KINDS = {
    "manager_stopped": Kind(stopped),
    "manager_stopped_shortly": Kind(stopped, SHORT),
    "manager_stopped_repeatedly": Kind(flapping, SHORT),
    "manager_killed": Kind(killed),
    "manager_ended": Kind(ended, 15.0),
    "third_manager_started": Kind(third_started, 15.0),
    "database_refused_to_one": Kind(with_proxies(database_of_one, "refuse")),
    "database_hung_for_one": Kind(with_proxies(database_of_one, "freeze")),
    "database_slow_for_one": Kind(with_proxies(database_of_one, "slow_down", 0.7)),
    "database_refused_to_both": Kind(with_proxies(database_of_both, "refuse"), LONG, True),
    "database_hung_for_both": Kind(with_proxies(database_of_both, "freeze"), LONG, True),
    "database_slow_for_both": Kind(with_proxies(database_of_both, "slow_down", 0.7), LONG, True),
    "writes_refused_to_both": Kind(writes_refused, LONG, True),
    "broker_refused_to_one": Kind(with_proxies(broker_of_one, "refuse")),
    "broker_hung_for_one": Kind(with_proxies(broker_of_one, "freeze"), delay=DROPPED),
    "broker_slow_for_one": Kind(with_proxies(broker_of_one, "slow_down", 0.3)),
    "broker_refused_to_both": Kind(with_proxies(broker_of_both, "refuse"), LONG, True),
    "broker_hung_for_both": Kind(with_proxies(broker_of_both, "freeze"), LONG, True, DROPPED),
    "broker_refused_to_agents": Kind(with_proxies(broker_of_agents, "refuse"), LONG, True),
    "broker_hung_for_agents": Kind(with_proxies(broker_of_agents, "freeze"), LONG, True),
    "broker_slow_for_agents": Kind(with_proxies(broker_of_agents, "slow_down", 0.2)),
    "broker_restarted": Kind(broker_restarted, SHORT, True),
    "queues_deleted": Kind(in_broker(delete_queues), 15.0),
    "binding_deleted": Kind(in_broker(delete_bindings), 20.0, True),
    "exchange_deleted": Kind(in_broker(delete_exchange), 15.0, delay=60.0),
    "consumers_cancelled": Kind(inside(1, faulty_manager.CANCELLED), 15.0, delay=60.0),
    "threads_busy": Kind(inside(1, faulty_manager.BUSY)),
    "clock_of_manager_jumped": Kind(inside(1, faulty_manager.BOOT_OFFSET, 3600), 15.0),
    "database_failed_over": Kind(failed_over, 15.0),
    "network_partitioned": Kind(with_proxies(partition, "freeze"), LONG, True, DROPPED),
}

_shared: dict[tuple[int, ...], LeaseDeployment] = {}


def shared(test: testtools.TestCase, lengths: tuple[int, ...]) -> LeaseDeployment:
    """Return the deployment of this test process, which ends with the process."""
    requirements.require_root(test)
    if lengths not in _shared:
        _shared[lengths] = LeaseDeployment(ProcessScope(test), lengths)
    return _shared[lengths]


class FaultCase(testtools.TestCase):
    lengths: tuple[int, ...] = LENGTHS

    def setUp(self):
        super().setUp()
        self.deployment = shared(self, self.lengths)
        self.addOnException(self.show)

    def show(self, _error):
        text = self.deployment.describe()
        self.addDetail("deployment", testtools.content.text_content(text))

    def check_kind(self, name):
        """Check one kind of faults, and that dead hosts are fenced after it."""
        kind, deployment = _KINDS[name], self.deployment
        deployment.renew_hosts(self.lengths)
        seen = {host.name: len(host.output) for host in deployment.hosts}
        with kind.fault(deployment):
            end = time.monotonic() + kind.seconds
            oldest = 0.0
            while time.monotonic() < end:
                oldest = max(oldest, *deployment.ages().values())
                self.assertEqual([], deployment.list_fenced(), name)
                time.sleep(0.5)  # for what must not happen
            stopped_hosts = deployment.list_stopped(seen)
            if not kind.is_of_service:
                self.assertEqual([], stopped_hosts, name)
        ended_at = time.monotonic()
        deployment.wait_until_leased()
        recovered = time.monotonic() - ended_at
        self.assertEqual([], deployment.list_fenced(), name)
        late = self.kill_hosts(kind)
        sys.stdout.write(
            f"{name}: {kind.seconds:.0f} s; longest silence {oldest:.1f} s; leases of "
            f"{len(stopped_hosts)} of {len(seen)} ended; recovered after {recovered:.1f} s; "
            f"dead hosts fenced after {late}\n"
        )
        sys.stdout.flush()

    def kill_hosts(self, kind):
        """Kill an agent of each length, and wait until its host is fenced."""
        deployment = self.deployment
        dead = [
            next(host for host in deployment.hosts if host.length == length)
            for length in self.lengths
        ]
        for host in dead:
            host.agent.kill()
        began, seconds = time.monotonic(), {}
        latest = max(self.lengths) + MARGIN + kind.delay + TAKEOVER
        while len(seconds) < len(dead):
            fenced = deployment.list_fenced()
            self.assertLessEqual(set(fenced), {host.name for host in dead})
            for host in dead:
                if host.name in fenced:
                    seconds.setdefault(host.length, round(time.monotonic() - began, 1))
            self.assertLess(time.monotonic() - began, latest, deployment.describe())
            time.sleep(0.2)  # until managers fence them
        for length, taken in seconds.items():
            self.assertGreater(taken, length * 0.8)
        deployment.remove_hosts(dead)
        return seconds


@full_only("leases")
class LeaseFaultsTest(FaultCase):
    pass


def _add_tests():
    for name in _KINDS:

        def test(self, name=name):
            self.check_kind(name)

        setattr(LeaseFaultsTest, f"test_{name}_fences_no_healthy_host", test)


_add_tests()


class LeaseFaultTest(FaultCase):
    """One of the kinds, for each run of the tests."""

    lengths = LENGTHS[:1]

    def test_stopped_manager_fences_no_healthy_host(self):
        self.check_kind("manager_stopped_shortly")
