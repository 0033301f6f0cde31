# SPDX-License-Identifier: Apache-2.0
"""The protocol of Docker's volume plugins at a real socket: API, manager, tgtd, agents, mounts."""

from concurrent import futures
import json
from pathlib import Path
import socket
import threading
import time

from attachd.docker_volume import server
from attachd.tests import wait
from attachd.tests.fixtures import requirements
from attachd.tests.functional.docker_case import DockerCase
from attachd.tests.selection import full_only

WORKERS = 32
"""Calls that the plugin serves at the same time by default."""


class DockerVolumeTest(DockerCase):
    def test_life_of_volume_with_each_call_twice(self):
        host, name = self.host, self.volume
        for _ in range(2):
            host.call("Create", Name=name, Opts={"size": "1"})
        for use in ("a", "b"):
            for _ in range(2):
                path = host.call("Mount", Name=name, ID=use)["Mountpoint"]
        self.assertEqual([], list(Path(path).iterdir()))
        (Path(path) / "file").write_text("data")
        self.assertEqual((["a", "b"], [path]), (host.uses(), host.mounts()))
        shown = host.call("Get", Name=name)["Volume"]
        self.assertEqual((path, 1), (shown["Mountpoint"], shown["Status"]["size_gib"]))
        self.assertIn(
            f"attached to {host.name}, and is not removed", host.fail("Remove", Name=name)
        )
        for use in ("a", "b"):
            self.assertEqual("data", (Path(path) / "file").read_text())
            for _ in range(2):
                host.call("Unmount", Name=name, ID=use)
        self.assertEqual(([], [], []), (host.uses(), host.mounts(), host.attached()))
        self.assertFalse(Path(path).exists())
        for _ in range(2):
            host.call("Remove", Name=name)
        self.assertEqual([], self.stored())

    def test_plugin_serves_socket_of_systemd(self):
        activate = requirements.require_tool(self, "systemd-socket-activate")
        self.host.kill_plugin()
        self.host.socket.unlink()
        self.host.start_activated(activate)
        self.assertEqual("global", self.host.call("Capabilities")["Capabilities"]["Scope"])
        self.assertIn("There is no volume", self.host.fail("Get", Name=self.volume))
        self.assertEqual(0, self.host.plugin.end())
        self.assertTrue(self.host.socket.exists())


@full_only("containers")
class SlowSendersTest(DockerCase):
    """Callers that send a byte of their request every second, and no end."""

    def send_slowly(self, count):
        """Have callers send until they are cut off; return when the last one is, in seconds."""
        callers, began = [], time.monotonic()
        for _ in range(count):
            caller = socket.socket(socket.AF_UNIX)
            self.addCleanup(caller.close)
            callers.append(caller)
        for caller in callers:
            caller.connect(f"{self.host.socket}")
            caller.sendall(b"POST /VolumeDriver.List HTTP/1.1\r\nX: ")
        self.assertGreater(count, 2 * WORKERS)
        self.started.set()
        while callers:
            time.sleep(1)  # The pause between two bytes.
            callers = [caller for caller in callers if is_open_after_byte(caller)]
        return time.monotonic() - began

    def check(self, count, seconds):
        """Make calls beside slow senders; each is answered within some seconds."""
        self.started = threading.Event()
        self.host.call("Create", Name=self.volume, Opts={})
        with futures.ThreadPoolExecutor(1) as pool:
            slow = pool.submit(self.send_slowly, count)
            self.assertTrue(self.started.wait(wait.TIMEOUT))
            calls = 0
            while not slow.done():
                began = time.monotonic()
                shown = self.host.call("Get", Name=self.volume)["Volume"]
                self.assertEqual(self.volume, shown["Name"])
                self.assertLess(time.monotonic() - began, seconds)
                calls += 1
            self.assertLess(slow.result(), 3 * server.REQUEST_TIMEOUT)
        self.assertGreater(calls, 1)
        self.host.call("Remove", Name=self.volume)

    def test_more_slow_senders_than_workers_delay_no_call(self):
        self.check(3 * WORKERS, server.REQUEST_TIMEOUT / 2)

    def test_more_slow_senders_than_connections_are_cut_off_and_calls_served(self):
        self.check(server.MAX_CONNECTIONS + WORKERS, 2 * server.REQUEST_TIMEOUT)


