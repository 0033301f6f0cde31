# SPDX-License-Identifier: Apache-2.0
"""Tests of the Python API of a host with a real service, devices, file systems and kills."""

import itertools
import logging
import os
from pathlib import Path
import secrets
import signal
import subprocess

import fixtures
import openstack
import testtools

from attachd import exception
from attachd.agent.connectors.qemu import storage_daemon
from attachd.agent.host import Host, Identity
from attachd.agent.mount import mounts, probe
from attachd.client import Client
from attachd.drivers import loop
from attachd.tests.contract import backends
from attachd.tests.fixtures import (
    ceph,
    deployments,
    fork_crash,
    http_client,
    processes,
    requirements,
    tgtd,
    user_space_devices,
)
from attachd.tests.functional.test_backend_data import settings
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

MIB, GIB = 2**20, 2**30


class Case(testtools.TestCase):
    """A service, and two hosts that are this machine; each of another name, folder and way."""

    WAY = "kernel"

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        requirements.share_mounts(self)
        requirements.require_device(self, "/dev/loop-control")
        requirements.require_tool(self, "mkfs.ext4")
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.note = self.folder / "note"
        self.api = http_client.Client(f"{self.serve()}/v3")
        self.a, self.b = self.new_host("a"), self.new_host("b")

    def serve(self):
        """Start the service and return its URL."""
        self.addCleanup(self.free_devices)
        options = {"file_loop_devices": "always", "file_devices_dir": f"{self.folder / 'names'}"}
        return self.start(settings("file", options))

    def start(self, configuration):
        served = deployments.AllInOne.configured(self, configuration)
        served.show_in_failures(self)
        return served.url

    def hasten(self):
        """Do without the reading of a whole device before a file system is made on it."""
        self.useFixture(fixtures.MockPatchObject(probe, "check_empty"))

    def new_host(self, name):
        identity = Identity(f"host-{name}", f"iqn.2026-01.internal.attachd.test:{name}")
        if self.WAY == "kernel":
            identity = Identity(identity.name)
        host = Host(identity, self.folder / name, self.WAY)
        self.addCleanup(self.leave, host)
        return host

    def client(self, host):
        connection = openstack.connect(
            auth_type="none",
            endpoint=self.api.url,
            load_envvars=False,
            load_yaml_config=False,
            app_name="attachd-tests",
        )
        self.addCleanup(connection.close)
        return Client(connection, host)

    def attach(self, host, volume, **wanted):
        # A copy of this process must not share the connections of this one.
        wanted = {"mountpoint": f"{self.place(host)}", **wanted}
        return self.client(host).attach(volume, **wanted)

    def detach(self, host, volume, **how):
        """Detach, once no other test has a copy of our mounts in a namespace that it made."""
        client = self.client(host)

        def detached():
            try:
                return [client.detach(volume, **how)]
            except exception.DeviceBusy as error:
                if " of process " not in f"{error}":
                    raise
                return []

        (entry,) = wait_until(detached)
        return entry

    def place(self, host):
        return self.folder / f"mnt-{host.identity.name}"

    def leave(self, host):
        """Take away what a test that failed has left."""
        for entry in host.journal.list_entries():
            self.detach(host, entry.volume_id, attachment_id=entry.attachment_id, force=True)

    def backings(self):
        ours = f"{self.folder}/"
        return [
            Path(loop_backing)
            for loop_backing in backends.loop_backings()
            if loop_backing.startswith(ours)
        ]

    def free_devices(self):
        for backing in self.backings():
            loop.detach(backing)

    def extend(self, volume, size_gib):
        path = f"/volumes/{volume}/action"
        self.api.request_json("POST", path, {"os-extend": {"new_size": size_gib}})
        self.api.wait_for_size(volume, size_gib)

    def attachments(self, volume):
        path = f"/attachments/detail?volume_id={volume}"
        return self.api.request_json("GET", path)["attachments"]

    def assert_attached(self, volume, found):
        (result,) = self.attachments(volume)
        self.assertEqual((found.attachment_id, "attached"), (result["id"], result["status"]))
        self.assertEqual("in-use", self.api.volume(volume)["status"])
        self.assertTrue(Path(found.path).is_block_device())
        self.assertTrue(Path(found.mountpoint).is_mount())

    def assert_nothing_is_left(self, volume):
        self.assertEqual("available", self.api.volume(volume)["status"])
        self.assertEqual([], self.attachments(volume))
        for host in (self.a, self.b):
            self.assertEqual([], host.journal.list_entries())
            self.assertEqual([], user_space_devices.list_orphans(host.journal.state_path))
            self.assertFalse(self.place(host).is_mount())
        self.assert_nothing_is_exported()

    def assert_nothing_is_exported(self):
        self.assertEqual([], self.backings())


