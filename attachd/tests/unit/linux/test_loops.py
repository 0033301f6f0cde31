# SPDX-License-Identifier: Apache-2.0
"""Devices over open files; unit/drivers/test_loop.py has the rest."""

import fcntl
import os
from pathlib import Path
import struct
import unittest

from attachd.agent.connectors.qemu import loop_devices
from attachd.drivers import loop
from attachd.linux import block_device, loops
from attachd.tests.fixtures import lifetime, requirements
from attachd.tests.fixtures.loop_devices import attach

SIZE = 2**20
_LOOP_CONFIGURE, _LOOP_CTL_ADD, _LOOP_CTL_REMOVE = 0x4C0A, 0x4C80, 0x4C81
_BLKROSET = 0x125D
_FIRST_NUMBER = 2**16


class LoopsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        requirements.require_device(self, "/dev/loop-control")
        self.file = lifetime.temp_dir(self) / "file"
        self.file.write_bytes(b"own" + bytes(SIZE - 3))
        self.addCleanup(loop.detach, self.file)

    def configured(self, flags=os.O_RDWR):
        file = os.open(self.file, flags)
        try:
            return loops.configure(file, self.file)
        finally:
            os.close(file)

    def test_device_is_over_the_file_that_was_open_though_it_has_lost_its_name(self):
        file = os.open(self.file, os.O_RDWR)
        self.addCleanup(os.close, file)
        self.file.unlink()
        self.file.symlink_to("/etc/hostname")
        path = loops.configure(file, self.file)
        device = os.open(path, os.O_RDONLY)
        self.addCleanup(os.close, device)
        self.assertEqual(b"own", os.read(device, 3))
        self.assertTrue(loops.get_backing(device).is_file(os.fstat(file)))
        self.assertFalse(loops.get_backing(device).is_file(Path("/etc/hostname").stat()))
        self.file.unlink()

    def test_device_accepts_writes_though_its_last_user_made_it_read_only(self):
        path = self.own_device()
        for flags in (os.O_RDWR, os.O_RDONLY):
            with Path(path).open("rb", buffering=0) as device:
                fcntl.ioctl(device, _BLKROSET, struct.pack("i", 1))
            file = os.open(self.file, flags)
            self.make(path, file)
            os.close(file)
            self.assertEqual(flags == os.O_RDONLY, block_device.is_read_only(path))
            if flags == os.O_RDWR:
                with Path(path).open("r+b", buffering=0) as device:
                    device.write(b"new" + bytes(509))
            self.assertEqual(b"new", Path(path).read_bytes()[:3])
            loop.detach(self.file)

    def test_other_programs_can_write_to_a_device_that_was_made_read_only_and_freed(self):
        path = self.own_device()
        for detach in (loop.detach, self.detach_on_host):
            with self.file.open("r+b") as file:
                self.make(path, file.fileno())
            block_device.make_read_only(path)
            detach(self.file)
            with self.file.open("r+b") as file, Path(path).open("r+b", buffering=0) as device:
                # As losetup does, which does not change the flag.
                fcntl.ioctl(device, _LOOP_CONFIGURE, loops._CONFIG.pack(file.fileno(), 0, b""))
            self.assertFalse(block_device.is_read_only(path))
            with Path(path).open("r+b", buffering=0) as device:
                device.write(b"new" + bytes(509))
            detach(self.file)

    def test_device_of_stopped_writers_stays_read_only_until_the_last_one_closes_it(self):
        path = self.own_device()
        with self.file.open("r+b") as file:
            self.make(path, file.fileno())
        with Path(path).open("r+b", buffering=0) as writer:
            block_device.make_read_only(path)
            for _ in range(2):
                loops.release(path)
            self.assertTrue(block_device.is_read_only(path))
            with self.assertRaises(PermissionError):
                writer.write(bytes(512))
        loop.detach(self.file)
        self.assertEqual(b"own", self.file.read_bytes()[:3])

    def own_device(self):
        """Return a free device of a number that no other process is given.

        The kernel has 2^20 of them.
        """
        number = _FIRST_NUMBER + os.getpid() % _FIRST_NUMBER
        control = self.enterContext(Path("/dev/loop-control").open("r+b", buffering=0))
        fcntl.ioctl(control, _LOOP_CTL_ADD, number)
        self.addCleanup(fcntl.ioctl, control, _LOOP_CTL_REMOVE, number)
        self.addCleanup(loop.detach, self.file)
        return f"/dev/loop{number}"

    def make(self, path, file):
        loops._configure(path, loops._CONFIG.pack(file, 0, b""), lambda: None)

    def detach_on_host(self, file):
        with (file.parent / "lock").open("w") as lock:
            loop_devices.detach(file, lock=lock.fileno())

    def test_device_is_known_by_its_first_path_after_a_rename(self):
        path = self.configured()
        folder = Path("/sys/block") / Path(path).name / "loop"
        other = self.file.with_name("other")
        self.file.rename(other)
        self.assertEqual(f"{other}", loops.read_backing_name(folder))
        self.assertTrue(loops.is_made_for(folder, self.file))
        self.assertTrue(loops.is_made_in(folder, self.file.parent))
        self.assertFalse(loops.is_made_for(folder, other))
        with Path(path).open("rb") as device:
            self.assertEqual(SIZE, device.seek(0, os.SEEK_END))
            self.assertTrue(loops.get_backing(device.fileno()).is_file(other.stat()))

    def test_device_of_another_program_is_known_by_the_present_name(self):
        path = attach(self.file)
        folder = Path("/sys/block") / Path(path).name / "loop"
        self.assertTrue(loops.is_made_for(folder, self.file))
        self.assertTrue(loops.is_made_in(folder, self.file.parent))
        self.assertFalse(loops.is_made_in(folder, self.file))

    def test_get_backing_of_plain_file_raises(self):
        with self.file.open("rb") as file, self.assertRaises(OSError):
            loops.get_backing(file.fileno())

    def test_device_has_new_size_of_file_after_set_capacity(self):
        path = self.configured()
        os.truncate(self.file, 2 * SIZE)
        loops.set_capacity(path)
        with Path(path).open("rb") as device:
            self.assertEqual(2 * SIZE, device.seek(0, os.SEEK_END))

    def test_check_that_raises_keeps_device_from_being_made(self):
        def refuse():
            raise InterruptedError("no")

        with self.file.open("rb") as file, self.assertRaises(InterruptedError):
            loops.configure(file.fileno(), self.file, refuse)
        self.assertEqual([], loop.find(self.file))
