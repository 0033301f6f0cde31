# SPDX-License-Identifier: Apache-2.0
"""Holes in real files."""

import errno
import os
import unittest

from attachd.linux import holes
from attachd.tests.fixtures.lifetime import temp_dir

MIB = 2**20


class PunchTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = temp_dir(self) / "file"
        self.path.write_bytes(b"7" * (2 * MIB))

    def test_punch_frees_blocks_and_keeps_size_and_the_rest(self):
        with self.path.open("r+b") as file:
            os.fsync(file.fileno())
            before = os.fstat(file.fileno()).st_blocks
            holes.punch(file.fileno(), MIB, MIB)
            self.assertLess(os.fstat(file.fileno()).st_blocks, before)
        self.assertEqual(b"7" * MIB + bytes(MIB), self.path.read_bytes())

    def test_punch_in_file_that_is_open_for_reading_is_refused(self):
        with self.path.open("rb") as file, self.assertRaises(OSError) as raised:
            holes.punch(file.fileno(), 0, MIB)
        self.assertEqual(errno.EBADF, raised.exception.errno)
