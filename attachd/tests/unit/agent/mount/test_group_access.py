# SPDX-License-Identifier: Apache-2.0
"""Results of the program; functional/test_node_volumes.py has file systems of volumes."""

import unittest
from unittest import mock

from attachd import exception
from attachd.agent.mount import group_access
from attachd.linux.commands import CommandResult
from attachd.linux.mountinfo import Mount


class GroupAccessTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.mount = Mount(7, 1, 2049, "/mnt/x", False, "xfs", "/dev/sdx")
        self.enterContext(mock.patch("attachd.linux.mountinfo.find_at", lambda _path: self.mount))
        self.execute = self.enterContext(mock.patch("attachd.linux.commands.execute"))
        self.execute.return_value = CommandResult(0, "0\n", "")

    def test_program_gets_mount_group_and_lock(self):
        group_access.grant("/mnt/x", 1000, [3])
        line, _timeout, locks = self.execute.call_args.args
        self.assertEqual(("attachd.agent.mount.file_groups", "/mnt/x", "7", "1000"), line[2:])
        self.assertEqual((3,), locks)

    def test_failure_has_reason(self):
        self.execute.return_value = CommandResult(1, "", "/mnt/x/a: Input/output error")
        with self.assertRaisesRegex(exception.HostError, "group 1000: /mnt/x/a: Input/output"):
            group_access.grant("/mnt/x", 1000)

    def test_files_that_refuse_are_logged(self):
        self.execute.return_value = CommandResult(0, "2\n", "")
        with self.assertLogs(group_access.__name__, "WARNING") as logged:
            group_access.grant("/mnt/x", 1000)
        self.assertIn("2 files at /mnt/x", logged.output[0])

    def test_missing_mount_is_refused(self):
        self.mount = None
        with self.assertRaisesRegex(exception.HostError, "Nothing is mounted"):
            group_access.grant("/mnt/x", 1000)
        self.execute.assert_not_called()
