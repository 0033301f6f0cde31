# SPDX-License-Identifier: Apache-2.0
"""Attributes of a mount."""

import errno
import os
import unittest
from unittest import mock

from attachd.linux import share_mounts
from attachd.tests.fixtures import hostile_names, lifetime, requirements


class RestrictTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        requirements.share_mounts(self)
        folder = lifetime.temp_dir(self)
        self.mount_point = folder / "mnt"
        (folder / "share").mkdir()
        self.mount_point.mkdir()
        hostile_names.bind(self, folder / "share", self.mount_point)

    def test_restricted_mount_has_no_links_devices_and_programs(self):
        for _ in range(2):
            self.assertEqual("", share_mounts.restrict(self.mount_point))
        program, link = self.mount_point / "program", self.mount_point / "link"
        program.write_text("#!/bin/true\n")
        program.chmod(0o4755)
        link.symlink_to(program)
        hostile_names.KINDS["block device"](self.mount_point / "device", program)
        with self.assertRaises(PermissionError):
            os.posix_spawn(program, [f"{program}"], {})
        with self.assertRaises(PermissionError):
            (self.mount_point / "device").open("rb")
        with self.assertRaisesRegex(OSError, "Too many levels"):
            link.read_text()
        flags = os.statvfs(self.mount_point).f_flag
        self.assertEqual(os.ST_NOSUID | os.ST_NODEV, flags & (os.ST_NOSUID | os.ST_NODEV))

    def test_directory_without_mount_raises(self):
        with self.assertRaises(OSError):
            share_mounts.restrict(self.mount_point.parent)

    def test_older_kernel_is_named_and_accepted(self):
        for failures in ([errno.ENOSYS], [errno.EINVAL, None]):
            errors = [number and OSError(number, os.strerror(number)) for number in failures]
            with mock.patch.object(share_mounts, "_set", side_effect=errors):
                self.assertIn("5.14 can", share_mounts.restrict(self.mount_point))
