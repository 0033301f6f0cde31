# SPDX-License-Identifier: Apache-2.0
"""Servers of an unmodified Nova with libvirt, whose volumes are images of Ceph."""

import operator
import os
from pathlib import Path
import random
import subprocess
import time
import uuid

from attachd.tests.fixtures import lifetime
from attachd.tests.nova.libvirt_host import COMPUTE, HOST, LibvirtCase
from attachd.tests.wait import poll, wait_until

ROUNDS = int(os.environ.get("ATTACHD_TEST_ROUNDS", "10"))
SEED = int(os.environ.get("ATTACHD_TEST_SEED", "36"))
VICTIMS = (COMPUTE, "agent", "attachd-manager")
SECTORS_OF_1_GIB, SECTORS_OF_2_GIB = 2**30 // 512, 2**31 // 512


class GuestTest(LibvirtCase):
    def attachment(self, volume):
        (attachment,) = self.attachments(volume)
        return attachment["id"]

    def assert_clean(self, *volumes):
        """Wait until no secret, user and watch is left."""
        wait_until(lambda: not self.secrets() | self.users(), self.secrets, timeout=60)
        for volume in volumes:
            self.assertEqual([], self.watchers(volume))

    def test_data_moves_between_guests_and_secrets_with_it(self):
        first, second = self.guest(), self.guest()
        volume = self.admin.volume("ceph")
        self.admin.add(first, volume)
        written = self.wait_for_line(first, rf"ACCEPT wrote vdb ({first}\.\d+)")
        self.assertEqual({self.attachment(volume)}, self.secrets())
        self.admin.remove(first, volume)
        self.admin.add(second, volume)
        head = self.wait_for_line(second, r"ACCEPT new vdb .*head=(\S+)")
        self.assertTrue(head.startswith(first), (written, head))
        wait_until(lambda: self.secrets() == {self.attachment(volume)}, self.secrets)
        self.admin.remove(second, volume)
        self.assert_clean(volume)
        self.assert_agreed()

    def test_compute_gets_no_key(self):
        server, volume = self.guest(), self.admin.volume("ceph")
        self.admin.add(server, volume)
        user = f"client.attachd-{self.attachment(volume)}"
        key = self._run("ceph", "--conf", self.ceph_conf, "auth", "get-key", user).strip()
        self.assertTrue(key)
        self.assertNotIn(key, (Path(self.cloud.LOG) / f"{COMPUTE}.log").read_text())
        self.assertNotIn(key, (Path(self.cloud.LOG) / "agent.log").read_text())
        rows = self.cloud.sql("nova", "SELECT connection_info FROM block_device_mapping")
        self.assertIn(user.removeprefix("client."), str(rows))
        self.assertNotIn(key, str(rows))
        line = ("virsh", "--connect", self.libvirt_uri, "secret-get-value")
        answer = subprocess.run(
            [*line, self.attachment(volume)], capture_output=True, text=True, check=False
        )
        self.assertIn("private", answer.stderr)

    def test_key_of_one_attachment_opens_no_image_of_another(self):
        server = self.guest()
        volumes = [self.admin.volume("ceph") for _ in range(2)]
        for volume in volumes:
            self.admin.add(server, volume)
        for volume, is_open in zip(volumes, (True, False), strict=True):
            user = f"client.attachd-{self.attachment(volumes[0])}"
            key = self._run("ceph", "--conf", self.ceph_conf, "auth", "get-key", user)
            line = ["rbd", "--conf", self.ceph_conf, "--name", user, "--key", key.strip()]
            line += ["info", f"volumes/attachd-{volume}"]
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            self.assertEqual(is_open, done.returncode == 0, done.stderr)

    def test_extension_is_seen_in_guest_within_5_seconds(self):
        server, volume = self.guest(), self.admin.volume("ceph")
        self.admin.add(server, volume)
        self.wait_for_line(server, "ACCEPT wrote vdb")
        started = time.monotonic()
        self.extend(volume, 2)
        self.wait_for_line(server, f"ACCEPT size vdb {SECTORS_OF_2_GIB}")
        self.assertLess(time.monotonic() - started, 5)

    def test_guest_cannot_write_to_readonly_volume(self):
        server, volume = self.guest(), self.admin.volume("ceph")
        body = {"os-update_readonly_flag": {"readonly": True}}
        self.admin.ok("volume", "POST", f"/volumes/{volume}/action", body)
        self.admin.add(server, volume)
        self.wait_for_line(server, "ACCEPT new vdb .*ro=1")
        self.wait_for_line(server, "ACCEPT failed vdb")

    def test_guest_of_fenced_host_is_cut_off(self):
        server, volume = self.guest(), self.admin.volume("ceph")
        self.admin.add(server, volume)
        self.wait_for_line(server, "ACCEPT beat vdb")
        self.fence(HOST)
        self.wait_for_line(server, "ACCEPT ioerror vdb")
        self.assert_clean(volume)

    def test_guest_of_fenced_host_that_hangs_is_cut_off(self):
        server, volume = self.guest(), self.admin.volume("ceph")
        self.admin.add(server, volume)
        self.wait_for_line(server, "ACCEPT beat vdb")
        console = self.console_file(server)
        with self.frozen():
            self.fence(HOST)
            self.admin.volume_is(volume, "available")
            self.assertEqual(([], set()), (self.watchers(volume), self.users()))
            wait_until(lambda: "ACCEPT ioerror vdb" in console.read_text(errors="replace"))
            beats = console.read_text(errors="replace").count("ACCEPT beat vdb")
        self.cloud.compute_is(HOST, "up")
        self.wait_for_line(server, r"(?s)ACCEPT ioerror vdb.*ACCEPT ioerror vdb")
        self.assertEqual(beats, self.console(server).count("ACCEPT beat vdb"))
        self.assert_clean(volume)

    def test_server_boots_from_volume_and_leaves_nothing(self):
        volume = self.boot_volume()
        root = {"uuid": volume, "source_type": "volume", "destination_type": "volume"}
        server = self.admin.server(host=HOST, image=False, volumes=[{**root, "boot_index": 0}])
        self.wait_for_line(server, f"ACCEPT up {server}")
        self.wait_for_line(server, f"ACCEPT new vda size={SECTORS_OF_1_GIB} ro=0")
        self.assertEqual({self.attachment(volume)}, self.secrets())
        self.assert_agreed()
        self.admin.delete(server)
        self.admin.volume_is(volume, "available")
        self.assert_clean(volume)
        self.assert_agreed()

    def test_restart_of_libvirt_or_agent_brings_secrets_back(self):
        server, volume = self.guest(), self.admin.volume("ceph")
        self.admin.add(server, volume)
        attachment = self.attachment(volume)
        self.kill("libvirtd")
        (Path(self.cloud.RUN) / "libvirtd.pid").unlink()
        self._run(f"{self.cloud.NR}/libvirt.sh", "up")
        wait_until(lambda: self.secrets() == {attachment}, self.secrets)
        self.kill("agent")
        self._run("virsh", "--connect", self.libvirt_uri, "secret-undefine", attachment)
        self.start_again()
        wait_until(lambda: self.secrets() == {attachment}, self.secrets)
        self.admin.act(server, "reboot", {"type": "HARD"})
        self.admin.server_is(server, "ACTIVE")
        self.wait_for_line(server, rf"ACCEPT new vdb .*head={server}")

    def test_attach_without_agent_is_refused_and_leaves_nothing(self):
        server, volume = self.guest(), self.admin.volume("ceph")
        self.addCleanup(self.start_again)
        self.kill("agent")
        self.admin.add(server, volume, wait_for=None)
        wait_until(lambda: self.action_result(server, "attach_volume") == "Error")
        self.admin.volume_is(volume, "available")
        self.start_again()
        self.assert_clean(volume)
        self.admin.add(server, volume)


