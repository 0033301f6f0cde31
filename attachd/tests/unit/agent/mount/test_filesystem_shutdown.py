# SPDX-License-Identifier: Apache-2.0
"""Refusals of the program; functional/test_device_writers.py has real file systems."""

import errno
import fcntl
import os
from pathlib import Path
import sys
import unittest
from unittest import mock

from attachd.agent.mount import filesystem_shutdown

HERE = str(Path(__file__).parent)
NUMBER = Path(HERE).stat().st_dev


class ShutdownTest(unittest.TestCase):
    """What the program does not take for the file system of the device."""

    def call(self, path, number, **ioctl):
        self.enterContext(mock.patch.object(sys, "argv", ["program", path, f"{number}"]))
        self.ioctl = self.enterContext(mock.patch.object(fcntl, "ioctl", **ioctl))
        filesystem_shutdown.main()

    def test_other_file_system_is_refused(self):
        with self.assertRaisesRegex(SystemExit, f"{HERE} is covered by another mount"):
            self.call(HERE, NUMBER + 1)
        self.ioctl.assert_not_called()

    def test_missing_path_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "/no/such/place: No such file"):
            self.call("/no/such/place", 1)

    def test_type_without_shutdown_is_refused(self):
        with self.assertRaisesRegex(SystemExit, f"{HERE}: Inappropriate ioctl"):
            error = OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
            self.call(HERE, NUMBER, side_effect=error)

    def test_file_system_that_is_shut_down_already_is_accepted(self):
        self.call(HERE, NUMBER, side_effect=OSError(errno.EIO, "error"))
        self.ioctl.assert_called_once_with(mock.ANY, 0x8004587D, b"\2\0\0\0")
