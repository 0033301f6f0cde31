# SPDX-License-Identifier: Apache-2.0
"""Containers of Docker and Podman with volumes: two hosts, each with an engine of its own."""

import threading
import time

from attachd.tests import wait
from attachd.tests.fixtures import container_engines
from attachd.tests.fixtures.container_engines import CONTENT, Docker, Podman
from attachd.tests.fixtures.docker_plugin import IDLE_SECONDS
from attachd.tests.functional.docker_case import DockerCase
from attachd.tests.selection import full_only

_WRITE = "cat /proc/sys/kernel/random/boot_id > /data/file && cat /data/file"
_READ = "cat /data/file"


class DockerTest(DockerCase):
    def test_next_container_reads_what_first_one_has_written(self):
        docker = Docker(self, self.host)
        docker.create_volume(self.volume, size="1")
        written = docker.run(self.volume, _WRITE)
        self.assertEqual([], self.host.attached())
        self.assertEqual(written, docker.run(self.volume, _READ))
        self.host.wait_until_clean()
        docker.call("volume", "rm", self.volume)
        self.assertEqual([], self.stored())


@full_only("containers")
class TwoHostsTest(DockerCase):
    def setUp(self):
        super().setUp()
        self.other = self.start_host()
        self.docker, self.docker_2 = Docker(self, self.host), Docker(self, self.other)

    def test_container_of_other_host_reads_when_first_one_has_ended(self):
        self.docker.start_container("writer", self.volume)
        self.docker.call("exec", "writer", "sh", "-c", "echo data > /data/file")
        text = self.docker_2.fail_to_run(self.volume)
        self.assertIn(f"is attached to host {self.host.name}", text)
        self.docker.call("stop", "writer")
        self.assertEqual("data\n", self.docker_2.run(self.volume, _READ))
        listed = self.docker_2.call("volume", "ls", "--quiet")
        self.assertIn(self.volume, listed.split())
        self.docker.call("rm", "writer")
        self.docker.call("volume", "rm", self.volume)
        self.assertEqual([], self.stored())

    def test_containers_of_one_host_share_attachment(self):
        for name in ("one", "two"):
            self.docker.start_container(name, self.volume)
        self.assertEqual(2, len(self.host.uses()))
        self.docker.call("exec", "one", "sh", "-c", "echo data > /data/file")
        self.docker.call("rm", "--force", "one")
        self.assertEqual("data\n", self.docker.call("exec", "two", "cat", "/data/file"))
        text = self.docker.call("volume", "rm", self.volume, code=1)
        self.assertIn("volume is in use", text)
        self.assertIn(self.host.name, self.docker_2.call("volume", "rm", self.volume, code=1))
        self.docker.call("rm", "--force", "two")
        self.assertEqual(([], []), (self.host.mounts(), self.host.attached()))

    def test_killed_daemon_leaves_no_use(self):
        self.docker.start_container("writer", self.volume)
        self.docker.call("exec", "writer", "sh", "-c", "echo data > /data/file")
        self.docker.kill()
        time.sleep(2 * IDLE_SECONDS)  # The container goes on, and so does its use.
        self.assertEqual(1, len(self.host.uses()))
        self.docker.start()
        self.host.wait_until_clean()
        self.assertEqual("data\n", self.docker_2.run(self.volume, _READ))

    def test_killed_daemon_restarts_container_with_its_volume(self):
        self.docker.start_container("writer", self.volume, "--restart=always")
        self.docker.call("exec", "writer", "sh", "-c", "echo data > /data/file")
        self.docker.kill()
        self.docker.start()
        wait.wait_until(lambda: "Up" in self.docker.call("ps", "--format={{.Status}}"))
        self.assertEqual("data\n", self.docker.call("exec", "writer", "cat", "/data/file"))
        self.assertEqual(1, len(self.host.uses()))
        self.docker.call("stop", "writer")
        self.host.wait_until_clean()

    def test_container_that_survives_its_daemon_keeps_volume(self):
        self.docker.start_container("writer", self.volume)
        self.docker.kill()
        self.host.restart_plugin()
        self.docker.start("--live-restore")
        time.sleep(2 * IDLE_SECONDS)  # Nothing confirms the use but the mount of the container.
        self.docker.call("exec", "writer", "sh", "-c", "echo data > /data/file")
        self.assertEqual(1, len(self.host.uses()))
        self.docker.call("rm", "--force", "writer")
        self.host.wait_until_clean()
        self.assertEqual("data\n", self.docker_2.run(self.volume, _READ))


