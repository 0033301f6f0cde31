# SPDX-License-Identifier: Apache-2.0
"""Consistent copies of sparse files."""

import errno
import fcntl
import os
import secrets
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import copying
from attachd.tests.fixtures import lifetime

MIB = 2**20


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        folder = lifetime.temp_dir(self)
        self.source = folder / "source"
        self.target = folder / "target"
        self.source.touch()
        self.enterContext(mock.patch.object(copying, "_TICK_NS", 5_000_000))

    def write(self, offset, data):
        with self.source.open("r+b") as file:
            file.seek(offset)
            file.write(data)

    def copy(self, limit=2**40):
        reading = os.open(self.source, os.O_RDONLY)
        try:
            writing = os.open(self.target, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                copying.copy(reading, writing, f"{self.source}", limit)
            finally:
                os.close(writing)
        finally:
            os.close(reading)

    def changing_source(self, *times):
        """Write to the source after the given copies of the data (1: the first)."""
        real, done = copying._copy_data, []

        def copy_data(*descriptors):
            real(*descriptors)
            done.append(None)
            if len(done) in times:
                self.write(0, secrets.token_bytes(16))

        return mock.patch.object(copying, "_copy_data", copy_data)


class WithoutClonesTest(Case):
    """Copying on a file system that cannot clone files."""

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(copying, "_clone", return_value=False))

    def test_copy_keeps_data_and_holes(self):
        os.truncate(self.source, 64 * MIB)
        for offset in (0, 9 * MIB + 1, 64 * MIB - 5000):
            self.write(offset, secrets.token_bytes(5000))
        self.copy()
        self.assertEqual(self.source.read_bytes(), self.target.read_bytes())
        self.assertLess(self.target.stat().st_blocks * 512, 2 * MIB)

    def test_copy_of_empty_and_sparse_file(self):
        for size in (0, 5 * MIB):
            os.truncate(self.source, size)
            self.copy()
            self.assertEqual(bytes(size), self.target.read_bytes())

    def test_copy_without_copy_file_range_keeps_data_and_adds_no_zeros(self):
        os.truncate(self.source, 64 * MIB)
        self.write(9 * MIB + 1, secrets.token_bytes(5000))
        with (
            # As NFS 4.1 does: no copy by the server, and no holes.
            mock.patch.object(os, "copy_file_range", side_effect=OSError(errno.EXDEV, "no")),
            mock.patch.object(os, "lseek", side_effect=self.without_holes),
        ):
            self.copy()
        self.assertEqual(self.source.read_bytes(), self.target.read_bytes())
        self.assertLess(self.target.stat().st_blocks * 512, 5 * MIB)

    def without_holes(self, _descriptor, start, whence):
        end = self.source.stat().st_size
        if start >= end:
            raise OSError(errno.ENXIO, "no data")
        return start if whence == os.SEEK_DATA else end

    def test_copy_with_full_disk_raises(self):
        self.write(0, b"bytes")
        full = OSError(errno.ENOSPC, "full")
        with (
            mock.patch.object(os, "copy_file_range", side_effect=full),
            self.assertRaises(OSError),
        ):
            self.copy()

    def test_copy_of_much_data_is_synced_in_steps(self):
        self.write(0, secrets.token_bytes(3 * MIB))
        with (
            mock.patch.object(copying, "_CHUNK", MIB),
            mock.patch.object(copying, "SYNC_BYTES", MIB),
            mock.patch.object(os, "fdatasync") as fdatasync,
        ):
            self.copy()
        self.assertEqual(3, fdatasync.call_count)

    def test_copy_replaces_contents_of_target(self):
        self.target.write_bytes(b"x" * 5000)
        self.write(0, b"new")
        self.copy()
        self.assertEqual(b"new", self.target.read_bytes())

    def test_copy_of_source_changed_meanwhile_is_repeated(self):
        self.write(0, b"x" * 5000)
        with self.changing_source(1, 2):
            self.copy()
        self.assertEqual(self.source.read_bytes(), self.target.read_bytes())

    def test_copy_of_constantly_changing_source_is_refused_with_advice(self):
        with (
            self.changing_source(*range(9)),
            self.assertRaisesRegex(exception.BackendError, "detach the volume first, or .* XFS"),
        ):
            self.copy()

    def test_copy_waits_after_recent_write(self):
        with (
            mock.patch.object(copying, "_TICK_NS", 2**62),
            mock.patch.object(copying, "time") as t,
        ):
            t.time_ns.return_value = 0
            with self.assertRaises(exception.BackendError):
                self.copy()
            self.assertTrue(t.sleep.called)

    def test_copy_leaves_out_what_is_beyond_the_limit(self):
        os.truncate(self.source, 2**40)
        self.write(0, b"kept")
        self.write(MIB - 2, b"half")
        self.write(2**39, b"left out")
        self.copy(MIB)
        self.assertEqual(MIB, self.target.stat().st_size)
        data = self.target.read_bytes()
        self.assertEqual((b"kept", b"ha"), (data[:4], data[-2:]))


class WithClonesTest(Case):
    """Copying on a file system that may clone files."""

    def test_copy_with_clone_support_copies_no_bytes(self):
        with mock.patch.object(fcntl, "ioctl", return_value=0) as ioctl:
            self.copy()
        (_writing, request, _reading), _ = ioctl.call_args
        self.assertEqual(0x40049409, request)
        self.assertEqual(b"", self.target.read_bytes())

    def test_copy_without_clone_support_copies_bytes(self):
        self.write(0, b"bytes")
        for number in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL):
            with mock.patch.object(fcntl, "ioctl", side_effect=OSError(number, "no")):
                self.copy()
            self.assertEqual(b"bytes", self.target.read_bytes())

    def test_copy_with_other_clone_error_raises(self):
        full = OSError(errno.ENOSPC, "full")
        with mock.patch.object(fcntl, "ioctl", side_effect=full), self.assertRaises(OSError):
            self.copy()

    def test_copy_on_this_file_system_keeps_data(self):
        self.write(MIB, b"bytes")
        self.copy()
        self.assertEqual(self.source.read_bytes(), self.target.read_bytes())
