# SPDX-License-Identifier: Apache-2.0
"""Lives of volumes on a platform whose calls are delayed, lost and repeated, and with kills.

API, manager, storage, agents and drivers are real; the platform's calls are those of
csi_platform.py.  ATTACHD_TEST_LIVES=500 is a full run: 500 lives, and 100 with kills.
"""

from collections.abc import Callable
from concurrent import futures
import itertools
import os
from pathlib import Path
import random
import threading

import testtools

from attachd.tests import wait
from attachd.tests.fixtures import agent_deployment, csi_proxy
from attachd.tests.fixtures.agent_deployment import (
    AgentDeployment,
    FileDeployment,
    HostDeployment,
    RbdDeployment,
)
from attachd.tests.fixtures.csi_driver import CsiDriver
from attachd.tests.fixtures.csi_nodes import CsiNode, mounts_below
from attachd.tests.functional.csi_platform import Claim, Node, Platform
from attachd.tests.selection import full_only

LIVES = int(os.environ.get("ATTACHD_TEST_LIVES", "12"))
MOST_WITH_KILLS = 100
AT_ONCE = 4
FILE_SYSTEMS = ("ext4", "xfs", "")


class PlatformCase(testtools.TestCase):
    """Two nodes with drivers of their own, and two controllers, each behind a proxy.

    :cvar kind: makes the deployment
    :cvar grows_attached: whether its devices grow while they are attached
    """

    kind: Callable[..., HostDeployment] = AgentDeployment
    grows_attached = True

    def setUp(self):
        super().setUp()
        self.seed = int.from_bytes(os.urandom(4))
        self.addDetail("seed", testtools.content.text_content(f"{self.seed}"))
        self.addOnException(self.show_errors)
        self.deployment = agent_deployment.shared_kind(self, self.kind)
        started = [CsiNode(self, self.deployment) for _ in range(2)]
        controllers = [CsiDriver(self, self.deployment.url) for _ in range(2)]
        self.hosts = [node.host for node in started]
        self.drivers = [*controllers, *(node.driver for node in started)]
        self.nodes = [
            Node(node.host.name, self.start_proxy(node.driver), node.folder) for node in started
        ]
        self.claims = []
        self.platform = Platform([self.start_proxy(driver) for driver in controllers], self.seed)

    def show_errors(self, _error):
        self.addDetail("errors", testtools.content.text_content(f"{self.platform.errors}"))

    def start_proxy(self, driver):
        generator, guard = random.Random(self.seed), threading.Lock()

        def next_fault():
            with guard:
                return csi_proxy.draw(generator)

        return csi_proxy.CsiProxy(self, driver.socket, next_fault)

    def live(self, number):
        """Have pods use a volume on one node, and then on the other, until it is deleted."""
        claim = Claim(FILE_SYSTEMS[number % len(FILE_SYSTEMS)])
        self.claims.append(claim)
        generator = random.Random(self.seed + number)
        first, second = generator.sample(self.nodes, 2)
        text = f"{self.seed} {number}"
        self.platform.provision(claim)
        self.use_first(claim, first, text, generator)
        if generator.random() < 0.3:
            self.restore(claim, second, text)
        context = self.platform.attach(claim, second)
        path = self.platform.start_pod(claim, second, context)
        self.assertEqual(text, (path / "file").read_text())
        if claim.size_gib > 1:
            self.expand_at(claim, second)
        self.platform.end_pods(claim, second)
        self.platform.detach(claim, second)
        self.platform.delete(claim)

    def use_first(self, claim, node, text, generator):
        context = self.platform.attach(claim, node)
        if generator.random() < 0.2:
            self.platform.give_up_start(claim, node, context)
        pods = generator.choice((1, 2))
        for pod in range(pods):
            path = self.platform.start_pod(claim, node, context, pod)
        write(path / "file", text)
        # The kernel lets ext4 grow with CAP_SYS_RESOURCE only, which some machines lack.
        if claim.fs_type == "xfs" and generator.random() < 0.5:
            self.platform.expand(claim, 2)
            if self.grows_attached:
                self.expand_at(claim, node)
        self.assertEqual(text, Path(claim.target(node, 0), "file").read_text())
        self.platform.end_pods(claim, node, pods)
        self.platform.detach(claim, node)

    def restore(self, claim, node, text):
        """Have a pod read a volume that is made of a snapshot."""
        snapshot_id = self.platform.take_snapshot(claim)
        copy = Claim(claim.fs_type, snapshot_id)
        self.claims.append(copy)
        self.platform.provision(copy)
        self.platform.delete_snapshot(snapshot_id)
        context = self.platform.attach(copy, node)
        path = self.platform.start_pod(copy, node, context)
        self.assertEqual(text, (path / "file").read_text())
        self.platform.end_pods(copy, node)
        self.platform.detach(copy, node)
        self.platform.delete(copy)

    def expand_at(self, claim, node):
        self.platform.expand_at(claim, node)
        found = os.statvfs(claim.target(node, 0))
        self.assertGreater(found.f_blocks * found.f_frsize, (claim.size_gib - 0.5) * 2**30)

    def run_lives(self, count):
        """Let so many volumes live, some at the same time, and check that nothing is left."""
        with futures.ThreadPoolExecutor(AT_ONCE) as pool:
            lives = [pool.submit(self.live, number) for number in range(count)]
            for number, life in enumerate(lives):
                try:
                    life.result()
                except BaseException:
                    # Also at an interrupt.
                    pool.shutdown(cancel_futures=True)
                    self.addDetail("life", testtools.content.text_content(f"{number}"))
                    raise
        self.assert_nothing_is_left()

    def assert_nothing_is_left(self):
        for host, node in zip(self.hosts, self.nodes, strict=True):
            path = f"/attachments?agent={host.name}"
            wait.wait_until(
                lambda path=path: not self.deployment.request("GET", path).json()["attachments"]
            )
            wait.wait_until(lambda host=host: not host.entries(), host.entries)
            self.assertEqual(([], []), (host.loops(), host.daemons()))
            self.assertEqual([], mounts_below(node.folder))
        volumes = self.deployment.request("GET", "/volumes").json()["volumes"]
        names = {claim.name for claim in self.claims}
        self.assertEqual([], [item["name"] for item in volumes if item["name"] in names])
        exported = [it.name for it in self.claims if self.deployment.exports(it.volume_id)]
        self.assertEqual([], exported)