def is_open_after_byte(caller):
    try:
        caller.sendall(b"x")
    except OSError:
        return False
    return True


@full_only("containers")
class VolumesTest(DockerCase):
    """What volumes Docker has."""

    def test_two_hosts_at_once_create_one_volume(self):
        other = self.start_host()
        calls = [
            host.start_call("Create", Name=self.volume, Opts={}) for host in (self.host, other) * 2
        ]
        answers = [json.load(call.getresponse()) for call in calls]
        self.assertEqual([{"Err": ""}] * 4, answers)
        self.assertEqual(1, len(self.stored()))

    def test_existing_volume_is_adopted_with_its_data_and_kept(self):
        host = self.host
        host.call("Create", Name=self.volume, Opts={"fs": "xfs"})
        path = host.call("Mount", Name=self.volume, ID="a")["Mountpoint"]
        (Path(path) / "file").write_text("data")
        host.call("Unmount", Name=self.volume, ID="a")
        (volume,) = self.stored()
        body = {"metadata": {}}
        self.deployment.request("PUT", f"/volumes/{volume['id']}/metadata", body)
        for name in (self.volume, volume["id"]):
            self.assertIn("There is no volume", host.fail("Get", Name=name))
            listed = [item["Name"] for item in host.call("List")["Volumes"]]
            self.assertNotIn(name, listed)
            text = host.fail("Create", Name=name, Opts={"size": "2"})
            self.assertIn(f"exists as {volume['id']}, and its size is 1 GiB", text)
            host.call("Create", Name=name, Opts={"size": "1"})
            path = host.call("Mount", Name=name, ID="a")["Mountpoint"]
            self.assertEqual("data", (Path(path) / "file").read_text())
            host.call("Unmount", Name=name, ID="a")
            host.call("Remove", Name=name)
            (kept,) = self.stored()
            self.assertEqual((volume["id"], {}), (kept["id"], kept["metadata"]))

    def test_name_of_two_volumes_is_refused_with_ids(self):
        body = {"volume": {"size": 1, "name": self.volume}}
        for _ in range(2):
            self.deployment.request("POST", "/volumes", body)
        text = self.host.fail("Create", Name=self.volume, Opts={})
        for volume in self.stored():
            self.assertIn(volume["id"], text)

    def test_volume_of_other_host_is_refused_until_it_is_unmounted(self):
        other = self.start_host()
        self.host.call("Create", Name=self.volume, Opts={})
        path = self.host.call("Mount", Name=self.volume, ID="a")["Mountpoint"]
        (Path(path) / "file").write_text("data")
        text = other.fail("Mount", Name=self.volume, ID="b")
        self.assertIn(f"is attached to host {self.host.name}. Stop the containers", text)
        self.assertIn(self.host.name, other.fail("Remove", Name=self.volume))
        self.host.call("Unmount", Name=self.volume, ID="a")
        path = other.call("Mount", Name=self.volume, ID="b")["Mountpoint"]
        self.assertEqual("data", (Path(path) / "file").read_text())
        other.call("Unmount", Name=self.volume, ID="b")

    def test_readers_of_shared_type_have_volume_at_same_time(self):
        other = self.start_host()
        options = {"type": self.deployment.create_type(multiattach="<is> True")}
        self.host.call("Create", Name=self.volume, Opts=options)
        path = self.host.call("Mount", Name=self.volume, ID="a")["Mountpoint"]
        (Path(path) / "file").write_text("data")
        self.assertIn(self.host.name, other.fail("Mount", Name=self.volume, ID="b"))
        self.host.call("Unmount", Name=self.volume, ID="a")
        (volume,) = self.stored()
        path = f"/volumes/{volume['id']}/metadata"
        self.deployment.request("PUT", path, {"metadata": {}})
        self.host.call("Create", Name=self.volume, Opts={**options, "mode": "ro"})
        for host in (self.host, other):
            mounted = Path(host.call("Mount", Name=self.volume, ID="a")["Mountpoint"])
            self.assertEqual("data", (mounted / "file").read_text())
            self.assertRaises(OSError, (mounted / "file").write_text, "more")
        for host in (self.host, other):
            host.call("Unmount", Name=self.volume, ID="a")

    def test_volume_without_file_system_is_not_formatted_against_option(self):
        self.host.call("Create", Name=self.volume, Opts={"mkfs": "false"})
        text = self.host.fail("Mount", Name=self.volume, ID="a")
        self.assertIn("has no file system", text)
        self.assertEqual(([], []), (self.host.mounts(), self.host.attached()))


