# SPDX-License-Identifier: Apache-2.0
"""What is said of a file system beside its device."""

import unittest

from attachd.agent.mount.filesystem_state import TOLERANCE, FilesystemState

GIB = 2**30


class FilesystemStateTest(unittest.TestCase):
    def test_description_has_sizes_and_the_reason(self):
        state = FilesystemState("xfs", GIB, 5 * GIB // 2)
        self.assertEqual("xfs has 1 of 2.5 GiB", state.describe())
        state = FilesystemState("xfs", GIB, 2 * GIB, 7, "it is read-only.")
        self.assertEqual("xfs has 1 of 2 GiB: it is read-only.", state.describe())

    def test_rest_of_a_group_of_blocks_is_not_smaller(self):
        for state in (
            FilesystemState("ext4", GIB - TOLERANCE, GIB),
            FilesystemState("vfat", 0, GIB),
            FilesystemState("", 0, GIB),
        ):
            self.assertEqual((False, None), (state.is_smaller, state.describe()))
        self.assertTrue(FilesystemState("ext4", GIB - TOLERANCE - 1, GIB).is_smaller)