class _Life:
    """Attach, write, detach, attach elsewhere, read."""

    def test_local_attach_data_written_by_one_host_is_read_by_the_next(self):
        volume = self.api.create_volume(name="disk")
        data = secrets.token_bytes(3 * MIB)
        found = self.attach(self.a, "disk", mkfs="ext4")
        self.assert_attached(volume, found)
        self.assertEqual(found, self.attach(self.a, "disk", mkfs="ext4"))
        (Path(found.mountpoint) / "data").write_bytes(data)
        (listed,) = self.client(self.a).attached()
        self.assertEqual(("attached", True), (listed.status, listed.present))
        self.detach(self.a, volume)
        self.assert_nothing_is_left(volume)

        found = self.attach(self.b, volume, mode="ro")
        self.assertEqual("ro", found.mode)
        self.assertEqual(data, (Path(found.mountpoint) / "data").read_bytes())
        self.assertRaises(OSError, (Path(found.mountpoint) / "more").write_bytes, b"x")
        self.detach(self.b, "disk")
        self.assert_nothing_is_left(volume)

    def test_local_attach_after_reboot_is_restored(self):
        self.hasten()
        volume = self.api.create_volume()
        found = self.attach(self.a, volume, mkfs="ext4")
        data = secrets.token_bytes(MIB)
        (Path(found.mountpoint) / "data").write_bytes(data)
        mounts.unmount(found.mountpoint)
        (entry,) = self.a.journal.list_entries()
        self.a.connector.disconnect(entry.connection_info, entry.options, entry.device)
        (result,) = self.client(self.a).restore()
        self.assertEqual(("attached", True, None), (result.status, result.present, result.error))
        self.assert_attached(volume, found)
        self.assertEqual(data, (Path(found.mountpoint) / "data").read_bytes())
        self.detach(self.a, volume)
        self.assert_nothing_is_left(volume)


class LifeTest(_Life, Case):
    """With loop devices."""


@full_only("hosts")
class RefusedTest(Case):
    """What the host refuses or undoes."""

    def test_local_detach_of_busy_device_is_refused(self):
        self.hasten()
        volume = self.api.create_volume()
        found = self.attach(self.a, volume, mkfs="ext4")
        with (Path(found.mountpoint) / "open").open("wb"):
            self.assertRaises(exception.DeviceBusy, self.detach, self.a, volume)
            self.assert_attached(volume, found)
            self.assertEqual(found, self.attach(self.a, volume))
        self.detach(self.a, volume)
        self.assert_nothing_is_left(volume)

    def test_local_attach_that_fails_is_undone(self):
        self.hasten()
        volume = self.api.create_volume()
        error = self.assertRaises(exception.HostError, self.attach, self.a, volume)
        self.assertIn("no file system", f"{error}")
        self.assert_nothing_is_left(volume)

    def test_local_attach_does_not_format_foreign_data(self):
        volume = self.api.create_volume()
        found = self.attach(self.a, volume, mountpoint=None)
        data = secrets.token_bytes(MIB)
        user_space_devices.write_at(found.path, 300 * MIB, data)
        self.detach(self.a, volume)
        error = self.assertRaises(exception.HostError, self.attach, self.a, volume, mkfs="ext4")
        self.assertNotIsInstance(error, exception.AttachFailed)
        self.assert_nothing_is_left(volume)
        found = self.attach(self.a, volume, mountpoint=None)
        self.assertEqual(data, user_space_devices.read_at(found.path, 300 * MIB, MIB))
        self.detach(self.a, volume)


