# SPDX-License-Identifier: Apache-2.0
"""Attaching, finding and detaching of loop devices."""

import contextlib
import errno
import fcntl
import os
from pathlib import Path
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import loop
from attachd.linux import loops
from attachd.tests.fixtures import lifetime, requirements
from attachd.tests.wait import TIMEOUT

SIZE = 2**20


class UnavailableTest(unittest.TestCase):
    def test_unavailable_names_missing_control_device(self):
        with mock.patch.object(loops, "CONTROL", Path("/nonexistent/loop-control")):
            self.assertIn("/nonexistent/loop-control", loop.unavailable())


class LoopTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        self.enterContext(mock.patch.object(loop, "_DETACH_SECONDS", TIMEOUT))
        requirements.require_device(self, "/dev/loop-control")
        folder = lifetime.temp_dir(self)
        self.file = folder / "file"
        self.file.write_bytes(bytes(SIZE))
        self.link = folder / "link"
        os.link(self.file, self.link)
        for path in (self.file, self.link):
            self.addCleanup(loop.detach, path)

    def opened(self, device, flags=os.O_RDWR):
        descriptor = os.open(device.path, flags)
        self.addCleanup(self.close, descriptor)
        return descriptor

    @staticmethod
    def attach(path, mode):
        file = os.open(path, os.O_RDONLY if mode == "ro" else os.O_RDWR)
        try:
            return loop.attach(file, path, mode)
        finally:
            os.close(file)

    @staticmethod
    def close(descriptor):
        with contextlib.suppress(OSError):
            os.close(descriptor)

    def test_unavailable_on_this_machine_is_empty(self):
        self.assertEqual("", loop.unavailable())

    def test_attach_two_links_to_one_file_creates_two_devices(self):
        by_file, by_link = self.attach(self.file, "rw"), self.attach(self.link, "ro")
        self.assertNotEqual(by_file.path, by_link.path)
        self.assertEqual([by_file], loop.find(self.file))
        self.assertEqual([by_link], loop.find(self.link))

    def test_write_to_read_only_device_is_refused(self):
        device = self.attach(self.file, "ro")
        # Some kernels refuse to open it for writing, some the write.
        with self.assertRaises(PermissionError):
            os.pwrite(self.opened(device), b"no", 0)

    def test_written_data_is_in_file_after_detach(self):
        descriptor = self.opened(self.attach(self.link, "rw"))
        os.pwrite(descriptor, b"kept" * 1024, 4096)
        os.close(descriptor)
        loop.detach(self.link)
        self.assertEqual(b"kept" * 1024, self.file.read_bytes()[4096:8192])

    def test_written_data_is_seen_through_next_device(self):
        first, second = self.attach(self.file, "rw"), self.link
        descriptor = self.opened(first)
        os.pwrite(descriptor, b"seen" * 1024, 0)
        os.close(descriptor)
        loop.detach(self.file)
        reader = self.opened(self.attach(second, "ro"), os.O_RDONLY)
        self.assertEqual(b"seen" * 1024, os.pread(reader, 4096, 0))

    def test_detach_frees_only_devices_of_path(self):
        self.attach(self.file, "rw")
        kept = self.attach(self.link, "rw")
        loop.detach(self.file)
        self.assertEqual(([], [kept]), (loop.find(self.file), loop.find(self.link)))

    def test_detach_again_succeeds(self):
        self.attach(self.file, "rw")
        loop.detach(self.file)
        loop.detach(self.file)

    def test_detach_device_in_use_raises_until_closed(self):
        device = self.attach(self.file, "rw")
        descriptor = self.opened(device)
        with mock.patch.object(loop, "_DETACH_SECONDS", 0.1):
            for _ in range(2):
                with self.assertRaisesRegex(exception.BackendError, device.path) as caught:
                    loop.detach(self.file)
                self.assertFalse(caught.exception.final)
        self.assertTrue(loop.find(self.file)[0].closing)
        os.close(descriptor)
        loop.detach(self.file)
        self.assertEqual([], loop.find(self.file))

    def test_find_and_detach_device_of_removed_file(self):
        device = self.attach(self.link, "rw")
        self.link.unlink()
        self.assertEqual([device], loop.find(self.link))
        loop.detach(self.link)
        self.assertEqual([], loop.find(self.link))

    def test_refresh_after_growing_file_grows_device(self):
        device = self.attach(self.file, "rw")
        os.truncate(self.file, 3 * SIZE)
        loop.refresh(device)
        self.assertEqual(3 * SIZE, os.lseek(self.opened(device), 0, os.SEEK_END))

    def test_attach_skips_devices_taken_by_others(self):
        calls, real = [], fcntl.ioctl

        def ioctl(descriptor, request, *arguments):
            if request == loops._LOOP_CONFIGURE and len(calls) < 3:
                calls.append(request)
                raise OSError(errno.EBUSY, "taken")
            return real(descriptor, request, *arguments)

        with mock.patch.object(fcntl, "ioctl", ioctl):
            device = self.attach(self.file, "rw")
        self.assertEqual(([device], 3), (loop.find(self.file), len(calls)))

    def test_attach_without_free_device_raises_and_leaves_nothing(self):
        def ioctl(descriptor, request, *arguments):
            if request == loops._LOOP_CONFIGURE:
                raise OSError(errno.EBUSY, "taken")
            return 0

        taken = mock.patch.object(fcntl, "ioctl", ioctl)
        with taken, self.assertRaisesRegex(OSError, "take each free"):
            self.attach(self.file, "rw")
        self.assertEqual([], loop.find(self.file))

    def test_clear_device_of_other_file_keeps_it(self):
        device = self.attach(self.file, "rw")
        with mock.patch.object(loop, "find", return_value=[]):
            loop._clear(device, self.link)
        self.assertEqual([device], loop.find(self.file))