@full_only("containers")
class OneHostTest(DockerCase):
    def setUp(self):
        super().setUp()
        self.docker = Docker(self, self.host)

    def test_killed_plugin_and_agent_between_containers_lose_nothing(self):
        for number, restart in enumerate((self.host.restart_plugin, self.host.restart_agent)):
            self.docker.start_container(f"first{number}", self.volume)
            restart()
            self.docker.run(self.volume, f"echo {number} >> /data/file")
            restart()
            self.docker.call("rm", "--force", f"first{number}")
            self.host.wait_until_clean()
        self.assertEqual("0\n1\n", self.docker.run(self.volume, _READ))

    def test_container_waits_while_plugin_starts_again(self):
        self.docker.create_volume(self.volume)
        self.host.kill_plugin()
        late = threading.Timer(2.0, self.host.start_plugin)
        late.start()
        self.addCleanup(late.join)
        self.docker.run(self.volume, _WRITE)
        self.host.wait_until_clean()

    def test_new_volume_gets_content_of_image(self):
        words = ["--volume", f"{self.volume}:/image", container_engines.IMAGE]
        driver = f"--volume-driver={self.docker.driver}"
        self.docker.call("run", "--rm", driver, *words, "cat", "/image/file")
        listed = self.docker.run(self.volume, "cat /data/file && ls -ldn /data")
        self.assertRegex(listed, rf"{CONTENT}drwxr-x--- .* 1000 ")

    def test_wrong_options_and_existing_volume_are_explained(self):
        words = ["volume", "create", f"--driver={self.docker.driver}"]
        text = self.docker.call(*words, "--opt=sise=1", self.volume, code=1)
        self.assertIn("There is no option sise", text)
        body = {"volume": {"size": 1, "name": self.volume}}
        created = self.deployment.request("POST", "/volumes", body).json()["volume"]
        self.deployment.wait_for_volume(created["id"], "available")
        text = self.docker.call(*words, "--opt=size=2", self.volume, code=1)
        self.assertIn("its size is 1 GiB", text)
        self.docker.create_volume(self.volume, size="1", mkfs="true")
        self.docker.run(self.volume, _WRITE)
        self.docker.call("volume", "rm", self.volume)
        (kept,) = self.stored()
        self.assertEqual(({}, "available"), (kept["metadata"], kept["status"]))


@full_only("containers")
class PodmanTest(DockerCase):
    def setUp(self):
        super().setUp()
        self.podman = Podman(self, self.host)
        self.podman.create_volume(self.volume)

    def test_containers_share_volume_and_other_host_has_it_afterwards(self):
        other = self.start_host()
        docker = Docker(self, other)
        self.podman.start_container("writer", self.volume)
        written = self.podman.run(self.volume, _WRITE)
        time.sleep(2 * IDLE_SECONDS)  # Only the mount of the container confirms the use.
        self.assertEqual(written, self.podman.call("exec", "writer", "cat", "/data/file"))
        self.assertIn(f"attached to host {self.host.name}", docker.fail_to_run(self.volume))
        self.podman.call("rm", "--force", "--time=0", "writer")
        self.host.wait_until_clean()
        self.assertEqual(written, docker.run(self.volume, _READ))
        self.podman.call("volume", "rm", self.volume)
        self.assertEqual([], self.stored())

    def test_errors_are_shown(self):
        other = self.start_host()
        other.call("Mount", Name=self.volume, ID="a")
        words = ["run", "--rm", f"--volume={self.volume}:/data", container_engines.IMAGE, "ls"]
        text = self.podman.call(*words, code=126)
        self.assertIn(f"attached to host {other.name}", text)
        other.call("Unmount", Name=self.volume, ID="a")
        self.podman.run(self.volume, _WRITE)
        self.host.wait_until_clean()

    def test_killed_container_gives_volume_back(self):
        self.podman.start_container("writer", self.volume)
        self.podman.call("kill", "writer")
        self.host.wait_until_clean()
