# SPDX-License-Identifier: Apache-2.0
"""What mounts permit; functional/test_mounts.py has real mounts."""

import unittest

from attachd import exception
from attachd.agent.mount.mount_rules import DEFAULTS, FILESYSTEMS, MountRules


class MountRulesTest(unittest.TestCase):
    def test_defaults_permit_no_programs_of_others_and_no_devices(self):
        for fs_type in FILESYSTEMS:
            DEFAULTS.check_type(fs_type, "/dev/sdb")
            options = DEFAULTS.options_for(fs_type).split(",")
            self.assertEqual(["nosuid", "nodev"], options[:2])
            self.assertEqual(fs_type != "xfs", "errors=remount-ro" in options)

    def test_other_type_is_refused_with_option_that_permits_it(self):
        with self.assertRaisesRegex(
            exception.HostError, "/dev/sdb carries the file system btrfs.*--allow-filesystem btrfs"
        ):
            DEFAULTS.check_type("btrfs", "/dev/sdb")
        MountRules(("btrfs",)).check_type("btrfs", "/dev/sdb")

    def test_options_of_caller_are_last(self):
        self.assertEqual(
            "nosuid,nodev,suid,discard", MountRules((), "suid,discard").options_for("xfs")
        )

    def test_wrong_values_are_refused(self):
        for options in ("rw", "ro", "noatime,remount", "a b", "x;y", "noatime,", 'a="b', "loop=1"):
            with self.subTest(options), self.assertRaisesRegex(exception.HostError, "option"):
                MountRules((), options)
        for name in ("", "../ext4", "ext4 -o dev"):
            with self.subTest(name), self.assertRaisesRegex(exception.HostError, "no type"):
                MountRules((name,))