@full_only("containers")
class KilledTest(DockerCase):
    """The plugin, the agent, or the host ends in between."""

    def setUp(self):
        super().setUp()
        self.host.call("Create", Name=self.volume, Opts={})

    def mount(self, use="a"):
        return Path(self.host.call("Mount", Name=self.volume, ID=use)["Mountpoint"])

    def unmount(self, use="a"):
        self.host.call("Unmount", Name=self.volume, ID=use)

    def test_killed_plugin_and_agent_between_calls_lose_no_use(self):
        for number, restart in enumerate((self.host.restart_plugin, self.host.restart_agent)):
            file = self.mount() / "file"
            with file.open("a") as opened:  # As a container has it.
                opened.write(f"{number}")
                opened.flush()
                restart()
                self.mount("b")
                restart()
                self.unmount()
                self.assertEqual(["b"], self.host.uses())
                restart()
                time.sleep(3 * 2)  # Three times the idle time: the file is open all the time.
                self.assertEqual(["b"], self.host.uses())
            self.unmount("b")
            self.host.wait_until_clean()
        self.assertEqual("01", (self.mount() / "file").read_text())
        self.unmount()

    def test_plugin_killed_in_the_middle_continues(self):
        for moment in range(8):
            with self.subTest(moment):
                self.host.start_call("Mount", Name=self.volume, ID="a")
                time.sleep(0.15 * moment)  # The moments of the kills are what varies.
                self.host.restart_plugin()
                if moment % 2:
                    self.mount()
                self.host.start_call("Unmount", Name=self.volume, ID="a")
                time.sleep(0.05 * moment)  # The same.
                self.host.restart_plugin()
                self.unmount()
                self.host.wait_until_clean()

    def test_mount_that_engine_does_not_know_is_given_back(self):
        for moment in range(0, 8, 2):
            with self.subTest(moment):
                self.host.start_call("Mount", Name=self.volume, ID="a")
                time.sleep(0.2 * moment)  # The moments of the kills are what varies.
                self.host.restart_plugin()
                # It may have been killed before it asked for the attachment, or after.
                wait.wait_until(
                    lambda: self.stored()[0]["status"] == "available" and not self.host.mounts(),
                    lambda: self.host.log,
                )

    def test_lost_unmount_is_made_up_for(self):
        self.mount()
        self.host.kill_plugin()
        self.host.start_plugin()
        self.host.wait_until_clean()
        self.assertIn("use a is forgotten", self.host.log)

    def test_unmount_without_agent_ends_use_and_detaches_later(self):
        self.mount()
        self.host.agent.kill()
        with self.host.start_call("Unmount", Name=self.volume, ID="a").getresponse() as response:
            self.assertEqual(500, response.status)
        self.assertEqual([], self.host.uses())
        self.host.restart_agent()
        self.host.wait_until_clean()

    def test_rebooted_host_has_volume_again_or_gives_it_back(self):
        (self.mount() / "file").write_text("data")
        self.host.reboot()
        self.assertEqual("data", (self.mount() / "file").read_text())
        self.host.reboot()
        self.host.wait_until_clean()
