# SPDX-License-Identifier: Apache-2.0
"""QEMU's storage daemons over a plain file; functional/test_host_connectors.py: over a network."""

import os
from pathlib import Path
import signal

import fixtures

from attachd import exception
from attachd.agent.connectors.qemu import fusemounts, storage_daemon
from attachd.agent.connectors.qemu.blockdev import Image
from attachd.tests import machine
from attachd.tests.wait import TIMEOUT, wait_until

SIZE = 2**20


class DaemonTest(fixtures.TestWithFixtures):
    """From its start to its end."""

    def setUp(self):
        super().setUp()
        machine.need_root(self)
        machine.need_device(self, "/dev/fuse")
        machine.need_tool(self, storage_daemon.TOOL)
        self.folder = Path(self.useFixture(fixtures.TempDir()).path).resolve() / "device"
        self.folder.mkdir()
        self.lock = os.open(self.folder, os.O_RDONLY)
        self.addCleanup(os.close, self.lock)
        self.volume = self.folder.parent / "volume"
        self.volume.write_bytes(bytes(SIZE))
        self.image = Image(
            {"driver": "file", "filename": f"{self.volume}", "read-only": False}, "top-secret"
        )
        self.addCleanup(storage_daemon.clear, self.folder, lock=self.lock)
        self.addCleanup(storage_daemon.kill, self.folder)

    def test_it_shows_a_volume_until_it_is_told_to_end(self):
        self.assertFalse(storage_daemon.is_ready(self.folder))
        storage_daemon.start(self.folder, self.image)
        self.assertTrue(storage_daemon.is_ready(self.folder))
        storage_daemon.await_ready(self.folder)
        file = storage_daemon.image_file(self.folder)
        with file.open("r+b") as shown:
            shown.write(b"data")
        storage_daemon.stop(self.folder)
        self.assertEqual([], storage_daemon.find(self.folder))
        self.assertEqual(b"data", self.volume.read_bytes()[:4])
        storage_daemon.clear(self.folder, lock=self.lock)
        self.assertEqual([], list(self.folder.iterdir()))
        storage_daemon.stop(self.folder)

    def test_it_keeps_no_secret_where_others_could_see_it(self):
        storage_daemon.start(self.folder, self.image)
        (found,) = storage_daemon.find(self.folder)
        self.assertEqual(storage_daemon.command(self.folder, self.image), list(found.line))
        self.assertNotIn("top-secret", f"{found.line}")
        left = {each.name for each in self.folder.iterdir()}
        self.assertEqual({"image", "log", "pid", "qmp"}, left)

    def test_one_that_cannot_start_says_why(self):
        image = Image({"driver": "file", "filename": "/nowhere", "read-only": False})
        with self.assertRaisesRegex(exception.HostError, "reached: .*No such file") as caught:
            storage_daemon.start(self.folder, image)
        self.assertNotIn("blockdev", f"{caught.exception}")
        self.assertEqual([], storage_daemon.find(self.folder))

    def test_one_that_does_not_get_ready_is_ended(self):
        self.useFixture(fixtures.MonkeyPatch(f"{storage_daemon.__name__}.START_SECONDS", 0))
        self.useFixture(
            fixtures.MonkeyPatch(f"{storage_daemon.__name__}.is_ready", lambda _: False)
        )
        with self.assertRaisesRegex(exception.HostError, "no answer in 0 s"):
            storage_daemon.start(self.folder, self.image)
        self.assertEqual([], storage_daemon.find(self.folder))

    def test_a_key_of_ceph_is_told_to_be_encoded(self):
        ceph = Image({"driver": "rbd", "key-secret": "secret", "read-only": False}, "QVE=")
        self.assertIn('"format": "base64"', f"{storage_daemon.command(self.folder, ceph)}")
        self.assertNotIn("base64", f"{storage_daemon.command(self.folder, self.image)}")

    def test_the_mount_of_a_killed_one_is_cleared(self):
        storage_daemon.start(self.folder, self.image)
        storage_daemon.kill(self.folder)
        self.assertFalse(storage_daemon.is_ready(self.folder))
        self.assertTrue(fusemounts.is_mounted(storage_daemon.image_file(self.folder)))
        storage_daemon.clear(self.folder, lock=self.lock)
        self.assertEqual([], list(self.folder.iterdir()))

    def test_one_that_hangs_is_ended_by_force_alone(self):
        for name in ("END_SECONDS", "KILL_SECONDS"):
            self.useFixture(
                fixtures.MonkeyPatch(f"attachd.agent.connectors.qemu.storage_daemon.{name}", 0.05)
            )
        storage_daemon.start(self.folder, self.image)
        (found,) = storage_daemon.find(self.folder)
        os.kill(found.id, signal.SIGSTOP)
        # Until all of its threads have stopped, another signal would be heard first.
        wait_until(lambda: self.states(found.id) == {"T"})
        with self.assertRaisesRegex(exception.HostError, f"process {found.id}.*does not end"):
            storage_daemon.stop(self.folder)
        self.useFixture(fixtures.MonkeyPatch(f"{storage_daemon.__name__}.KILL_SECONDS", TIMEOUT))
        storage_daemon.kill(self.folder)
        self.assertEqual([], storage_daemon.find(self.folder))

    @staticmethod
    def states(number):
        stats = Path(f"/proc/{number}/task").glob("*/stat")
        return {each.read_text().rpartition(")")[2].split()[0] for each in stats}

    def test_its_volume_can_grow(self):
        storage_daemon.start(self.folder, self.image)
        with self.volume.open("r+b") as file:
            file.truncate(2 * SIZE)
        # Unlike a unit of iSCSI a file would be cut again: the size that is known is the old one.
        self.assertEqual(SIZE, storage_daemon.resize(self.folder))

    def test_of_another_folder_is_another_one(self):
        storage_daemon.start(self.folder, self.image)
        self.assertEqual([], storage_daemon.find(self.folder.parent))
        self.assertEqual([], storage_daemon.find(self.folder.with_name("devic")))
