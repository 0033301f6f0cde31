# SPDX-License-Identifier: Apache-2.0
"""Copies of files: all of one moment, holes included, or none."""

import errno
import fcntl
import os
from pathlib import Path
import secrets
import tempfile
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import copying

MIB = 2**20


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="attachd-test-")
        self.addCleanup(folder.cleanup)
        self.source = Path(folder.name, "source")
        self.target = Path(folder.name, "target")
        self.source.touch()
        self.enterContext(mock.patch.object(copying, "_TICK_NS", 5_000_000))

    def write(self, offset, data):
        with self.source.open("r+b") as file:
            file.seek(offset)
            file.write(data)

    def meddling(self, *times):
        """Have the source written to after the data was copied, the first, second... time."""
        real, done = copying._copy_data, []

        def copy_data(*descriptors):
            real(*descriptors)
            done.append(None)
            if len(done) in times:
                self.write(0, secrets.token_bytes(16))

        return mock.patch.object(copying, "_copy_data", copy_data)


class WithoutClonesTest(Case):
    """On a file system that cannot clone files."""

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(copying, "_clone", return_value=False))

    def test_data_and_holes_are_as_in_the_source(self):
        os.truncate(self.source, 64 * MIB)
        for offset in (0, 9 * MIB + 1, 64 * MIB - 5000):
            self.write(offset, secrets.token_bytes(5000))
        copying.copy(self.source, self.target)
        self.assertEqual(self.source.read_bytes(), self.target.read_bytes())
        self.assertLess(self.target.stat().st_blocks * 512, 2 * MIB)
        self.assertEqual(0o600, self.target.stat().st_mode & 0o777)

    def test_an_empty_file_and_one_of_nothing_but_holes(self):
        for size in (0, 5 * MIB):
            os.truncate(self.source, size)
            copying.copy(self.source, self.target)
            self.assertEqual(bytes(size), self.target.read_bytes())

    def test_what_was_in_the_target_is_gone(self):
        self.target.write_bytes(b"x" * 5000)
        self.write(0, b"new")
        copying.copy(self.source, self.target)
        self.assertEqual(b"new", self.target.read_bytes())

    def test_a_source_that_is_written_to_meanwhile_is_copied_again(self):
        self.write(0, b"x" * 5000)
        with self.meddling(1, 2):
            copying.copy(self.source, self.target)
        self.assertEqual(self.source.read_bytes(), self.target.read_bytes())

    def test_a_source_that_never_rests_is_refused_with_what_to_do(self):
        with (
            self.meddling(*range(9)),
            self.assertRaisesRegex(exception.BackendError, "detach the volume first, or .* XFS"),
        ):
            copying.copy(self.source, self.target)

    def test_a_source_that_was_written_to_just_now_is_waited_for(self):
        with (
            mock.patch.object(copying, "_TICK_NS", 2**62),
            mock.patch.object(copying, "time") as t,
        ):
            t.time_ns.return_value = 0
            with self.assertRaises(exception.BackendError):
                copying.copy(self.source, self.target)
            self.assertTrue(t.sleep.called)

    def test_a_missing_source_is_told(self):
        self.source.unlink()
        with self.assertRaises(FileNotFoundError):
            copying.copy(self.source, self.target)
        self.assertFalse(self.target.exists())


class WithClonesTest(Case):
    """On a file system that clones files, or on one that says that it does not."""

    def test_a_clone_moves_no_bytes(self):
        with mock.patch.object(fcntl, "ioctl", return_value=0) as ioctl:
            copying.copy(self.source, self.target)
        (_writing, request, _reading), _ = ioctl.call_args
        self.assertEqual(0x40049409, request)
        self.assertEqual(b"", self.target.read_bytes())

    def test_who_cannot_clone_copies(self):
        self.write(0, b"bytes")
        for number in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL):
            with mock.patch.object(fcntl, "ioctl", side_effect=OSError(number, "no")):
                copying.copy(self.source, self.target)
            self.assertEqual(b"bytes", self.target.read_bytes())

    def test_other_trouble_is_told(self):
        full = OSError(errno.ENOSPC, "full")
        with mock.patch.object(fcntl, "ioctl", side_effect=full), self.assertRaises(OSError):
            copying.copy(self.source, self.target)

    def test_this_file_system_does_one_or_the_other(self):
        self.write(MIB, b"bytes")
        copying.copy(self.source, self.target)
        self.assertEqual(self.source.read_bytes(), self.target.read_bytes())