@full_only("crash")
class _Killed(Case):
    """A process that is killed leaves nothing that the next one does not go on with."""

    def setUp(self):
        super().setUp()
        self.hasten()
        self.volume = self.api.create_volume()
        self.data = secrets.token_bytes(MIB)

    def fill(self):
        """Put a file system with a file on the volume, and have it attached."""
        self.attach(self.a, self.volume, mkfs="ext4")
        (self.place(self.a) / "data").write_bytes(self.data)

    def read_elsewhere(self):
        self.attach(self.b, self.volume)
        self.assertEqual(self.data, (self.place(self.b) / "data").read_bytes())
        self.detach(self.b, self.volume)
        self.assert_nothing_is_left(self.volume)

    def dies(self, number, act, among=""):
        died = fork_crash.crash_in_fork(number, self.note, act, among)
        if died:
            self.addDetail("point", testtools.content.text_content(self.note.read_text()))
        return died


class KilledTest(_Killed):
    """With data on the volume."""

    def test_local_attach_killed_anywhere_can_be_repeated(self):
        self.fill()
        self.detach(self.a, self.volume)
        for number in itertools.count():
            died = self.dies(number, lambda: self.attach(self.a, self.volume))
            found = self.attach(self.a, self.volume)
            self.assert_attached(self.volume, found)
            self.assertEqual(self.data, (self.place(self.a) / "data").read_bytes())
            self.data = secrets.token_bytes(MIB)
            (self.place(self.a) / "data").write_bytes(self.data)
            self.detach(self.a, self.volume)
            self.assert_nothing_is_left(self.volume)
            if number % 4 == 0:
                self.read_elsewhere()
            if not died:
                break
        self.assertGreaterEqual(number, 16)

    def test_local_detach_killed_anywhere_can_be_repeated(self):
        self.fill()
        for number in itertools.count():
            if not self.dies(number, lambda: self.detach(self.a, self.volume)):
                break
            self.detach(self.a, self.volume)
            self.assert_nothing_is_left(self.volume)
            self.attach(self.a, self.volume)
            self.assertEqual(self.data, (self.place(self.a) / "data").read_bytes())
        self.assert_nothing_is_left(self.volume)
        self.assertGreaterEqual(number, 11)


class KilledBeforeUseTest(_Killed):
    """The same where nothing was on the volume before."""

    def test_local_attach_with_mkfs_killed_anywhere_can_be_repeated(self):
        among = "mkfs|wipefs|formatting|mount|attached"
        for number in itertools.count():
            self.volume = self.api.create_volume()
            died = self.dies(number, self.fill, among)
            self.fill()
            self.detach(self.a, self.volume)
            self.assert_nothing_is_left(self.volume)
            self.read_elsewhere()
            if not died:
                break
        self.assertGreaterEqual(number, 6)

    def test_local_attach_killed_anywhere_can_be_undone(self):
        for number in itertools.count():
            died = self.dies(number, self.fail_to_mount)
            if self.a.journal.list_entries():
                self.detach(self.a, self.volume)
            self.assert_nothing_is_left(self.volume)
            if not died:
                break
        self.assertGreaterEqual(number, 24)

    def fail_to_mount(self):
        try:
            self.attach(self.a, self.volume)
        except exception.HostError as error:
            assert "no file system" in f"{error}", error


