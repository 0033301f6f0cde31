# SPDX-License-Identifier: Apache-2.0
"""Ranges of a trim, and what is read of fstrim; functional/test_discard.py frees real blocks."""

import os
import unittest
from unittest import mock

from attachd import exception
from attachd.agent.mount import trim
from attachd.agent.mount.trim import STEP, Range


class TrimTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        mount = mock.Mock(mountpoint="/mnt", read_only=False)
        self.find_mount = self.enterContext(mock.patch.object(trim.growth, "find_mount"))
        self.find_mount.return_value = mount
        self.enterContext(mock.patch.object(trim.growth, "find_node", return_value="/dev/x"))
        self.can_discard = self.enterContext(
            mock.patch.object(trim.block_device, "can_discard", return_value=True)
        )
        self.run = self.enterContext(mock.patch.object(trim.commands, "run"))

    def ranges(self, size):
        found = mock.Mock(f_blocks=size // 4096, f_frsize=4096)
        with mock.patch.object(os, "statvfs", return_value=found):
            return list(trim.list_ranges("/dev/x"))

    def test_ranges_cover_all_and_the_last_has_no_end(self):
        self.assertEqual([Range("/mnt", 0, None)], self.ranges(4096))
        self.assertEqual([Range("/mnt", 0, None)], self.ranges(STEP))
        expected = [Range("/mnt", 0, STEP), Range("/mnt", STEP, None)]
        self.assertEqual(expected, self.ranges(STEP + 4096))

    def test_device_that_cannot_be_trimmed_says_why(self):
        self.can_discard.return_value = False
        self.assertRaisesRegex(exception.HostError, "does not take discarded", self.ranges, 4096)
        self.find_mount.return_value.read_only = True
        self.assertRaisesRegex(exception.HostError, "read-only at /mnt", self.ranges, 4096)
        self.find_mount.return_value = None
        self.assertRaisesRegex(exception.HostError, "is not mounted", self.ranges, 4096)

    def test_trim_returns_bytes(self):
        self.run.return_value = "/mnt: 1 GiB (1073741824 bytes) trimmed\n"
        self.assertEqual(2**30, trim.trim(Range("/mnt", 0, None), 3))
        self.assertEqual(("fstrim", "--verbose", "--offset", "0", "/mnt"), self.run.call_args.args)
        self.assertEqual([3], self.run.call_args.kwargs["pass_fds"])
        trim.trim(Range("/mnt", 5, 6))
        self.assertEqual(("--length", "6", "/mnt"), self.run.call_args.args[-3:])
