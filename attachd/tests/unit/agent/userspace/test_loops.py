# SPDX-License-Identifier: Apache-2.0
"""Loop devices over images."""

from pathlib import Path

import fixtures

from attachd import exception
from attachd.agent import blocks, commands
from attachd.agent.userspace import loops
from attachd.tests import machine
from attachd.tests.wait import TIMEOUT


class LoopTest(fixtures.TestWithFixtures):
    """From a file to a device and back."""

    def setUp(self):
        super().setUp()
        machine.need_root(self)
        self.useFixture(fixtures.MonkeyPatch(f"{loops.__name__}._DETACH_SECONDS", TIMEOUT))
        machine.need_device(self, "/dev/loop-control")
        folder = Path(self.useFixture(fixtures.TempDir()).path).resolve()
        self.image = folder / "an image"
        self.image.write_bytes(bytes(2**20))
        lock = (folder / "lock").open("w")
        self.addCleanup(lock.close)
        self.lock = lock.fileno()
        self.addCleanup(loops.detach, self.image, lock=self.lock)

    def test_a_device_is_found_by_its_file(self):
        self.assertEqual([], loops.over(self.image))
        writable = loops.attach(self.image, writable=True, lock=self.lock)
        reading = loops.attach(self.image, writable=False, lock=self.lock)
        self.assertFalse(writable.read_only)
        self.assertTrue(reading.read_only)
        self.assertEqual({writable, reading}, set(loops.over(self.image)))
        loops.detach(self.image, lock=self.lock)
        self.assertEqual([], loops.over(self.image))

    def test_a_device_takes_writes_whatever_it_was_before(self):
        loop = loops.attach(self.image, writable=True, lock=self.lock)
        commands.run("blockdev", "--setro", loop.path)
        self.addCleanup(commands.run, "blockdev", "--setrw", loop.path)
        loops.detach(self.image, lock=self.lock)
        # Somebody else may have taken the device meanwhile.
        again = loops.attach(self.image, writable=True, lock=self.lock)
        self.assertEqual([again], loops.over(self.image))

    def test_a_device_grows_with_its_file(self):
        loop = loops.attach(self.image, writable=True, lock=self.lock)
        with self.image.open("r+b") as file:
            file.truncate(2**21)
        loops.refresh(loop)
        self.assertEqual(2**21, blocks.size(loop.path))

    def test_a_device_that_is_open_goes_away_with_its_user(self):
        loop = loops.attach(self.image, writable=True, lock=self.lock)
        hasty = fixtures.MonkeyPatch("attachd.agent.userspace.loops._DETACH_SECONDS", 0.05)
        with hasty, Path(loop.path).open("rb"):
            for _ in range(2):
                with self.assertRaisesRegex(exception.HostError, f"{loop.path} is still"):
                    loops.detach(self.image, lock=self.lock)
            self.assertEqual([True], [each.closing for each in loops.over(self.image)])
        loops.detach(self.image, lock=self.lock)

    def test_a_device_that_is_anothers_by_now_is_left_alone(self):
        mine = loops.attach(self.image, writable=True, lock=self.lock)
        other = self.image.with_name("other")
        other.write_bytes(bytes(2**20))
        loops._clear(mine, other, self.lock)
        self.assertEqual([mine], loops.over(self.image))