class LifeCycleTest(LibvirtCase):
    """Attaches and detaches, during which a process is killed at any moment."""

    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        self.addCleanup(self.start_again)

    def kill_soon(self):
        time.sleep(self.random.uniform(0, 1.5))  # any moment is right for a kill
        victim = self.random.choice(VICTIMS)
        self.kill(victim)
        time.sleep(self.random.uniform(0, 1))  # and any time without the process
        self.start_again()
        self.cloud.compute_is(HOST, "up")
        self.wait_for_manager()
        return victim

    def detach(self, server, volume):
        """Detach by Nova, or as an administrator what it has lost."""
        path = f"/servers/{server}/os-volume_attachments/{volume}"
        self.admin.call("compute", "DELETE", path)
        for row in poll(lambda: self.attachments(volume), operator.not_, timeout=30, interval=0.5):
            query = "force=true&override_reason=it+was+lost"
            self.admin.call(
                "volume",
                "DELETE",
                f"/attachments/{row['id']}?{query}",
                mv=f"{self.cloud.VOLUME_MV}, attachd 1.0",
            )

    def test_nothing_is_left_after_kills_at_any_moment(self):
        server = self.guest()
        for number in range(ROUNDS):
            with self.subTest(number=number, seed=SEED):
                volume = self.admin.volume("ceph")
                kills_attach = self.random.random() < 0.5
                body = {"volumeAttachment": {"volumeId": volume}}
                path = f"/servers/{server}/os-volume_attachments"
                self.admin.call("compute", "POST", path, body)
                if kills_attach:
                    self.kill_soon()
                else:
                    self.admin.volume_is(volume, "in-use")
                    self.admin.call("compute", "DELETE", f"{path}/{volume}")
                    self.kill_soon()
                self.detach(server, volume)
                wait_until(lambda: not self.secrets() | self.users(), self.secrets, timeout=90)
                self.assertEqual([], self.watchers(volume))
                if self.admin.get_volume(volume)["status"] != "available":
                    reset = {"status": "available", "attach_status": "detached"}
                    self.admin.call(
                        "volume", "POST", f"/volumes/{volume}/action", {"os-reset_status": reset}
                    )
                self.admin.delete_volume(volume)