def write(path, text):
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


class _PlatformTests:
    """Lives on a kind of storage.

    :cvar lives: their number
    """

    lives = LIVES

    def test_lives_with_lost_and_repeated_calls_leave_nothing(self):
        self.run_lives(self.lives)
        codes = {code for _name, code in self.platform.errors}
        self.assertIn("UNAVAILABLE", codes)

    def test_lives_with_kills_of_all_processes_leave_nothing(self):
        is_over = threading.Event()
        killer = threading.Thread(target=self.kill_until, args=(is_over,))
        killer.start()
        try:
            self.run_lives(min(self.lives, MOST_WITH_KILLS))
        finally:
            is_over.set()
            killer.join()

    def kill_until(self, is_over):
        """Kill one process after the other, and start it again."""
        generator = random.Random(self.seed)
        kinds = (self.restart_driver, self.restart_agent, self.restart_manager)
        for kill in itertools.cycle(kinds):
            if is_over.wait(generator.uniform(1, 4)):
                return
            kill(generator)

    def restart_driver(self, generator):
        driver = generator.choice(self.drivers)
        driver.kill()
        driver.start()

    def restart_agent(self, generator):
        host = generator.choice(self.hosts)
        host.agents[-1].kill()
        host.start()

    def restart_manager(self, _generator):
        self.deployment.manager.kill()
        self.deployment.manager = self.deployment.start_manager()


@full_only("containers")
class TgtPlatformTest(_PlatformTests, PlatformCase):
    pass


@full_only("containers")
class FilePlatformTest(_PlatformTests, PlatformCase):
    kind = FileDeployment


@full_only("containers")
class RbdPlatformTest(_PlatformTests, PlatformCase):
    kind = RbdDeployment
    grows_attached = False
    lives = LIVES // 3
