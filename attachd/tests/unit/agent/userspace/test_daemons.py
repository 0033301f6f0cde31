# SPDX-License-Identifier: Apache-2.0
"""QEMU's storage daemons; here over a plain file, in functional/test_ways.py over the network."""

import os
from pathlib import Path
import signal

import fixtures

from attachd import exception
from attachd.agent.userspace import daemons, fusemounts
from attachd.agent.userspace.images import Image
from attachd.tests import machine
from attachd.tests.wait import TIMEOUT, wait_until

SIZE = 2**20


class DaemonTest(fixtures.TestWithFixtures):
    """From its start to its end."""

    def setUp(self):
        super().setUp()
        machine.need_root(self)
        machine.need_device(self, "/dev/fuse")
        machine.need_tool(self, daemons.TOOL)
        self.folder = Path(self.useFixture(fixtures.TempDir()).path).resolve() / "device"
        self.folder.mkdir()
        self.lock = os.open(self.folder, os.O_RDONLY)
        self.addCleanup(os.close, self.lock)
        self.volume = self.folder.parent / "volume"
        self.volume.write_bytes(bytes(SIZE))
        self.image = Image(
            {"driver": "file", "filename": f"{self.volume}", "read-only": False}, "top-secret"
        )
        self.addCleanup(daemons.clear, self.folder, lock=self.lock)
        self.addCleanup(daemons.kill, self.folder)

    def test_it_shows_a_volume_until_it_is_told_to_end(self):
        self.assertFalse(daemons.is_ready(self.folder))
        daemons.start(self.folder, self.image)
        self.assertTrue(daemons.is_ready(self.folder))
        daemons.await_ready(self.folder)
        file = daemons.image_file(self.folder)
        with file.open("r+b") as shown:
            shown.write(b"data")
        daemons.stop(self.folder)
        self.assertEqual([], daemons.find(self.folder))
        self.assertEqual(b"data", self.volume.read_bytes()[:4])
        daemons.clear(self.folder, lock=self.lock)
        self.assertEqual([], list(self.folder.iterdir()))
        daemons.stop(self.folder)

    def test_it_keeps_no_secret_where_others_could_see_it(self):
        daemons.start(self.folder, self.image)
        (found,) = daemons.find(self.folder)
        self.assertEqual(daemons.command(self.folder, self.image), list(found.line))
        self.assertNotIn("top-secret", f"{found.line}")
        left = {each.name for each in self.folder.iterdir()}
        self.assertEqual({"image", "log", "pid", "qmp"}, left)

    def test_one_that_cannot_start_says_why(self):
        image = Image({"driver": "file", "filename": "/nowhere", "read-only": False})
        with self.assertRaisesRegex(exception.HostError, "reached: .*No such file") as caught:
            daemons.start(self.folder, image)
        self.assertNotIn("blockdev", f"{caught.exception}")
        self.assertEqual([], daemons.find(self.folder))

    def test_one_that_does_not_get_ready_is_ended(self):
        self.useFixture(fixtures.MonkeyPatch(f"{daemons.__name__}.START_SECONDS", 0))
        self.useFixture(fixtures.MonkeyPatch(f"{daemons.__name__}.is_ready", lambda _: False))
        with self.assertRaisesRegex(exception.HostError, "no answer in 0 s"):
            daemons.start(self.folder, self.image)
        self.assertEqual([], daemons.find(self.folder))

    def test_a_key_of_ceph_is_told_to_be_encoded(self):
        ceph = Image({"driver": "rbd", "key-secret": "secret", "read-only": False}, "QVE=")
        self.assertIn('"format": "base64"', f"{daemons.command(self.folder, ceph)}")
        self.assertNotIn("base64", f"{daemons.command(self.folder, self.image)}")

    def test_the_mount_of_a_killed_one_is_cleared(self):
        daemons.start(self.folder, self.image)
        daemons.kill(self.folder)
        self.assertFalse(daemons.is_ready(self.folder))
        self.assertTrue(fusemounts.is_mounted(daemons.image_file(self.folder)))
        daemons.clear(self.folder, lock=self.lock)
        self.assertEqual([], list(self.folder.iterdir()))

    def test_one_that_hangs_is_ended_by_force_alone(self):
        for name in ("END_SECONDS", "KILL_SECONDS"):
            self.useFixture(fixtures.MonkeyPatch(f"attachd.agent.userspace.daemons.{name}", 0.05))
        daemons.start(self.folder, self.image)
        (found,) = daemons.find(self.folder)
        os.kill(found.id, signal.SIGSTOP)
        # Until all of its threads have stopped, another signal would be heard first.
        wait_until(lambda: self.states(found.id) == {"T"})
        with self.assertRaisesRegex(exception.HostError, f"process {found.id}.*does not end"):
            daemons.stop(self.folder)
        self.useFixture(fixtures.MonkeyPatch(f"{daemons.__name__}.KILL_SECONDS", TIMEOUT))
        daemons.kill(self.folder)
        self.assertEqual([], daemons.find(self.folder))

    @staticmethod
    def states(number):
        stats = Path(f"/proc/{number}/task").glob("*/stat")
        return {each.read_text().rpartition(")")[2].split()[0] for each in stats}

    def test_its_volume_can_grow(self):
        daemons.start(self.folder, self.image)
        with self.volume.open("r+b") as file:
            file.truncate(2 * SIZE)
        # Unlike a unit of iSCSI a file would be cut again: the size that is known is the old one.
        self.assertEqual(SIZE, daemons.resize(self.folder))

    def test_of_another_folder_is_another_one(self):
        daemons.start(self.folder, self.image)
        self.assertEqual([], daemons.find(self.folder.parent))
        self.assertEqual([], daemons.find(self.folder.with_name("devic")))