class HostKeyTest(LibvirtCase):
    """A host without an agent, whose libvirt has one key for all volumes."""

    def setUp(self):
        super().setUp()
        self.secret = f"{uuid.uuid4()}"
        self.addCleanup(self._restore, self._configuration.read_text())
        self.kill("agent")
        self._run(f"{self.cloud.NR}/attachd.sh", "manage", "agent", "remove", "--force", HOST)
        self._define_secret()
        options = f"[ceph]\nrbd_secret_uuid = {self.secret}\nrbd_libvirt_user = libvirt\n"
        self._restart(f"{self._configuration.read_text()}\n{options}")

    @property
    def _configuration(self):
        return Path(self.cloud.ETC) / "attachd" / "attachd.conf"

    def _restart(self, text):
        self._configuration.write_text(text)
        self.kill("attachd-manager")
        self.cloud.start_manager()
        self.wait_for_manager()

    def _restore(self, text):
        self._restart(text)
        self.start_again()

    def _define_secret(self):
        line = ("ceph", "--conf", self.ceph_conf, "auth")
        caps = ("mon", "profile rbd", "osd", "profile rbd pool=volumes")
        self._run(*line, "get-or-create", "client.libvirt", *caps)
        key = self._run(*line, "get-key", "client.libvirt").strip()
        virsh = ("virsh", "--connect", self.libvirt_uri)
        usage = "<usage type='ceph'><name>client.libvirt</name></usage>"
        file = lifetime.temp_dir(self) / "secret.xml"
        file.write_text(f"<secret ephemeral='yes'><uuid>{self.secret}</uuid>{usage}</secret>")
        self._run(*virsh, "secret-define", f"{file}")
        self.addCleanup(self._run, *virsh, "secret-undefine", self.secret)
        self._run(*virsh, "secret-set-value", self.secret, key)

    def attached(self):
        server, volume = self.guest(), self.admin.volume("ceph")
        self.admin.add(server, volume)
        self.wait_for_line(server, "ACCEPT beat vdb")
        self.assertEqual(set(), self.users() | self.secrets())
        return server, volume

    def test_detach_waits_until_client_is_gone(self):
        server, volume = self.attached()
        self.admin.remove(server, volume)
        self.assertEqual([], self.watchers(volume))
        self.assert_agreed()

    def test_volume_is_available_only_when_guest_is_cut_off(self):
        server, volume = self.attached()
        (row,) = self.attachments(volume)
        path = f"/attachments/{row['id']}?force=true"
        self.admin.ok("volume", "DELETE", path, mv=f"{self.cloud.VOLUME_MV}, attachd 1.0")
        self.assertEqual("available", self.admin.get_volume(volume)["status"])
        self.assertEqual([], self.watchers(volume))
        self.wait_for_line(server, "ACCEPT ioerror vdb")

    def test_fence_says_that_it_cannot_be_proved_and_changes_nothing(self):
        server, volume = self.attached()
        (row,) = self.attachments(volume)
        fence = self.fence(HOST)
        (result,) = fence["attachments"]
        self.assertEqual((row["id"], "failed"), (result["attachment_id"], result["result"]))
        self.assertRegex(result["reason"], "cannot end the access of a host.*Turn the host off")
        self.assertEqual("in-use", self.admin.get_volume(volume)["status"])
        self.assertEqual(1, len(self.watchers(volume)))
        beats = self.console(server).count("ACCEPT beat vdb")
        wait_until(lambda: self.console(server).count("ACCEPT beat vdb") > beats, interval=0.2)

    def test_readonly_volume_is_refused(self):
        server, volume = self.guest(), self.admin.volume("ceph")
        body = {"os-update_readonly_flag": {"readonly": True}}
        self.admin.ok("volume", "POST", f"/volumes/{volume}/action", body)
        self.admin.add(server, volume, wait_for=None)
        wait_until(lambda: self.action_result(server, "attach_volume") == "Error")
        self.admin.volume_is(volume, "available")