class _OnTargets:
    """The same with an iSCSI target, and block devices that QEMU makes of it."""

    WAY = "user-space"

    def serve(self):
        """Start the service and return its URL."""
        requirements.require_device(self, "/dev/fuse")
        requirements.require_tool(self, "qemu-storage-daemon")
        self.tgtd = self.useFixture(tgtd.Tgtd(self))
        self.hasten()
        return self.start(settings("tgt", self.tgtd.options))

    def assert_nothing_is_exported(self):
        wait_until(lambda: not self.tgtd.sessions())
        self.assertEqual([], self.tgtd.targets())
        self.assertEqual([], self.tgtd.accounts())


@full_only("crash")
class LifeOnTargetsTest(_OnTargets, _Life, Case):
    def test_xfs_grows_with_its_volume(self):
        self.hasten()
        volume = self.api.create_volume()
        found = self.attach(self.a, volume, mkfs="xfs")
        data = secrets.token_bytes(MIB)
        (Path(found.mountpoint) / "data").write_bytes(data)
        self.extend(volume, 2)
        grown = self.client(self.a).grow(volume)
        self.assertEqual((2 * GIB, 2 * GIB), (grown.size_bytes, grown.filesystem_bytes))
        self.assertEqual(data, (Path(found.mountpoint) / "data").read_bytes())
        self.detach(self.a, volume)
        self.assert_nothing_is_left(volume)


@full_only("storage")
class LifeOnImagesTest(_Life, Case):
    """The same on images of Ceph."""

    WAY = "user-space"

    def serve(self):
        """Start the service and return its URL."""
        requirements.require_device(self, "/dev/fuse")
        requirements.require_tool(self, "qemu-storage-daemon")
        self.cluster, self.prefix = ceph.shared(self), ceph.new_prefix()
        self.cluster.require_statistics(self)
        self.hasten()
        return self.start(settings("rbd", self.cluster.options(self.prefix)))

    def assert_nothing_is_exported(self):
        # An extension makes a user of the manager, which stays.
        left = {*self.cluster.users(self.prefix)} - {f"client.{self.prefix}headers"}
        self.assertEqual(set(), left)

    def test_xfs_grows_with_its_volume_when_it_is_attached_again(self):
        self.hasten()
        volume = self.api.create_volume()
        found = self.attach(self.a, volume, mkfs="xfs")
        data = secrets.token_bytes(MIB)
        (Path(found.mountpoint) / "data").write_bytes(data)
        self.extend(volume, 2)
        error = self.assertRaises(exception.HostError, self.client(self.a).grow, volume)
        self.assertIn("Detach the volume, and attach it again", f"{error}")
        self.detach(self.a, volume)
        grown = self.attach(self.a, volume, grow_fs=True)
        self.assertEqual((2 * GIB, 2 * GIB), (grown.size_bytes, grown.filesystem_bytes))
        self.assertEqual(data, (Path(found.mountpoint) / "data").read_bytes())
        self.detach(self.a, volume)
        self.assert_nothing_is_left(volume)


class KilledOnTargetsTest(_OnTargets, KilledTest):
    pass


class DaemonKilledTest(_OnTargets, _Killed):
    """QEMU's storage daemon is killed, alone or with the process that works on its volume."""

    def fill(self):
        super().fill()
        mounts.flush(f"{self.place(self.a)}", self.a.journal.list_entries()[0].device.path, 60)

    def dies(self, number, act, among=""):
        died = super().dies(number, act, among)
        self.kill_daemons()
        return died

    def kill_daemons(self):
        for directory in (self.a.journal.state_path.resolve() / "devices").glob("*"):
            storage_daemon.kill(directory)

    def test_local_attach_with_daemon_killed_anywhere_can_be_repeated(self):
        self.fill()
        self.detach(self.a, self.volume)
        for number in itertools.count():
            died = self.dies(number, lambda: self.attach(self.a, self.volume))
            if not self.place(self.a).is_mount():
                self.attach(self.a, self.volume)
            else:
                error = self.assertRaises(exception.HostError, self.attach, self.a, self.volume)
                self.assertIn("--force", f"{error}")
                (entry,) = self.a.journal.list_entries()
                self.assertIsNotNone(entry.device)
                self.detach(self.a, self.volume, force=True)
                self.assert_nothing_is_left(self.volume)
                self.attach(self.a, self.volume)
            self.assertEqual(self.data, (self.place(self.a) / "data").read_bytes())
            self.detach(self.a, self.volume)
            self.assert_nothing_is_left(self.volume)
            if not died:
                break
        self.assertGreaterEqual(number, 16)

    def test_local_detach_with_daemon_killed_anywhere_can_be_forced(self):
        self.fill()
        for number in itertools.count():
            died = self.dies(number, lambda: self.detach(self.a, self.volume))
            if died:
                try:
                    self.detach(self.a, self.volume)
                except exception.HostError as error:
                    self.assertIn("--force", f"{error}")
                    self.detach(self.a, self.volume, force=True)
            self.assert_nothing_is_left(self.volume)
            self.attach(self.a, self.volume)
            self.assertEqual(self.data, (self.place(self.a) / "data").read_bytes())
            if not died:
                break
        self.assertGreaterEqual(number, 11)

    def test_watching_restore_brings_back_killed_daemon_of_unused_device(self):
        found = self.attach(self.a, self.volume, mountpoint=None)
        user_space_devices.write_at(found.path, 0, self.data)
        words = (
            *(processes.script("attachd"), "local-restore", "--watch", "--connector-type"),
            *("user-space", "--hostname", self.a.identity.name, "--initiator"),
            *(self.a.identity.initiator, "--state-path", f"{self.a.journal.state_path}"),
        )
        environment = processes.environment(OS_AUTH_TYPE="none", OS_ENDPOINT=self.api.url)
        watch = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
        self.addCleanup(watch.communicate)
        self.addCleanup(watch.kill)
        for _ in range(2):
            self.kill_daemons()
            self.assertIn(f"Volume {self.volume} is attached again", watch.stderr.readline())
        watch.send_signal(signal.SIGINT)
        watch.wait(TIMEOUT)
        (found,) = self.client(self.a).attached()
        self.assertEqual((True, "attached", None), (found.present, found.status, found.error))
        self.assertEqual(self.data, user_space_devices.read_at(found.path, 0, MIB))
        self.detach(self.a, self.volume)
        self.assert_nothing_is_left(self.volume)

    def test_forced_detach_after_killed_daemon_ends_only_when_nothing_is_left(self):
        self.fill()
        logged = self.useFixture(fixtures.FakeLogger("attachd.client", level=logging.WARNING))
        with (self.place(self.a) / "data").open("rb"):
            self.kill_daemons()
            error = self.assertRaises(exception.HostError, self.detach, self.a, self.volume)
            self.assertIn("--force", f"{error}")
            self.assertTrue(self.place(self.a).is_mount())
            error = self.assertRaises(
                exception.HostError, self.detach, self.a, self.volume, force=True
            )
            self.assertIn(f"process {os.getpid()}", f"{error}")
            self.assertIn(f"Cut off from {self.place(self.a)}", logged.output)
            self.assertFalse(self.place(self.a).is_mount())
            (entry,) = self.a.journal.list_entries()
            self.assertIsNotNone(entry.device)
            self.assertEqual("in-use", self.api.volume(self.volume)["status"])
        self.detach(self.a, self.volume, force=True)
        self.assert_nothing_is_left(self.volume)

    def test_forced_detach_after_deletion_in_the_service_removes_hanging_mount(self):
        self.fill()
        (attachment,) = self.attachments(self.volume)
        self.api.request("DELETE", f"/attachments/{attachment['id']}")
        (self.place(self.a) / "unsaved").write_bytes(self.data)
        self.useFixture(fixtures.MonkeyPatch("attachd.client.detach._FORCED_FLUSH_TIMEOUT", 1))
        error = self.assertRaises(exception.HostError, self.detach, self.a, self.volume)
        self.assertIn("--force", f"{error}")
        self.detach(self.a, self.volume, force=True)
        self.assert_nothing_is_left(self.volume)
        self.read_elsewhere()
